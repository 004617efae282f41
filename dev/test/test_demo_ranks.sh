#!/usr/bin/env bash
# The README's transcript of one run on 4, 3 and 1 ranks still comes out: as a test, so that it prints TAP.
#   PROGRAMS=build/mpi1 dev/test/test_demo_ranks.sh
set -u
name="1 - a run stopped on 4 ranks and on 3 ends on 1 with the weights of an undisturbed one"
echo 1..1
if ! ldd "${PROGRAMS:-.}/train_gpt2" | grep -q libmpi; then
    echo "ok $name # SKIP built without MPI"
elif output=$("$(dirname "$0")/../../scripts/demo_ranks.sh" 2>&1); then
    echo "ok $name"
else
    echo "not ok $name"
    sed 's/^/# /' <<<"$output"
    exit 1
fi
