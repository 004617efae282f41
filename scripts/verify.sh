#!/usr/bin/env bash
# Does this machine compute the very bits of ours? Short fp32 runs are made at every level of the instruction
# set that it has; their weights, losses and samples are compared with those in dev/test/golden. A line for
# each level; exit code 0 if all are equal, 1 if not.
#   scripts/verify.sh              (make verify builds first)
#   scripts/verify.sh --print      prints what dev/test/golden/expected.txt should hold, by the best level
set -u
case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. dev/test/golden/runs.bash
export LC_ALL=C
program=$(cd "${PROGRAMS:-.}" && pwd)/train_gpt2
if [ ! -x "$program" ]; then
    echo "scripts/verify.sh: $program: not found; build it with make" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CPU_LEVEL
if [ "${1:-}" = --print ]; then
    for name in $golden_names; do
        golden_run "$program" "$name" "$work/$name" || cat "$work/$name.stderr" >&2
    done
    exit
fi

status=0
for level in $(golden_levels "$program"); do
    export CPU_LEVEL=$level
    verdict=equal
    for name in $golden_names; do
        found=$(golden_run "$program" "$name" "$work/$level-$name")
        expected=$(grep "^$name " dev/test/golden/expected.txt)
        if [ "$found" != "$expected" ]; then
            found=${found:-$(tail -n 1 "$work/$level-$name.stderr")}
            verdict="NOT equal: expected '$expected', found '$found'"
            status=1
            break
        fi
    done
    printf '%-22s %s\n' "$level" "$verdict"
done
exit $status
