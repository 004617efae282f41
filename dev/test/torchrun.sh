#!/usr/bin/env bash
# Real torchrun and mpirun over several machines, on demand: agents and hosts are network namespaces
# (cluster.bash), and what docs/torchrun.md and docs/mpirun.md say is done to them.
#   make train_gpt2 && TORCHRUN=venv/bin/torchrun dev/test/torchrun.sh      prints TAP
# Exit code 77 where namespaces cannot be had. Without TORCHRUN only mpirun is tried.
set -u
. "$(dirname "$0")/cluster.bash"
make_nodes || skip "no namespaces for three nodes"
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

# agent NODE NNODES FOLDER ARGUMENTS...: a torchrun of two workers there, in the background; its number in $!.
agent() {
    local node=$1 nnodes=$2 folder=$3
    shift 3
    begin_on "$node" "$TORCHRUN" --no-python --nnodes="$nnodes" --nproc-per-node=2 --max-restarts=20 \
        --rdzv-backend=c10d --rdzv-endpoint=node1:29400 --rdzv-id="$folder" \
        --rdzv-conf=join_timeout=600,last_call_timeout=3,keep_alive_interval=2,keep_alive_max_attempt=3 \
        ./train_gpt2 "$folder.conf" "$@" >>"$folder.$node" 2>&1
}

begin_run() { # FOLDER
    printf 'out_dir = %s\n' "$1" | cat run.conf - >"$1.conf"
    rm -f "$1".node*
}

# From the next start on the run has 150 updates left; those that train know nothing of it.
last_lap() { # FOLDER
    goal=$(($(updates "$1") + 150))
    echo "max_iters = $goal" >>"$1.conf"
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

is_done() { # FOLDER
    [ -n "$(weights_of "$1")" ]
}

ranks_are() { # COUNT FOLDER: of the newest start
    [ "$(grep '"event":"start"' "$2/log.jsonl" | tail -n 1 | sed 's/.*"ranks":\([0-9]*\).*/\1/')" = "$1" ]
}

# All that runs on a node ends, as when its power fails.
power_off() {
    # shellcheck disable=SC2046 # numbers
    kill -KILL $(ip netns pids "$1") 2>/dev/null
}

if [ -n "${TORCHRUN:-}" ]; then
    begin_run worker
    agent node1 2 worker --init_from=auto && first=$!
    agent node2 2 worker --init_from=auto && second=$!
    until_true 120 has_made 120 worker
    last_lap worker
    kill -KILL "$(ranks_of worker.conf | tail -n 1)"
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
    last_lap elastic
    agent node2 1:2 elastic --init_from=auto && second=$!
    until_true 120 ranks_are 4 elastic || status=1
    finish_run "torchrun: elastic, 4 ranks, then 2, then 4 ($status)" elastic $first $second

    # Fine-tuning: from somebody's weights at first, from its own snapshots later.
    begin_run tuned
    undisturbed 100
    weights=whole-100/step-00000100.snap
    agent node1 1 tuned --init_from=auto:$weights && first=$!
    until_true 120 has_made 120 tuned
    last_lap tuned
    kill -KILL "$(ranks_of tuned.conf | tail -n 1)"
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
# What ssh is elsewhere: it finds no host that is cut off.
cat >remote <<'END'
#!/usr/bin/env bash
host=$1
shift
timeout 3 bash -c "exec 3<>/dev/tcp/$host/8022" 2>/dev/null || exit 255
exec nsenter --net=/run/netns/"$host" --uts=/run/uts/"$host" bash -c "$*"
END
chmod +x remote
for node in "${nodes[@]}"; do
    begin_on "$node" python3 -m http.server 8022 >/dev/null 2>&1
done
mpi=(--mca plm_rsh_agent "$work/remote" --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0
    --mca btl tcp,self --oversubscribe --bind-to none)
begin_run vanished
begin_on node1 scripts/supervise.sh --hosts=node1:2,node2:2,node3:2 --wait=1 \
    --host-check="timeout 3 bash -c 'exec 3<>/dev/tcp/{host}/8022'" -- \
    mpirun "${mpi[@]}" -np {ranks} --host {hosts} ./train_gpt2 vanished.conf >>vanished.node1 2>&1
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
