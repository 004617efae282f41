# Sourced by dev/gpu_check.sh: NCCL, the parts that start several ranks, and the step as a graph.

# Ranks that share a GPU: NCCL refuses that unless they seem to be on machines of their own, which then talk
# by the loopback's sockets. Four thread blocks a collective leave room for the others' kernels, for which
# each of them waits.
device=${CUDA_VISIBLE_DEVICES:-0}
sharing=("CUDA_VISIBLE_DEVICES=${device%%,*}" NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
    NCCL_NVLS_ENABLE=0 NCCL_MNNVL_ENABLE=0 NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MAX_CTAS=4)
lost_s=6 # comm_timeout of runs that lose a rank; NCCL has to connect three on one GPU within it

# NCCL as PyTorch's package has it, or a distribution; without its header, none. The host build has its own.
find_nccl() {
    local file folder
    if [ "$variant" != cuda ] || [ "${NCCL:-}" = 0 ]; then
        export NCCL=${NCCL:-1}
        return
    fi
    NCCL=0
    while read -r file; do
        [ -f "$file" ] || continue
        folder=$(dirname "$(dirname "$file")")/include
        if [ -f "$folder/nccl.h" ]; then
            includes=${includes:+$includes:}$folder
        elif [ ! -f /usr/include/nccl.h ] && [ ! -f "$toolkit/include/nccl.h" ]; then
            continue
        fi
        ln -sf "$file" "$out/lib/libnccl.so.2"
        NCCL=1
        break
    done < <("$python" -c 'import importlib.util as u
print(list(u.find_spec("nvidia.nccl").submodule_search_locations)[0] + "/lib/libnccl.so.2")' 2>/dev/null
        find "$toolkit/.." /opt /usr/lib /usr/local/lib -name libnccl.so.2 2>/dev/null)
    export NCCL
}

# A port that nobody listens at, below those which the system gives to outgoing connections.
free_port() {
    local port
    while port=$((10000 + RANDOM % 20000)) && (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do
        :
    done
    echo $port
}

# start_ranks N FOLDER ARGUMENTS...: the recipe on N ranks, as torchrun would start them; their process ids in
# $pids, their output in FOLDER.R.log.
start_ranks() {
    local count=$1 folder=$out/runs/$2 port rank
    shift 2
    port=$(free_port)
    pids=()
    for ((rank = 0; rank < count; rank++)); do
        env "${sharing[@]}" NCCL_HOSTID=gpu-check-$rank RANK=$rank WORLD_SIZE=$count LOCAL_RANK=$rank \
            MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$train" "${recipe[@]}" --bucket_cap_mb=0.1 \
            "--out_dir=$folder" "$@" >"$folder.$rank.log" 2>&1 &
        pids+=($!)
    done
}

# end_ranks: their exit codes in $codes.
end_ranks() {
    local pid
    codes=()
    for pid in "${pids[@]}"; do
        wait "$pid" 2>/dev/null
        codes+=($?)
    done
}

# weights_of N FOLDER ARGUMENTS...: the last line of rank 0, if all ranks ended well.
weights_of() {
    local folder=$out/runs/$2
    start_ranks "$@"
    end_ranks
    if [[ "${codes[*]}" =~ [1-9] ]]; then
        echo "$2: exit codes ${codes[*]}" >&2
        tail -n 3 "$folder".*.log >&2
        return 1
    fi
    tail -n 1 "$folder.0.log" | grep -oE '^weights [0-9a-f]{16}$'
}

# What sums the gradients, as the log has it: "NCCL 2.27.3".
reducer_of() {
    sed -n 's/.*"event":"reducer".*"name":"\([^"]*\)".*/\1/p' "$out/runs/$1/log.jsonl" | tail -n 1
}

# same_weights DTYPE N:GRAPH...: as one rank with a graph has them. Processes take turns on one GPU, so few
# updates are enough to wait for; a graph is replayed from the third on.
same_weights() {
    local dtype=$1 alone found count graph bad= version
    shift
    alone=$(weights_of 1 ranks-$dtype-1 --dtype=$dtype --max_iters=10) || bad=" 1"
    for count; do
        graph=${count#*:}
        count=${count%:*}
        found=$(weights_of $count ranks-$dtype-$count-$graph --dtype=$dtype --max_iters=10 --share_gpus=true \
            --cuda_graph=$graph)
        echo "$dtype, $count ranks, cuda_graph=$graph: ${found:-none}, alone ${alone:-none}"
        [ -n "$found" ] && [ "$found" = "$alone" ] || bad+=" $count(graph=$graph)"
    done
    version=$(reducer_of ranks-$dtype-$count-$graph)
    if [ -z "$bad" ] && [[ $version == NCCL* ]]; then
        row PASS "1 to 3 ranks on one GPU, $dtype" "$alone, $version" "the same"
    else
        row FAIL "1 to 3 ranks on one GPU, $dtype" "differ or failed:$bad, $version" "the same"
    fi
}

refuses_sharing() {
    start_ranks 2 ranks-refused --dtype=bf16
    end_ranks
    if [ "${codes[0]}" = 1 ] &&
        grep -q 'expected a GPU for each rank, found 1 GPU and 2 ranks' "$out/runs/ranks-refused.0.log"; then
        row PASS "2 ranks, 1 GPU, no --share_gpus" "refused"
    else
        row FAIL "2 ranks, 1 GPU, no --share_gpus" "exit codes ${codes[*]}: see ranks-refused.0.log" refused
    fi
}

# lose SIGNAL TRY: 3 ranks, of which the second gets the signal. In $bucket, where the others say that they
# were held up, if that was a bucket; in $seconds how long they took to end. 1 if they did not end as they
# should.
lose() {
    local signal=$1 folder=ranks-$1-$2 deadline=$((SECONDS + 40)) begin rank status=0
    start_ranks 3 "$folder" --dtype=bf16 --share_gpus=true --max_iters=1000000 --comm_timeout=$lost_s
    until grep -qs '"event":"step","iter":10,' "$out/runs/$folder/log.jsonl"; do
        if [ $SECONDS -ge $deadline ] || ! kill -0 "${pids[0]}" 2>/dev/null; then
            kill -KILL "${pids[@]}" 2>/dev/null
            break
        fi
        sleep 0.05
    done
    begin=$EPOCHREALTIME
    deadline=$((SECONDS + 20))
    kill -"$signal" "${pids[1]}" || status=1
    while kill -0 "${pids[0]}" || kill -0 "${pids[2]}"; do
        [ $SECONDS -lt $deadline ] || kill -KILL "${pids[@]}"
        sleep 0.05
    done 2>/dev/null
    seconds=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $begin }")
    kill -KILL "${pids[1]}" 2>/dev/null
    end_ranks
    for rank in 0 2; do
        [ "${codes[rank]}" -eq 76 ] || status=1
        tail -n 2 "$out/runs/$folder.$rank.log"
        grep -qE '\] rank 1 \(.*\) is lost.*; this rank was (computing|in )|] rank 1 .*; this rank was in ' \
            "$out/runs/$folder.$rank.log" || status=1
    done
    bucket=$(grep -ohE 'this rank was in bucket [0-9]+' "$out/runs/$folder".[02].log |
        grep -oE 'bucket [0-9]+' | head -n 1)
    return $status
}

# A rank that is killed is missed at once, and one that is stopped after comm_timeout: then the others hang in
# a collective, most often in a bucket, and three tries should see one.
lost_ranks() {
    local signal limit try status bucket seconds
    for signal in KILL:5 STOP:$((lost_s + 5)); do
        limit=${signal#*:}
        signal=${signal%:*}
        for try in 1 2 3; do
            lose "$signal" $try
            status=$?
            [ $status -eq 0 ] && [ $signal = STOP ] && [ -z "$bucket" ] || break
        done
        if [ $status -ne 0 ]; then
            row FAIL "a rank gets SIG$signal, the others end" \
                "codes ${codes[0]}, ${codes[2]}, $seconds s: see ranks.log" 76
        elif [ $signal = STOP ] && [ -z "$bucket" ]; then
            row FAIL "a rank gets SIG$signal, the others end" "76, $seconds s, but no bucket was named" 76
        else
            judge "a rank gets SIG$signal, the others end (76)" "$seconds s${bucket:+, in $bucket}" \
                "at most $limit s" "$seconds <= $limit"
        fi
    done
}

part_ranks() {
    if [ "$variant" = cuda ] && [ "$NCCL" = 0 ]; then
        row SKIP "several ranks" "no NCCL here: built with NCCL=0"
        return
    fi
    same_weights bf16 1:false 2:true 2:false 3:true 3:false
    same_weights fp32 3:true
    refuses_sharing
    lost_ranks
}

# ---- the step as a graph -----------------------------------------------------------------------------------
# fastest_ms NAME...: the smallest of the median updates of these runs.
fastest_ms() {
    local name
    for name; do
        median_ms "$out/runs/$name"
    done | sort -g | head -n 1
}

# GPT-2 124M in turns, so that a card that slows down does so for all: the step replayed as a graph and not,
# and with one slot the exact sums, which then are rounding in the update. At one rank there is no reducer;
# part exact has what several slots add.
part_graph() {
    local shape=(--batch_size=64 --block_size=1024 --max_iters=12 --init_from=scratch --grad_clip=1
        --dtype=bf16 --gradient_accumulation_steps=1) turn on off fp32
    [ "$variant" = cuda ] || shape+=(--batch_size=1 --block_size=8 --n_layer=1 --n_embd=64 --n_head=2 \
        --max_iters=5)
    make_tokens || return 1
    for turn in 1 2; do
        train_into graph-on-$turn "$train" "${shape[@]}" --train_data="$out/tokens.bin" || return 1
        train_into graph-off-$turn "$train" "${shape[@]}" --train_data="$out/tokens.bin" \
            --cuda_graph=false || return 1
        train_into graph-fp32-$turn "$train" "${shape[@]}" --train_data="$out/tokens.bin" \
            --reduce=fp32 || return 1
    done
    if [ "$(tail -n 1 "$out/runs/graph-on-1.log")" != "$(tail -n 1 "$out/runs/graph-off-1.log")" ]; then
        row FAIL "124M: weights with a graph and without" "differ" "the same"
    fi
    on=$(fastest_ms graph-on-1 graph-on-2)
    off=$(fastest_ms graph-off-1 graph-off-2)
    fp32=$(fastest_ms graph-fp32-1 graph-fp32-2)
    echo "graph on $on ms, off $off ms; reduce=fp32, graph on: $fp32 ms"
    judge "124M, an update as a graph" "$(printf "%.2f ms, without %.2f ms" "$on" "$off")" "no slower" \
        "$on <= 1.005 * $off"
    judge "exact sums, one slot: part of an update" \
        "$(awk "BEGIN { printf \"%.2f%%\", 100 * ($on / $fp32 - 1) }")" "at most 1%" "$on / $fp32 - 1 <= 0.01"
}
