#!/usr/bin/env bash
# Real torchrun and mpirun over several machines, on demand: agents and hosts are network namespaces
# (cluster.bash), and what docs/torchrun.md and docs/mpirun.md say is done to them.
#   make train_gpt2 && TORCHRUN=venv/bin/torchrun dev/test/torchrun.sh      prints TAP
# Exit code 77 where namespaces cannot be had. Without TORCHRUN only mpirun is tried.
set -u
. "$(dirname "$0")/cluster.bash"
. "$root/dev/test/launchers.bash"
make_nodes || skip "no namespaces for three nodes"

# From the next start on, which comes at once, the run has at most 500 updates left; those that train now know
# nothing of it.
last_lap() { # FOLDER
    goal=$(($(updates "$1") + 500))
    echo "max_iters = $goal" >>"$1.conf"
}

lose_worker() { # FOLDER: a worker is killed, and the next start is the last
    local victim
    victim=$(ranks_of "$1.conf" | tail -n 1)
    last_lap "$1"
    kill -KILL "$victim"
}

# Waits for processes, and tells whether the run went on and how it ended. A TAP line.
finish_run() { # NAME FOLDER PROCESS...
    local name=$1 folder=$2 status=0 process
    shift 2
    until_true 150 is_done "$folder" || status=1
    for process in "$@"; do
        [ $status -eq 0 ] || kill -KILL "$process"
        wait "$process"
    done
    undisturbed "$goal"
    [ "$(starts "$folder")" -gt 1 ] || status=1
    ended_as_expected "$name" "$folder" $status
    [ $status -eq 0 ] || tail -n 4 "$folder".node* | cut -c 1-160 | sed 's/^/# /'
}

ranks_are() { # COUNT FOLDER: of the newest start
    [ "$(grep '"event":"start"' "$2/log.jsonl" | tail -n 1 | sed 's/.*"ranks":\([0-9]*\).*/\1/')" = "$1" ]
}

if [ -n "${TORCHRUN:-}" ]; then
    begin_run worker
    agent node1 2 worker --init_from=auto && first=$!
    agent node2 2 worker --init_from=auto && second=$!
    until_true 120 has_made 120 worker
    lose_worker worker
    finish_run "torchrun: a worker is killed, --max-restarts --init_from=auto" worker $first $second

    begin_run agent
    agent node1 2 agent --init_from=auto && first=$!
    agent node2 2 agent --init_from=auto && second=$!
    until_true 120 has_made 120 agent
    last_lap agent
    power_off node2
    wait $second
    agent node2 2 agent --init_from=auto && second=$!
    finish_run "torchrun: an agent and its workers are killed and started again" agent $first $second

    begin_run elastic
    agent node1 1:2 elastic --init_from=auto && first=$!
    agent node2 1:2 elastic --init_from=auto && second=$!
    until_true 120 has_made 120 elastic && until_true 120 ranks_are 4 elastic
    kill -TERM $second
    wait $second
    until_true 120 ranks_are 2 elastic && until_true 60 has_more_than "$(updates elastic)" elastic
    status=$?
    agent node2 1:2 elastic --init_from=auto && second=$!
    until_true 120 ranks_are 4 elastic && until_true 60 has_more_than "$(updates elastic)" elastic || status=1
    lose_worker elastic
    finish_run "torchrun: elastic, 4 ranks, then 2, then 4 ($status)" elastic $first $second

    # Fine-tuning: from somebody's weights at first, from its own snapshots later.
    begin_run tuned
    undisturbed 100
    weights=whole-100/step-00000100.snap
    agent node1 1 tuned --init_from=auto:$weights && first=$!
    until_true 120 has_made 120 tuned
    lose_worker tuned
    until_true 150 is_done tuned
    wait $first
    ./train_gpt2 run.conf --max_iters="$goal" --out_dir=tuned-whole --init_from=$weights >stdout 2>stderr
    expected=$(weights_of tuned-whole) && [ "$(starts tuned)" -gt 1 ]
    ended_as_expected "torchrun: a worker of a fine-tuning is killed, --init_from=auto:PATH" tuned $?

    # torchrun turns 76 into 1 and dies of USR1.
    begin_run supervised
    begin_on node1 scripts/supervise.sh --slots=2 --wait=1 -- "$TORCHRUN" --no-python \
        --nproc-per-node={ranks} ./train_gpt2 supervised.conf >>supervised.node1 2>&1
    first=$!
    until_true 120 has_made 120 supervised
    kill -KILL "$(ranks_of supervised.conf | tail -n 1)"
    until_true 120 grep -q 'exit code 76; newest snapshot' supervised.node1
    status=$?
    until_true 120 has_made 240 supervised
    kill -USR1 $first
    wait $first
    [ $? -eq 75 ] && [ $status -eq 0 ] && [ -z "$(ranks_of supervised.conf)" ] &&
        [ -e "supervised/step-$(printf %08d "$(updates supervised)").snap" ]
    result $? "supervise.sh with torchrun: 76 is known, USR1 ends it with a snapshot and no rank is left"
    last_lap supervised
    begin_on node1 scripts/supervise.sh --slots=2 --wait=1 -- "$TORCHRUN" --no-python \
        --nproc-per-node={ranks} ./train_gpt2 supervised.conf >>supervised.node1 2>&1
    finish_run "and it goes on" supervised $!
fi

# ---- mpirun ------------------------------------------------------------------------------------------------
begin_hosts
begin_run vanished
supervise_mpirun vanished
first=$!
until_true 120 has_made 120 vanished && until_true 10 ranks_are 6 vanished
status=$?
last_lap vanished
cut_node node3
power_off node3
until_true 120 grep -q 'host node3 does not answer' vanished.node1 && until_true 60 ranks_are 4 vanished ||
    status=1
finish_run "mpirun under supervise.sh: a host vanishes, and the run goes on without it" vanished $first
[ $status -eq 0 ]
result $? "it had 6 ranks, and 4 then"
grep 'supervise.sh:' vanished.node1 | sed 's/^/# /'

echo "# $((SECONDS - started_s)) seconds"
end_of_tests
