#!/usr/bin/env bash
# Ranks under a real mpirun: sums, an orderly end, and every way in which a rank can be lost.
#   PROGRAMS=build/mpi1 dev/test/test_comm.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C OMP_NUM_THREADS=1 HOME=${HOME:-/}
let_ranks_end
worker=$(cd "${PROGRAMS:-.}" && pwd)/test/test_comm
work=$(mktemp -d)
job=
trap '[ -z "$job" ] || kill -KILL "$job" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
told() {
    tail -n 20 stdout stderr
}

# start RANKS SCENARIO [ARGUMENT]: mpirun in the background as $job, its output in stdout and stderr. What
# starts each rank is $launch, if set.
start() {
    local ranks=$1
    shift
    : >stdout
    timeout "$(scaled 120)" mpirun --allow-run-as-root --oversubscribe -np "$ranks" ${launch:-} \
        "$worker" worker "$@" >stdout 2>stderr &
    job=$!
}

# finish: waits for the job and leaves its exit code in $code.
finish() {
    wait "$job"
    code=$?
    job=
    forget_waits
}

# hit SIGNAL RANK RANKS: sends the signal to one rank once all have said that they are ready.
hit() {
    local end=$((SECONDS + $(scaled 60))) pid
    while [ "$(grep -c '^ready' stdout)" -lt "$3" ]; do
        [ $SECONDS -lt $end ] || { echo "# the ranks did not get ready"; return 1; }
        sleep 0.05
    done
    pid=$(awk -v rank="$2" '$1 == "ready" && $2 == rank { print $3 }' stdout)
    kill "-$1" "$pid"
}

# expect CODES LINES [TEXT]...: one of the exit codes, and so many lines of the worker's own on stderr, each
# with every TEXT.
expect() {
    local bad=0 found text
    [[ " $1 " == *" $code "* ]] || { echo "# exit code: expected $1, found $code"; bad=1; }
    found=$(grep -c '^worker: ' stderr)
    [ "$found" -eq "$2" ] || { echo "# lines: expected $2, found $found"; bad=1; }
    for text in "${@:3}"; do
        found=$(grep '^worker: ' stderr | grep -cF -- "$text")
        [ "$found" -eq "$2" ] || { echo "# lines with \"$text\": expected $2, found $found"; bad=1; }
    done
    return $bad
}

if OMPI_COMM_WORLD_SIZE=1 "$worker" worker again 2>&1 | grep -q 'built with MPI=0'; then
    OMPI_COMM_WORLD_SIZE=1 "$worker" worker again >stdout 2>stderr
    code=$?
    expect 1 1 'build it with MPI=1' torchrun
    result $? 'a build without MPI refuses an MPI job'
    echo "1..$tests"
    exit $((failures > 0))
fi

for ranks in 1 2 3 5; do
    start $ranks sums 1000003
    finish
    expect 0 0
    result $? "sums, broadcast and gather on $ranks ranks"
done

for rank in 0 1; do
    start 3 notice $rank
    finish
    expect 0 0
    result $? "a notice of rank $rank reaches all"
done

start 3 again
finish
expect 75 0
result $? 'an orderly end with an exit code of its own is silent'

for rank in 0 1; do
    start 3 failing $rank
    finish
    expect 1 1 "file.bin: broken on rank $rank"
    result $? "an error of rank $rank ends all with its exit code and its line"
done

# mpirun ends as the first process that it saw end: 137 for one that was killed. The timeout, 600 s, is far
# off.
for rank in 0 2; do
    start 3 endless
    hit KILL $rank 3
    finish
    expect '137 76' 2 "rank $rank (" 'is lost: it ended without a word; this rank was '
    result $? "killing rank $rank ends the others at once with a line that names it"
done

COMM_TIMEOUT=$(scaled 2)
export COMM_TIMEOUT
for rank in 0 2; do
    start 3 endless
    hit STOP $rank 3
    finish
    # The stopped one may or may not have the time for a line when mpirun ends it.
    [ "$code" -eq 76 ] && [ "$(grep '^worker: ' stderr | grep -cF "rank $rank (")" -ge 2 ] &&
        [ "$(grep -c '^worker: ' stderr)" -eq "$(grep '^worker: ' stderr | grep -cF 'is lost: silent for')" ]
    result $? "stopping rank $rank for longer than the timeout ends the others with a line that names it"
done

start 3 absent 1
finish
expect 76 3 'rank 1 (' 'is lost: no arrival at bucket 7 of 1 element within comm_timeout, '"$COMM_TIMEOUT s"
result $? 'a rank that never comes to a collective is named'

# Nobody watches over a rank that has not joined, and MPI itself waits for it for ever.
cat >join_late <<'END'
#!/usr/bin/env bash
[ "$OMPI_COMM_WORLD_RANK" != 1 ] || sleep $((30 * COMM_TIMEOUT))
exec "$@"
END
chmod +x join_late
launch=./join_late start 3 again
finish
# mpirun ends the second one while, or before, it says the same.
[ "$code" -eq 76 ] && grep -q "^worker: .*has waited $COMM_TIMEOUT s (join_timeout) for other ranks" stderr
result $? 'a rank that does not even start ends the others after the timeout'
unset COMM_TIMEOUT

# Tasks of srun need no PMIx, but their numbers, with and without a PMI that this MPI cannot use.
for variables in '' 'PMI_RANK=0 PMI_SIZE=2'; do
    # shellcheck disable=SC2086
    env SLURM_STEP_ID=0 SLURM_NTASKS=2 $variables timeout "$(scaled 60)" \
        "$worker" worker again >stdout 2>stderr
    code=$?
    expect 1 1 "expected SLURM_PROCID beside the launcher's other variables" 'set RANK'
    result $? "a task that knows no other is refused${variables:+ ($variables)}"
done

end_of_tests
