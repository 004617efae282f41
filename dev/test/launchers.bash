# Sourced after cluster.bash: torchrun and mpirun on its nodes.
#   TORCHRUN    the program
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

is_done() { # FOLDER
    [ -n "$(weights_of "$1")" ]
}

# All that runs on a node ends, as when its power fails.
power_off() {
    # shellcheck disable=SC2046 # numbers
    kill -KILL $(ip netns pids "$1") 2>/dev/null
}

# ---- mpirun ------------------------------------------------------------------------------------------------
# begin_hosts: what ssh is elsewhere, which finds no host that is cut off.
begin_hosts() {
    local node
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
    for node in "${nodes[@]}"; do
        until_true 60 on "$node" bash -c "exec 3<>/dev/tcp/$node/8022"
    done
}

# supervise_mpirun FOLDER OPTIONS...: two ranks a host, in the background; the supervisor's number in $!.
supervise_mpirun() {
    local folder=$1
    shift
    begin_on node1 scripts/supervise.sh --hosts=node1:2,node2:2,node3:2 --wait=1 "$@" \
        --host-check="timeout 3 bash -c 'exec 3<>/dev/tcp/{host}/8022'" -- \
        mpirun --mca plm_rsh_agent "$work/remote" --mca oob_tcp_if_include eth0 \
        --mca btl_tcp_if_include eth0 --mca btl tcp,self --oversubscribe --bind-to none \
        -np {ranks} --host {hosts} ./train_gpt2 "$folder.conf" >>"$folder.node1" 2>&1
}
