#!/usr/bin/env bash
# README's two commands in a bare Debian, as a newcomer meets it: no compiler, no python3, no git, no locale,
# no HOME. debootstrap makes the system (its variant minbase), with what is committed as the sources.
#   dev/test/fresh_machine.sh [bookworm|trixie] [--short]
#       --short   instead of both commands: quickstart.sh cut to 20 updates, the same weights on 1 and 2
#                 ranks, the module tests; three minutes on two cores
# Each command gets a system of its own, so that neither profits from what the other has installed.
#   MIRROR=URL    Debian's packages (default: where apt-get takes Debian's from here)
#   TMPDIR=DIR    room for 3 GB (default: /var/tmp)
# Exit code 0: all passed; 1: something failed; 77: no such system can be made here, and why in one line.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
script=dev/test/fresh_machine.sh

skip() {
    echo "fresh_machine.sh: skipped: $*"
    exit 77
}

# ---- in a mount and process namespace of its own -----------------------------------------------------------
# bare COMMAND SECONDS: in the system at $root, with next to nothing in the environment.
bare() {
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
        ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
        timeout -k 9 "$2" chroot "$root" /bin/sh -c "cd /train_gpt2 && $1"
}

# try NAME SECONDS COMMAND: one line with the result and the time; what the command said if it failed or took
# longer.
try() {
    local name=$1 seconds_max=$2 start=$SECONDS status
    bare "$3" "$seconds_max" >"$folder/log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        echo "$suite: $name: passed in $((SECONDS - start)) s"
    else
        echo "$suite: $name: failed after $((SECONDS - start)) s of $seconds_max s, exit code $status"
        tail -n 60 "$folder/log" | sed 's/^/    /'
    fi
    grep -hE '^([0-9]+ passed, [0-9]+ failed|weights [0-9a-f]{16})$' "$folder/log" | tail -n 1 |
        sed 's/^/    /'
    return $status
}

# fresh_root NAME: a copy of the bare system becomes $root.
fresh_root() {
    root=$folder/$1
    cp -a "$folder/bare" "$root" && mount -t proc proc "$root/proc" &&
        mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" || skip "no right to mount here"
}

two_ranks='options="scripts/config/kjv.conf --gradient_accumulation_steps=3 --batch_size=2 --max_iters=4
        --eval_interval=0 --snapshot_interval=0 --num_samples=0 --threads=1"
    export HOME=/root OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    ./train_gpt2 $options --out_dir=out/one | grep ^weights >one &&
        mpirun --oversubscribe -np 2 ./train_gpt2 $options --out_dir=out/two | grep ^weights >two &&
        cat two && cmp one two'

within() {
    folder=$1 suite=$2 mirror=$3 short=$4
    local start=$SECONDS includes=()
    [[ $mirror != https:* ]] || includes=(--include=ca-certificates)
    debootstrap --variant=minbase "${includes[@]}" "$suite" "$folder/bare" "$mirror" >"$folder/log" 2>&1 ||
        skip "debootstrap: $(tail -n 1 "$folder/log")"
    rm -f "$folder"/bare/var/cache/apt/archives/*.deb
    # As Debian's installer and docker write it: without it each mpirun may ask DNS for its own host, for 5 s.
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(uname -n)" >"$folder/bare/etc/hosts"
    mkdir "$folder/bare/train_gpt2" && git archive HEAD | tar -x -C "$folder/bare/train_gpt2" || exit 1
    echo "$suite: a bare system in $((SECONDS - start)) s, sources of $(git rev-parse --short HEAD)"
    if [ "$short" = 1 ]; then
        fresh_root short
        try 'quickstart.sh, 20 updates' 600 'scripts/quickstart.sh --max_iters=20 --max_new_tokens=20' &&
            try 'the very bits of ours' 120 scripts/verify.sh &&
            try '2 ranks have the weights of one' 120 "$two_ranks" &&
            try 'module tests' 600 'scripts/install_deps.sh --test && make -j"$(nproc)" module-tests'
    else
        fresh_root quickstart
        try quickstart.sh 300 scripts/quickstart.sh && try '2 ranks have the weights of one' 60 "$two_ranks"
        failed=$?
        fresh_root test
        try test.sh 5400 scripts/test.sh && [ $failed -eq 0 ]
    fi || exit 1
    exit 0
}

if [ "${1:-}" = --within ]; then
    within "${@:2}"
fi

# ---- outside -----------------------------------------------------------------------------------------------
suite=trixie
short=0
for argument in "$@"; do
    case $argument in
    bookworm | trixie) suite=$argument ;;
    --short) short=1 ;;
    -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' $script
        exit 0
        ;;
    *)
        echo "fresh_machine.sh: $argument: expected bookworm, trixie, --short or --help" >&2
        exit 1
        ;;
    esac
done

# Where this machine has Debian's main archive from, whichever way its sources are written.
apt_mirror() {
    apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && $2 !~ /-/ && $3 ~ /^(http|https|file):/ { print $3; exit }'
}

# apt_proxy NAME: what apt.conf says, unless the environment says it.
apt_proxy() {
    local variable=${1}_proxy found=
    eval "$(apt-config shell found "Acquire::$1::Proxy" 2>/dev/null)"
    if [ -z "${!variable:-}" ] && [ -n "$found" ] && [ "$found" != DIRECT ]; then
        export "$variable=$found"
    fi
}

[ "$(id -u)" -eq 0 ] || skip "debootstrap and chroot take root"
command -v debootstrap >/dev/null || skip "no debootstrap here; apt-get install debootstrap"
[ -e "/usr/share/debootstrap/scripts/$suite" ] || skip "this debootstrap does not know $suite"
git rev-parse --verify -q HEAD >/dev/null || skip "no git, or no clone whose commit could be tried"
unshare --mount --pid --fork true 2>/dev/null || skip "no right to a mount namespace here"
mirror=${MIRROR:-$(apt_mirror)}
if [ -z "$mirror" ]; then
    apt-get update >/dev/null 2>&1
    mirror=$(apt_mirror)
fi
[ -n "$mirror" ] || skip "apt-get has no source of Debian's packages here; give one as MIRROR=URL"
apt_proxy http
apt_proxy https
git diff --quiet HEAD || echo "$suite: changes that are not committed are not in it"

folder=$(mktemp -d "${TMPDIR:-/var/tmp}/fresh_machine.XXXXXX") || exit 1
child=
# What is mounted and who runs there go with the namespace, whose first process goes with unshare.
clean_up() {
    if [ -n "$child" ]; then
        kill -KILL "$child" 2>/dev/null
        wait "$child" 2>/dev/null
    fi
    rm -rf --one-file-system "$folder" 2>/dev/null || { sleep 1 && rm -rf --one-file-system "$folder"; }
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
# In the background: a trap waits for what runs in the foreground.
unshare --mount --pid --fork --kill-child --mount-proc "$script" --within \
    "$folder" "$suite" "$mirror" $short &
child=$!
wait $child
status=$?
child=
exit $status
