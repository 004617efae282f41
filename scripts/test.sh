#!/usr/bin/env bash
# On a fresh machine: install what is missing, build, run every test that this machine can run. The last line
# is `N passed, N failed`; the exit code is 0 if none failed.
#   scripts/test.sh          MPI=0: without Open MPI
set -euo pipefail
case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install_deps.sh --test
# make's own closing word on a failure would come after the sum, and so would the verification.
sum=$(mktemp)
trap 'rm -f "$sum"' EXIT
status=0
make -j"$(nproc)" test ${MPI:+MPI=$MPI} 2>&1 |
    awk -v sum="$sum" '/^make(\[[0-9]+\])?: \*\*\* .*test\] Error/ { next }
        /^[0-9]+ passed, [0-9]+ failed$/ { print > sum; next }
        { print; fflush() }' || status=$?
echo "== does this machine compute the very bits of ours?"
scripts/verify.sh || status=1
cat "$sum"
exit $status
