#!/usr/bin/env bash
# A real Slurm, on demand: a controller and three nodes in network namespaces run
# scripts/slurm_many_nodes.sbatch and srun as docs/slurm.md says. Installs slurm and munge where apt-get can. At most six minutes.
#   make train_gpt2 && dev/test/slurm.sh      prints TAP; exit code 77 where namespaces or Slurm cannot be had
# TORCHRUN=PATH: also srun torchrun, by that program.
if [ -z "${CLUSTER_INSIDE:-}" ] && ! command -v slurmctld >/dev/null && [ "$(id -u)" -eq 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurmctld slurmd slurm-client \
        munge iproute2 >/dev/null 2>&1
fi
set -u
. "$(dirname "$0")/cluster.bash"
. "$root/dev/test/slurm.bash"
start_slurm || { tail -n 3 slurm/*.log; skip "Slurm does not start"; }

# ---- srun --------------------------------------------------------------------------------------------------
undisturbed 300
begin=$(date +%s%N)
timeout "$(scaled 60)" srun -N3 --ntasks-per-node=2 --mpi=none ./train_gpt2 run.conf --max_iters=300 \
    --out_dir=none >stdout 2>stderr
update_us=$((($(date +%s%N) - begin) / 300000))
grep -q 'on 6 ranks' stdout
ended_as_expected "srun --mpi=none: six tasks on three nodes find each other" none $?
if srun --mpi=list 2>&1 | grep -qw pmix; then
    timeout "$(scaled 60)" srun -N3 --ntasks-per-node=2 --mpi=pmix ./train_gpt2 run.conf --max_iters=300 \
        --out_dir=pmix >stdout 2>stderr
    grep -q 'on 6 ranks' stdout
    ended_as_expected "srun --mpi=pmix: the same by MPI" pmix $?
fi
timeout "$(scaled 60)" srun -N2 -n2 --mpi=pmi2 ./train_gpt2 run.conf --max_iters=300 --out_dir=pmi2 \
    >stdout 2>stderr
grep -q 'on 2 ranks' stdout
ended_as_expected "srun --mpi=pmi2, which this MPI does not understand: by TCP" pmi2 $?

# ---- jobs --------------------------------------------------------------------------------------------------
# Long enough that the time limits come before the end: Slurm looks at them every 30 seconds.
goal=$((60 * 1000000 / update_us))
undisturbed $goal
echo "# an update takes $update_us us on six ranks; jobs make $goal of them"

# What out_dir is, the program says: quotes and blanks are no matter.
printf '\n  out_dir =   "time limit"   # where\n' | cat run.conf - >limit.conf
limit=$(submit --nodes=1 --ntasks-per-node=2 --time=1 --signal=USR1@50 limit.conf --max_iters=$goal)
batch=$(submit --nodes=1 --ntasks-per-node=2 --time=1 --signal=B:TERM@50 run.conf --max_iters=$goal \
    --out_dir=batch)
killed=$(submit --nodes=1 --ntasks-per-node=2 run.conf --max_iters=$goal --out_dir=killed)
until_true 60 has_made 20 killed
kill -KILL "$(ranks_of killed | tail -n 1)"
status=$?

# Signals of a user.
kept=$(submit --nodes=1 --ntasks-per-node=2 --no-requeue run.conf --max_iters=1000000 --out_dir=kept)
until_true 60 has_made 20 kept
scancel --signal=USR1 "$kept"
await_job 60 "$kept" FAILED && [[ $(job "$kept") == *ExitCode=75:0* ]] && is_saved kept
result $? "--no-requeue: a signal, a snapshot, exit code 75"
gone=$(submit --nodes=1 --ntasks-per-node=2 run.conf --max_iters=1000000 --out_dir=gone)
until_true 60 has_made 20 gone
scancel "$gone"
await_job 60 "$gone" CANCELLED && is_saved gone && [[ $(job "$gone") == *Restarts=0* ]] &&
    grep -q 'the job was cancelled and is not put back' "slurm-$gone.out"
result $? "scancel: a snapshot, and the job stays cancelled"
wrong=$(submit --nodes=1 --ntasks-per-node=2 run.conf --max_iters=10 --out_dir=gone --n_layer=3)
await_job 60 "$wrong" FAILED && [[ $(job "$wrong") == *ExitCode=1:0*  && $(job "$wrong") == *Restarts=0* ]]
result $? "an error that would come again ends the job"

if [ -n "${TORCHRUN:-}" ]; then
    timeout "$(scaled 120)" srun -N2 --ntasks-per-node=1 "$TORCHRUN" --no-python --nnodes=2 \
        --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=node1:29400 --rdzv-id=a ./train_gpt2 run.conf \
        --max_iters=1000000 --out_dir=torch >stdout 2>stderr &
    until_true 60 has_made 20 torch
    scancel --signal=TERM "$(squeue -h -o %i -n torchrun)"
    wait $!
    is_saved torch && [[ $(cat torch/.end) == "75 "* ]]
    result $? "srun torchrun under SIGTERM, which comes twice: a snapshot"
fi

# ---- the jobs end by themselves ----------------------------------------------------------------------------
await_job 200 "$killed" COMPLETED
ended_as_expected "a rank is killed: back into the queue, and on" killed $((status + $?))
await_job 200 "$limit" COMPLETED && [ "$(starts "time limit")" -gt 1 ]
ended_as_expected "the time limit comes: snapshot, back into the queue, and on" "time limit" $?
await_job 200 "$batch" COMPLETED && [ "$(starts batch)" -gt 1 ] &&
    grep -q 'exit code 75; back into the queue' "slurm-$batch.out"
ended_as_expected "--signal=B:TERM, which only the script gets: the same" batch $?

# ---- a node vanishes ---------------------------------------------------------------------------------------
cut=$(submit --nodes=2-3 --ntasks-per-node=2 run.conf --max_iters=$goal --out_dir=cut)
until_true 60 has_made 120 cut
lost=$(scontrol show hostnames "$(squeue -h -j "$cut" -o %N)" | tail -n 1)
cut_node "$lost"
await_job 300 "$cut" COMPLETED && [ "$(starts cut)" -gt 1 ]
ended_as_expected "$lost is cut off: the others end, and the job goes on without it" cut $?
mend_node "$lost"

echo "# $((SECONDS - started_s)) seconds"
end_of_tests
