#!/usr/bin/env bash
# Short fp32 runs give the golden bits: at every level of the instruction set that this machine runs, for any
# number of threads. scripts/verify.sh --print says what dev/test/golden/expected.txt should hold after a
# change that is meant to change them.
#   PROGRAMS=build/mpi1 dev/test/test_golden.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
. "$(dirname "$0")/golden/runs.bash"
export LC_ALL=C
program=$(cd "${PROGRAMS:-.}" && pwd)/train_gpt2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CPU_LEVEL

# is_golden NAME OUT [OPTION...]
is_golden() {
    local found expected
    found=$(golden_run "$program" "$1" "$work/$2" "${@:3}")
    expected=$(grep "^$1 " "$golden_folder/expected.txt")
    [ -n "$found" ] && [ "$found" = "$expected" ] && return
    echo "# expected $expected"
    echo "# found    $found"
    tail -n 3 "$work/$2.stderr" | sed 's/^/# /'
    return 1
}

levels=$(golden_levels "$program")
[ -n "$levels" ]
result $? "the levels of this machine are known: $levels"
for level in $levels; do
    for name in $golden_names; do
        CPU_LEVEL=$level is_golden "$name" "$level-$name"
        result $? "$name on $level: golden weights, losses and sample"
    done
done
for name in $golden_names; do
    is_golden "$name" "threads-$name" --threads=3
    result $? "$name on three threads"
done

# A verification that cannot fail is none.
is_golden one_slot other --seed=1338 >"$work/said"
[ $? -eq 1 ] && grep -q '^# found    one_slot [0-9a-f]' "$work/said"
result $? "another seed gives other weights"
end_of_tests
