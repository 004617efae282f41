#!/usr/bin/env bash
# One run of 2,000 updates, and 100 random events that happen to it: ranks are killed, stopped and told to
# end, nodes are cut off, jobs requeued, agents and launchers killed. Slurm, torchrun and mpirun start it in
# turn. It has to end by itself, in the weights of an undisturbed run. On demand; half an hour and more.
#   make train_gpt2 && TORCHRUN=venv/bin/torchrun dev/test/cluster_storm.sh [EVENTS [SEED]]      prints TAP
# Exit code 77 where namespaces, Slurm or torchrun cannot be had.
set -u
. "$(dirname "$0")/cluster.bash"
. "$root/dev/test/slurm.bash"
. "$root/dev/test/launchers.bash"
events_max=${1:-100}
RANDOM=${2:-1}
[ -x "${TORCHRUN:-}" ] || skip "TORCHRUN: expected the path of torchrun, found \"${TORCHRUN:-}\""
start_slurm || skip "Slurm does not start"
begin_hosts
begin_run storm
cat >>storm.conf <<END
max_iters = 2000
n_embd = 96
block_size = 64
batch_size = 6
snapshot_interval = 5
keep_snapshots = 3
heartbeat_timeout = 5
comm_timeout = 20
join_timeout = 60
END

cp storm.conf whole.conf # a name of its own: no event looks for its rank
./train_gpt2 whole.conf --out_dir=whole --snapshot_interval=0 >stdout 2>stderr &
whole=$!

newest_step() {
    find storm -name 'step-*.snap' 2>/dev/null | sort | tail -n 1 | tr -dc '0-9' | sed 's/^0*//'
}

# ---- launchers: begin, keep (what an operator would do), end, hit ------------------------------------------
begin_slurm() {
    job=$(submit --nodes=2 --ntasks-per-node=2 storm.conf)
}
keep_slurm() {
    has_state "$job" PENDING # which lets it start
    if has_state "$job" FAILED && ! is_done storm; then
        begin_slurm # it was given up
    fi
}
end_slurm() {
    scancel "$job"
    until_true 60 slurm_is_over
}
slurm_is_over() {
    ! has_state "$job" RUNNING && ! has_state "$job" COMPLETING
}
hit_slurm() {
    scontrol requeue "$job"
}

begin_torchrun() {
    agent node1 1:2 storm --init_from=auto && agents[1]=$!
    agent node2 1:2 storm --init_from=auto && agents[2]=$!
}
keep_torchrun() {
    local n
    for n in 1 2; do
        kill -0 "${agents[n]}" 2>/dev/null || is_done storm || {
            agent node$n 1:2 storm --init_from=auto && agents[n]=$!
        }
    done
}
end_torchrun() {
    kill -TERM "${agents[@]}" 2>/dev/null
    wait "${agents[@]}" 2>/dev/null
}
hit_torchrun() { # an agent and its workers
    local rank
    kill -KILL "${agents[2]}"
    for rank in $(ranks_of storm.conf); do
        ! ip netns pids node2 | grep -qx "$rank" || kill -KILL "$rank"
    done
}

begin_mpirun() {
    supervise_mpirun storm --tries=9
    supervisor=$!
}
keep_mpirun() {
    kill -0 "$supervisor" 2>/dev/null || is_done storm || begin_mpirun
}
end_mpirun() {
    kill -TERM "$supervisor" 2>/dev/null
    wait "$supervisor" 2>/dev/null
}
hit_mpirun() {
    pkill -KILL -P "$supervisor" mpirun
}

# ---- events ------------------------------------------------------------------------------------------------
one_rank() {
    ranks_of storm.conf | shuf -n 1 --random-source=<(yes $RANDOM)
}

event() { # LAUNCHER; 1 when it met nothing
    local kinds=(kill kill stop stop term term cut hit) node
    kind=${kinds[RANDOM % ${#kinds[@]}]}
    [ "$(ranks_of storm.conf | wc -l)" -gt 1 ] || return 1
    case $kind in
    kill) kill -KILL "$(one_rank)" ;;
    stop) kill -STOP "$(one_rank)" ;;
    term) kill -TERM "$(one_rank)" ;;
    cut)
        node=node$((2 + RANDOM % 2)) # node1 has mpirun, and the rendezvous of agents
        cut_node $node
        sleep 12
        mend_node $node
        ;;
    hit) hit_"$1" ;;
    esac 2>/dev/null
}

# progressed: a snapshot and an update since the last event, or the end.
progressed() {
    local newest
    keep_"$launcher"
    newest=$(newest_step)
    is_done storm || { [ "$newest" -gt "$last_step" ] && has_made $((newest + 1)) storm; }
}

launchers=(slurm torchrun mpirun)
declare -A counts=()
declare -a agents=()
events=0 last_step=0 status=0 turn=0
while ! is_done storm && [ $status -eq 0 ]; do
    launcher=${launchers[turn++ % 3]}
    begin_$launcher
    for ((i = 0; i < 4; i++)); do
        until_true 120 progressed || status=1
        ! is_done storm && [ $status -eq 0 ] || break
        last_step=$(newest_step)
        [ $events -lt "$events_max" ] || continue
        event $launcher || continue
        events=$((events + 1))
        counts[$launcher-$kind]=$((${counts[$launcher-$kind]:-0} + 1))
        echo "# $((SECONDS - started_s)) s, event $events: $launcher, $kind, at snapshot $last_step"
    done
    [ $events -lt "$events_max" ] || break
    is_done storm || end_$launcher
done

# The last launcher brings it to its end.
ends_now() {
    keep_"$launcher"
    is_done storm
}
until_true 600 ends_now || status=1
for one in "${!counts[@]}"; do
    echo "# $one: ${counts[$one]}"
done
wait $whole
expected=$(weights_of whole)
[ $events -eq "$events_max" ]
result $? "$events events of $events_max came before the end"
ended_as_expected "$events random events on Slurm, torchrun and mpirun in turn" storm $status
[ $status -eq 0 ] || { tail -n 5 storm.node* slurm-*.out | cut -c 1-160 | sed 's/^/# /'; }
echo "# $((SECONDS - started_s)) seconds"
end_of_tests
