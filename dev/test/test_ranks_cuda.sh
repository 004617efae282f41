#!/usr/bin/env bash
# Ranks of the CUDA program as the CPU runs it (dev/host_cuda), with gradients summed by NCCL's calls on a
# stream beside backward: the same weights at any number of ranks, with replayed and with fresh work, in any
# order of streams; a dropped event is seen; lost ranks, too few GPUs and NCCLs that differ are named.
#   PROGRAMS=build/mpi1 dev/test/test_ranks_cuda.sh        prints TAP
set -u
program=train_gpt2cu_host
. "$(dirname "$0")/ranks.bash"
export HOST_CUDA_DEVICES=4

# 0.33 MB of sums, in buckets of 0.02 MB or in one.
small+=(--max_iters=6)

# ---- any number of ranks -----------------------------------------------------------------------------------
for dtype in fp32 bf16; do
    ranks 0 "${small[@]}" --dtype=$dtype --out_dir=$dtype-alone
    alone=$(weights)
    [ "$code" -eq 0 ] && [ -n "$alone" ]
    result $? "$dtype: without a launcher"
    for N in 1 2 3 4; do # 9 slots, which 2 and 4 do not divide
        for graph in true false; do
            HOST_CUDA_SEED=$((N + ${#graph})) ranks $N "${small[@]}" --dtype=$dtype --cuda_graph=$graph \
                --bucket_cap_mb=0.02 --check_interval=1 --out_dir=$dtype-$N-$graph
            same "$dtype: $N ranks, cuda_graph=$graph: the same weights" "$alone"
        done
    done
    ranks 3 "${small[@]}" --dtype=$dtype --out_dir=$dtype-one
    same "$dtype: 3 ranks, one bucket: the same weights" "$alone"
    ranks 2 "${small[@]}" --dtype=$dtype --bucket_cap_mb=0.02 --overlap=false --out_dir=$dtype-late
    same "$dtype: buckets after backward: the same weights" "$alone"
    default=$launcher
    launcher=tcp
    ranks 3 "${small[@]}" --dtype=$dtype --bucket_cap_mb=0.02 --out_dir=$dtype-tcp
    same "$dtype: 3 ranks started as torchrun does: the same weights" "$alone"
    launcher=$default
    ranks 0 "${small[@]}" --dtype=$dtype --dropout=0.1 --out_dir=$dtype-dropout
    alone=$(weights)
    ranks 3 "${small[@]}" --dtype=$dtype --dropout=0.1 --bucket_cap_mb=0.02 --out_dir=$dtype-dropout-3
    same "$dtype: 3 ranks with dropout: the same weights" "$alone"
done
for one in 3:2 4:3 3:3 2:2; do # some ranks or all have one slot: their first is their last
    slots=${one%:*} N=${one#*:}
    ranks 0 "${small[@]}" --gradient_accumulation_steps=$slots --out_dir=slots-$slots-alone-$N
    alone=$(weights)
    limit_s=60 ranks $N "${small[@]}" --gradient_accumulation_steps=$slots --bucket_cap_mb=0.02 \
        --out_dir=slots-$slots-$N
    same "$slots slots on $N ranks: the same weights" "$alone"
done
grep -q '"event":"reducer","iter":0,"name":"NCCL [0-9]*\.[0-9]*\.[0-9]*"' fp32-3-true/log.jsonl &&
    grep -q '^gradients: summed over ranks by NCCL' stdout &&
    ! grep -q '"event":"reducer"' fp32-alone/log.jsonl
result $? "log and console name NCCL and its version, where there are ranks"

for reduce in fp32 bf16; do
    summing=("${small[@]}" --dtype=bf16 --reduce=$reduce --bucket_cap_mb=0.02)
    ranks 3 "${summing[@]}" --check_interval=1 --out_dir=reduce-$reduce
    [ "$code" -eq 0 ] && [ -n "$(weights)" ] && grep -q 'reduce is not exact' stdout
    result $? "reduce=$reduce runs on 3 ranks"
    fresh=$(weights)
    ranks 3 "${summing[@]}" --cuda_graph=false --out_dir=fresh-$reduce
    same "reduce=$reduce: the same weights with cuda_graph=false" "$fresh"
done

# ---- what a step tells -------------------------------------------------------------------------------------
ranks 3 "${small[@]}" --trace=2 --bucket_cap_mb=0.02 --out_dir=trace
some='[0-9.e-]*[1-9]'
[ "$code" -eq 0 ] && [ "$(grep -cE "\"compute_ms\":$some.*\"comm_ms\":$some.*\"exposed_ms\":[0-9]" \
    trace/log.jsonl)" -eq 6 ]
result $? "log.jsonl has compute_ms, comm_ms and exposed_ms, also of steps that are replayed"
python3 - trace/trace.json <<'END_PYTHON'
import collections, json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
spans = collections.defaultdict(dict)
for event in (event for event in events if event["ph"] == "X" and event["args"]["iter"] == 1):
    assert event["dur"] >= 0, event
    times = event["ts"], event["ts"] + event["dur"]
    spans[event["pid"], event["tid"]].setdefault(event["name"], []).append(times)
threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
assert len(threads) == 9, threads
rows = {}
for key, thread in threads.items():
    rows[key[0], thread] = spans[key]
for rank in range(3):
    training, buckets = rows[rank, "training"], rows[rank, "communication"]
    wanted = {"slot", "wait", "update", "forward, lm_head", "backward block 0", "backward block 1"}
    assert wanted <= set(training), training
    assert len(training["slot"]) == 3, training["slot"]
    first, last = buckets["bucket 0"][0], buckets["bucket %d" % (len(buckets) - 1)][0]
    block = training["backward block 0"][0]
    wait, update = training["wait"][0], training["update"][0]
    assert len(buckets) > 8 and first[0] >= training["forward, lm_head"][0][1] - 1e3, (first, training)
    order = [last[1] <= wait[1] + 1e3, block[1] <= wait[0] + 1e3, wait[1] <= update[0] + 1e3]
    assert all(order), (last, block, wait, update)
END_PYTHON
result $? "the trace has blocks, buckets, the wait and the update of each rank, in their order"

# ---- stop here, go on there --------------------------------------------------------------------------------
long=("${small[@]}" --bucket_cap_mb=0.02 --lr_schedule=wsd --lr_decay_iters=40)
bad=0
for one in 4:TERM:2 1:INT:0 3:USR1:1; do
    IFS=: read -r N signal who <<<"$one"
    ranks_begin "$N" "${long[@]}" --max_iters=100000 --init_from=auto --out_dir=chain
    await 60 has_made $(($(updates chain) + 3)) chain
    kill -"$signal" "$(cat "pid.$who")"
    ranks_end
    [ "$code" -eq 75 ] || { bad=1; echo "# $one: exit code $code"; told | sed 's/^/# /'; }
done
goal=$(($(updates chain) + 3))
ranks 2 "${long[@]}" --max_iters=$goal --init_from=resume --cuda_graph=false --out_dir=chain
found=$(weights)
ranks 0 "${long[@]}" --max_iters=$goal --out_dir=undisturbed
[ $bad -eq 0 ] && [ -n "$found" ]
same "stopped on 4, 1 and 3 ranks, ended on 2: the weights of an undisturbed run" "$found"

# Ranks of one slot agree on stopping behind it: the step at hand is made, then all stop.
single=("${small[@]}" --gradient_accumulation_steps=3 --lr_schedule=wsd --lr_decay_iters=40)
ranks_begin 3 "${single[@]}" --max_iters=100000 --out_dir=single
await 60 has_made 3 single
kill -TERM "$(cat pid.1)"
ranks_end
stopped=$code
goal=$(($(updates single) + 2))
[ "$stopped" -eq 75 ] && [ -e "single/step-$(printf '%08d' $((goal - 2))).snap" ]
result $? "ranks of one slot stop with a snapshot of their last update"
ranks 3 "${single[@]}" --max_iters=$goal --init_from=resume --out_dir=single
found=$(weights)
ranks 0 "${single[@]}" --max_iters=$goal --out_dir=single-alone
same "and go on to the weights of an undisturbed run" "$found"

# ---- a missing event is seen -------------------------------------------------------------------------------
# Each step waits once for each bucket on the communication stream, and once for the last one on the other.
bucket_count=$(grep '"iter":0,' trace/trace.json | grep '"pid":0,' | grep -c '"name":"bucket ')
proof=("${small[@]}" --max_iters=1 --bucket_cap_mb=0.02 --check_interval=0)
ranks 0 "${proof[@]}" --out_dir=proof
right=$(weights)
# seen NAME N: without the Nth wait of each rank some order of streams gives other weights.
seen() {
    local seed found=1
    for ((seed = 1; seed <= 12 && found; seed++)); do
        rm -rf proof-dropped
        HOST_CUDA_SEED=$seed HOST_CUDA_DROP_WAIT=$2 ranks 2 "${proof[@]}" --out_dir=proof-dropped
        [ "$code" -ne 0 ] || [ "$(weights)" = "$right" ] || found=0
        [ $found -eq 1 ] || break
    done
    [ "$bucket_count" -gt 8 ] && [ -n "$right" ] && [ $found -eq 0 ]
    result $? "$1 (order $seed)"
}
seen "a bucket that does not wait for its gradients gives other weights" 1
seen "an update that does not wait for the buckets gives other weights" $((bucket_count + 1))
for seed in 1 2 3 4; do
    HOST_CUDA_SEED=$seed ranks 2 "${proof[@]}" --out_dir=proof-$seed
    same "with all of them the weights are right (order $seed)" "$right"
done

# ---- a rank is lost ----------------------------------------------------------------------------------------
lose() { # SIGNAL RANK
    local signal=$1 lost=$2
    lose_one "$signal" "$lost" "${long[@]}" --max_iters=100000 --snapshot_interval=1
    result $? "$launcher: SIG$signal on rank $lost: the others name it and what they were in, exit 76"
    goal=$(($(updates out) + 3))
    ranks 2 "${long[@]}" --max_iters=$goal --init_from=auto --out_dir=out
    found=$(weights)
    rm -rf undisturbed
    ranks 0 "${long[@]}" --max_iters=$goal --out_dir=undisturbed
    same "and 2 ranks go on to the right weights" "$found"
    rm -rf out
}
for launcher in $(printf '%s\n' $default tcp | uniq); do
    lose KILL 1
    lose STOP 2
done
lose STOP 0

# A network that swallows one bucket: all ranks live and wait.
echo 'export HOST_CUDA_NCCL_HANG=20' >rank-1.environment
ranks_begin 3 "${long[@]}" --max_iters=100000 --comm_timeout="$(scaled 2)" --out_dir=out
await 40 have_ended 3
ranks_end
grep -qE '^train_gpt2cu: .*stuck: all ranks are in bucket [0-9]+ of [0-9,]+ elements, for' stderr &&
    [ "$(cat status.0)$(cat status.1)$(cat status.2)" = 767676 ]
result $? "a bucket that never ends is named, and all ranks end with 76"
rm -rf out

# One that leads nowhere: NCCL waits for ever for the ranks to meet.
echo 'export HOST_CUDA_NCCL_HANG=-1' >rank-1.environment
ranks_begin 3 "${long[@]}" --max_iters=100000 --comm_timeout="$(scaled 2)" --out_dir=out
await 40 have_ended 3
ranks_end
grep -qE "^train_gpt2cu: .*stuck: all ranks are in NCCL's connecting, for" stderr &&
    [ "$(cat status.0)$(cat status.1)$(cat status.2)" = 767676 ]
result $? "a NCCL that does not connect is named, and all ranks end with 76"
rm -rf out rank-1.environment
launcher=$default

# The GPU of one rank fails: which one it was, and no word of snapshots that only rank 0 knows of.
echo 'export HOST_CUDA_FAIL_AT=600' >rank-1.environment
ranks 3 "${long[@]}" --max_iters=100000 --snapshot_interval=1 --out_dir=out
[ "$code" -eq 76 ] && [ "$(grep -c '^train_gpt2cu: ' stderr)" -eq 1 ] && [ -n "$(ls out/*.snap)" ] &&
    grep -qE '^train_gpt2cu: \[rank 1 .*\] GPU fault: .*; run again to go on from the newest snapshot$' stderr
result $? "a fault of one rank's GPU ends all with 76 and one line, which names the rank"
rm -rf out rank-1.environment

# ---- GPUs and NCCLs that do not fit ------------------------------------------------------------------------
# refused NAME N EXPECTED ARGUMENTS...: N ranks; exit 1, and one line, which has EXPECTED.
refused() {
    local name=$1 N=$2 expected=$3
    shift 3
    ranks "$N" "${small[@]}" --out_dir=refused "$@"
    [ "$code" -eq 1 ] && [ "$(grep -c '^train_gpt2cu: ' stderr)" -eq 1 ] && grep -qE "$expected" stderr
    result $? "$name"
    rm -rf refused
}
HOST_CUDA_DEVICES=2 refused "more ranks than GPUs are refused, with the numbers" 3 \
    'expected a GPU for each rank, found 2 GPUs and 3 ranks, of which 2 would share one .*; start fewer ranks'
ranks 0 "${small[@]}" --out_dir=unshared
alone=$(weights)
HOST_CUDA_DEVICES=1 ranks 2 "${small[@]}" --share_gpus=true --out_dir=shared
same "share_gpus=true lets two ranks share one" "$alone"
echo --share_gpus=true >rank-1.options
refused "ranks of which one would share are told so before they look for GPUs" 3 \
    'rank 1 has "share_gpus":true, rank 0 has "share_gpus":false; start all ranks with the same options'
rm rank-1.options
HOST_CUDA_MEMORY_MB=1700 ranks 2 "${small[@]}" --reduce=bf16 --bucket_cap_mb=4096 --out_dir=wire
[ "$code" -eq 0 ] && [ -n "$(weights)" ]
result $? "buckets in bf16 take no more memory than there is to sum"
echo 'export HOST_CUDA_MEMORY_MB=20' >rank-1.environment
refused "not enough memory on one rank: it is named" 3 '\[rank 1 .*\] out of memory: the model needs'
rm rank-1.environment
HOST_CUDA_NCCL=missing refused "no NCCL: said, with the way out" 2 'expected NCCL.*found none'
HOST_CUDA_NCCL=missing ranks 1 "${small[@]}" --out_dir=needs-none
[ "$code" -eq 0 ] && [ -n "$(weights)" ]
result $? "one rank needs no NCCL"
echo 'export HOST_CUDA_NCCL=21803' >rank-1.environment
refused "NCCLs that differ are named, with their ranks" 3 'rank 1 has NCCL 21803, rank 0 has NCCL 22703'
rm rank-1.environment
echo 'export HOST_CUDA_CUBLASLT=130100' >rank-1.environment
ranks 2 "${small[@]}" --max_iters=1 --out_dir=kinds
[ "$code" -eq 0 ] && grep -qE '^notice: rank 1 computes on another kind of device.* than rank 0' stdout
result $? "libraries of other versions on some ranks are told of"
rm rank-1.environment
ranks 2 "${small[@]}" --max_iters=1 --out_dir=kinds-2
[ "$code" -eq 0 ] && ! grep -q '^notice: rank' stdout
result $? "and nothing is said where they are the same"
end_of_tests
