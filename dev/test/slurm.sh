#!/usr/bin/env bash
# A real Slurm, on demand: a controller and three nodes in network namespaces run
# scripts/slurm_many_nodes.sbatch and srun as docs/slurm.md says. Installs slurm and munge where apt-get can.
# At most six minutes.
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
timeout "$(scaled 60)" srun -N3 --ntasks-per-node=2 --mpi=none ./train_gpt2 run.conf --max_iters=300 \
    --out_dir=none >stdout 2>stderr
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
# Each job has a config file of its own, in which max_iters comes once the job is back in the queue: so
# whatever happens to it comes in time, on any machine. finish() sees to that.
limit=$(begin_job "time limit" --nodes=1 --time=1 --signal=USR1@50)
batch=$(begin_job batch --nodes=1 --time=1 --signal=B:TERM@50)
killed=$(begin_job killed --nodes=1)

# Signals of a user.
kept=$(begin_job kept --nodes=1 --no-requeue)
until_true 60 has_made 20 kept
scancel --signal=USR1 "$kept"
await_job 60 "$kept" FAILED && [[ $(job "$kept") == *ExitCode=75:0* ]] && is_saved kept
result $? "--no-requeue: a signal, a snapshot, exit code 75"
gone=$(begin_job gone --nodes=1)
until_true 60 has_made 20 gone
scancel "$gone"
await_job 60 "$gone" CANCELLED && is_saved gone && [[ $(job "$gone") == *Restarts=0* ]] &&
    grep -q 'does not put the job back' "slurm-$gone.out"
result $? "scancel: a snapshot, and the job stays cancelled"
wrong=$(submit --nodes=1 --ntasks-per-node=2 run.conf --max_iters=10 --out_dir=gone --n_layer=3)
await_job 60 "$wrong" FAILED && [[ $(job "$wrong") == *ExitCode=1:0* && $(job "$wrong") == *Restarts=0* ]]
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

# ---- jobs that go on ---------------------------------------------------------------------------------------
until_true 60 has_made 120 killed
kill -KILL "$(ranks_of killed.conf | tail -n 1)"
finish "$killed" killed "a rank is killed: back into the queue, and on"
finish "$limit" "time limit" "the time limit comes: snapshot, back into the queue, and on"
finish "$batch" batch "--signal=B:TERM, which only the script gets: the same"

cut=$(begin_job cut --nodes=2)
until_true 60 has_made 120 cut
lost=$(scontrol show hostnames "$(squeue -h -j "$cut" -o %N)" | tail -n 1)
cut_node "$lost"
finish "$cut" cut "$lost is cut off: the others end, and the job goes on elsewhere"
mend_node "$lost"

echo "# $((SECONDS - started_s)) seconds"
end_of_tests
