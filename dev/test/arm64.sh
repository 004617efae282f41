#!/usr/bin/env bash
# The CPU programs for arm64: built whole by a cross compiler, run by qemu-user. The reference folders hold, a
# text is tokenised as here, a short run gives the same weights on any number of threads. The libraries are
# Debian's, unpacked into build/arm64-sysroot: nothing is installed.
#   dev/test/arm64.sh      needs gcc-aarch64-linux-gnu and qemu-user-static (or qemu-user)
# Exit code 0: all that holds; 1: something does not; 77: it cannot be tried here, and why in one line.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
B=build/arm64
libraries=(libc6-dev libgomp1 libzstd-dev libjansson-dev libarchive-dev zlib1g-dev)

skip() {
    echo "arm64.sh: skipped: $*"
    exit 77
}

die() {
    echo "arm64.sh: $*"
    exit 1
}

command -v aarch64-linux-gnu-gcc >/dev/null || skip "no aarch64-linux-gnu-gcc here"
command -v dpkg-deb >/dev/null && command -v apt-get >/dev/null || skip "no apt-get here"
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) || skip "no qemu-aarch64-static here"

# arm64_apt ARGUMENTS...: an apt-get that knows this machine's sources, another architecture, and of no
# package that is installed.
arm64_apt() {
    local state
    state=$(realpath $B)/apt
    mkdir -p "$state"/{lists,archives}/partial
    : >"$state/status"
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
        -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state" \
        -o Debug::NoLocking=1 "$@"
}

# The folder has its name only once it is whole.
sysroot=$PWD/$B-sysroot
if [ ! -d "$sysroot" ]; then
    mkdir -p $B
    rm -rf "$sysroot.part"
    arm64_apt update >$B/log 2>&1 &&
        arm64_apt install -y --no-install-recommends --download-only "${libraries[@]}" >>$B/log 2>&1 ||
        skip "apt-get has no libraries for arm64: $(tail -n 1 $B/log)"
    for package in $B/apt/archives/*.deb; do
        dpkg-deb -x "$package" "$sysroot.part" || die "$package: cannot be unpacked"
    done
    rm -rf $B/apt
    mv "$sysroot.part" "$sysroot"
fi

make -j"$(nproc)" MPI=0 MACHINE=aarch64 B=$B CC="aarch64-linux-gnu-gcc --sysroot=$sysroot" \
    OBJCOPY=aarch64-linux-gnu-objcopy $B/train_gpt2 $B/test_gpt2 $B/data_prep/tokenize || die "no build"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOMP_SPINCOUNT=1000 # emulated threads share cores
run() {
    "$qemu" -L "$sysroot" "$B/$1" "${@:2}"
}
status=0

run test_gpt2 dev/reference/*/ >"$work/references" 2>&1 || status=1
grep -E 'FAILED|test_gpt2:|hold' "$work/references"

run data_prep/tokenize -o "$work/data" --val-fraction=0.1 README.md >/dev/null 2>&1 || status=1
if [ -x data_prep/tokenize ]; then
    data_prep/tokenize -o "$work/here" --val-fraction=0.1 README.md >/dev/null 2>&1 &&
        diff -rq "$work/here" "$work/data" && echo "tokenize: the shards of this machine" || status=1
fi

train() { # DTYPE THREADS
    run train_gpt2 --out_dir="$work/$1-$2" --init_from=dev/reference/heads_of_7 --eval_interval=0 \
        --train_data=dev/test/training/tokens.bin --batch_size=2 --block_size=32 --max_iters=5 \
        --gradient_accumulation_steps=3 --snapshot_interval=0 --dtype="$1" --threads="$2" >"$work/out" 2>&1 ||
        cat "$work/out" >&2
    tail -n 1 "$work/out" | grep -E '^weights [0-9a-f]{16}$'
}
for dtype in fp32 bf16; do
    one=$(train $dtype 1)
    three=$(train $dtype 3)
    echo "$dtype: $one on one thread, ${three:-no weights} on three"
    [ -n "$one" ] && [ "$one" = "$three" ] || status=1
done

# The golden runs: the very bits of x86-64.
. dev/test/golden/runs.bash
printf '#!/bin/sh\nexec "%s" -L "%s" "%s/train_gpt2" "$@"\n' "$qemu" "$sysroot" "$PWD/$B" >"$work/train_gpt2"
chmod +x "$work/train_gpt2"
for name in $golden_names; do
    found=$(golden_run "$work/train_gpt2" "$name" "$work/$name")
    echo "golden run $found"
    grep -qxF "$found" dev/test/golden/expected.txt || {
        echo "golden run $name: NOT equal: expected '$(grep "^$name " dev/test/golden/expected.txt)'"
        status=1
    }
done
exit $status
