#!/usr/bin/env bash
# Random faults of the C library under train_gpt2 and tokenize (dev/fault/run.sh) for some seconds. A failed
# case prints the command that repeats it.
#   PROGRAMS=build/mpi1 dev/test/test_injected_faults.sh [SECONDS]       prints TAP
set -u
. "$(dirname "$0")/tap.bash"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root" || exit 1
PROGRAMS=${PROGRAMS:-build/mpi1} dev/fault/run.sh --seconds="${1:-25}" >"$work/stdout" 2>"$work/stderr"
status=$?
sed 's/^/# /' "$work/stdout"
head -n 60 "$work/stderr" | sed 's/^/# /'
result $status "$(tail -n 1 "$work/stdout")"
end_of_tests
