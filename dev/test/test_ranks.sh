#!/usr/bin/env bash
# The same run at any number of ranks: the same weights bit for bit, whatever the buckets, the threads and the
# launcher; runs that stop and go on with other numbers of ranks; ranks that do not agree are named.
#   PROGRAMS=build/mpi1 dev/test/test_ranks.sh        prints TAP
set -u
. "$(dirname "$0")/ranks.bash"

# Large enough that the caps cut it differently: 2.9 MB of sums in buckets of 0.1, 1, and 1 then 25 MB.
wide=("${small[@]}" --n_layer=3 --n_embd=96 --batch_size=1 --dropout=0.1 --max_iters=4)

# ---- any number of ranks -----------------------------------------------------------------------------------
for dtype in fp32 bf16; do
    ranks 0 "${wide[@]}" --dtype=$dtype --out_dir=$dtype-alone
    alone=$(weights)
    [ "$code" -eq 0 ] && [ -n "$alone" ]
    result $? "$dtype: without a launcher"
    caps=(25 0.1 1)
    for N in 1 2 3 4 5 7 8; do # 9 slots, which 2, 4, 5, 7 and 8 do not divide
        cap=${caps[N % 3]}
        ranks $N "${wide[@]}" --dtype=$dtype --bucket_cap_mb=$cap --threads=$((1 + N % 2)) --out_dir=$dtype-$N
        same "$dtype: $N ranks, bucket_cap_mb=$cap, threads=$((1 + N % 2)): the same weights" "$alone"
    done
    for cap in 0.1 1 25; do
        for threads in 1 2; do
            ranks 3 "${wide[@]}" --dtype=$dtype --bucket_cap_mb=$cap --threads=$threads \
                --out_dir=$dtype-$cap-$threads
            same "$dtype: 3 ranks, bucket_cap_mb=$cap, threads=$threads: the same weights" "$alone"
        done
    done
    ranks 2 "${wide[@]}" --dtype=$dtype --overlap=false --out_dir=$dtype-late
    same "$dtype: buckets after backward: the same weights" "$alone"
    default=$launcher
    launcher=tcp
    for N in 2 5; do
        ranks $N "${wide[@]}" --dtype=$dtype --bucket_cap_mb=0.1 --check_interval=1 --out_dir=$dtype-tcp-$N
        same "$dtype: $N ranks over TCP: the same weights" "$alone"
    done
    launcher=$default
done

# The log must not depend on ranks either, times apart.
numbers() {
    grep -E '"event":"(step|eval)"' "$1/log.jsonl" |
        sed -E 's/,"([a-z_]*ms|tok_per_s|mfu|slowest_[a-z]+)":[^,}]*//g'
}
evaluated=("${wide[@]}" --eval_interval=2 --eval_iters=3 --snapshot_interval=4)
ranks 0 "${evaluated[@]}" --out_dir=log-alone
ranks 5 "${evaluated[@]}" --out_dir=log-5
[ "$code" -eq 0 ] && [ "$(grep -c '"event":"eval"' log-5/log.jsonl)" -eq 3 ] &&
    [ "$(numbers log-5)" = "$(numbers log-alone)" ]
result $? "losses, norms and evaluations are those of one rank"
ranks 0 "${evaluated[@]}" --out_dir=log-alone --init_from=resume --export_llmc=model.bin
for N in 0 7 11; do
    ranks $N "${evaluated[@]}" --eval_iters=0 --eval_only=true --init_from=model.bin --out_dir=eval-$N
    grep '^step 0' stdout >eval-$N.line
done
[ -s eval-0.line ] && cmp -s eval-0.line eval-7.line && cmp -s eval-0.line eval-11.line
result $? "eval_only gives the same losses on any number of ranks"
is_open() {
    grep -q '^model: ' stdout
}
for options in "--eval_only=true --eval_iters=0 --block_size=1 --batch_size=1" \
    "--sample_only=true --init_from=log-alone/step-00000004.snap --max_new_tokens=1000000000"; do
    for rank in 0 2; do
        # shellcheck disable=SC2086
        ranks_begin 3 "${evaluated[@]}" --out_dir=cut $options
        await 60 is_open
        kill -TERM "$(cat pid.$rank)"
        ranks_end
        [ "$code" -eq 75 ] && ! grep -q '^step 0' stdout
        result $? "$options: cut short by a signal to rank $rank is not done, but 75"
    done
done
ranks 10 "${wide[@]}" --out_dir=ten
[ "$code" -eq 1 ] && grep -q 'gradient_accumulation_steps=9: expected at least the number of ranks, 10' \
    stderr &&
    [ ! -e ten ]
result $? "more ranks than slots are refused, with the numbers"

# ---- reductions that give the promise up -------------------------------------------------------------------
for reduce in fp32 bf16; do
    ranks 3 "${wide[@]}" --reduce=$reduce --check_interval=1 --bucket_cap_mb=0.1 --out_dir=reduce-$reduce
    [ "$code" -eq 0 ] && [ -n "$(weights)" ] &&
        grep -q 'reduce is not exact: weights depend on the number of ranks' stdout
    result $? "reduce=$reduce runs on 3 ranks, and says what it gives up"
done

# ---- what a step tells -------------------------------------------------------------------------------------
ranks 3 "${wide[@]}" --trace=2 --bucket_cap_mb=0.1 --out_dir=trace
[ "$code" -eq 0 ] &&
    [ "$(grep -cE '"event":"step".*"compute_ms":[0-9.e-]+.*"comm_ms":[0-9.e-]*[1-9].*"exposed_ms":' \
    trace/log.jsonl)" -eq 4 ]
result $? "log.jsonl has compute_ms, comm_ms and exposed_ms"
# 200,000 tokens are 12,499 windows of 16 and the next; 18 of them an update.
ranks 0 "${small[@]}" --max_epochs=0.01 --eval_interval=100 --eval_iters=1 --out_dir=epochs
[ "$code" -eq 0 ] && [ "$(updates epochs)" -eq 7 ] && grep -qE '^iter 6: .*, epoch 0.01' stdout &&
    grep -q '"iter":6,.*"epoch":0.01008' epochs/log.jsonl
result $? "max_epochs=0.01 ends with the update that completes a hundredth of an epoch"
ranks 2 "${small[@]}" --max_epochs=0.01 --max_iters=3 --out_dir=epochs-3
[ "$code" -eq 0 ] && [ "$(updates epochs-3)" -eq 3 ]
result $? "where max_iters is less, that counts"
python3 - trace/trace.json <<'END'
import collections, json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
names = collections.defaultdict(set)
for event in events:
    if event["ph"] == "X":
        assert event["dur"] >= 0 and event["ts"] >= 0 and event["args"]["iter"] in (0, 1), event
        names[event["pid"], event["tid"]].add(event["name"])
threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
ranks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
assert ranks == {r: "rank %d" % r for r in range(3)}, ranks
assert len(threads) == 9, threads
for (pid, tid), thread in threads.items():
    found = names[pid, tid]
    if thread == "communication":
        buckets = {n for n in found if n.startswith("bucket ")}
        assert len(buckets) > 20 and "bucket 0" in buckets and "tail" in found and "late rows" in found, found
    else:
        wanted = {"load"}
        if thread == "training":
            wanted = {"slot", "wait", "update", "backward ln_f"}
            wanted |= {"backward block %d" % l for l in range(3)}
        assert wanted <= found, wanted - found
buckets = [e for e in events if e["name"].startswith("bucket")]
sent = [sum(e["args"]["bytes"] for e in buckets if e["pid"] == r) for r in range(3)]
assert sent[0] == sent[1] == sent[2] > 2 * 2.5e6, sent
END
result $? "the trace is JSON, with a row for each rank and thread, blocks and buckets"

# ---- rank 0 alone ------------------------------------------------------------------------------------------
ranks_begin 3 "${wide[@]}" --max_iters=1 --num_samples=100000000 --comm_timeout="$(scaled 1)" \
    --out_dir=alone
await 60 has_made 0 alone
sleep "$(scaled 4)" # longer than the others may wait in a collective
kill -0 "$job" && kill -TERM "$(cat pid.0)"
ranks_end
[ "$code" -eq 75 ] && [ ! -s stderr ] || { [ "$code" -eq 75 ] && ! grep -q '^train_gpt2: ' stderr; }
result $? "rank 0 samples for longer than comm_timeout: the others wait"

# ---- a rank that is slow -----------------------------------------------------------------------------------
# One rank gets a tenth of the time: the other has done its part of the update long before, and waits for
# several times comm_timeout in a collective.
# Both the limit and the work grow with the load of the machine.
slow=("${small[@]}" --gradient_accumulation_steps="$(scaled 2000)" --max_iters=2 --comm_timeout="$(scaled 1)")
ranks 0 "${slow[@]}" --out_dir=slow-alone
alone=$(weights)
ranks_begin 2 "${slow[@]}" --out_dir=slow
await 60 test -s pid.1
while kill -0 "$job" 2>/dev/null && kill -STOP "$(cat pid.1)" 2>/dev/null; do
    sleep 0.27
    kill -CONT "$(cat pid.1)"
    sleep 0.03
done
ranks_end
same "a rank that works slowly is waited for: the same weights" "$alone"
waited=$(sed -nE 's/.*"iter":0,.*"ms":([0-9]+).*"compute_ms":([0-9]+).*/\1 - \2/p' slow/log.jsonl)
echo "# waited ${waited:-nothing} ms, comm_timeout $(scaled 1) s"
[ $((waited)) -gt "$(scaled 1000)" ]
result $? "which took longer than comm_timeout"
grep -qE '"iter":1,.*"slowest_rank":1,"slowest_host":"[^"]+".*"slowest_backward_ms":[0-9.]+' slow/log.jsonl &&
    grep -qE '^iter 1: .*, slowest rank 1 \(.*\) [0-9]+ms' stdout
result $? "log and console name it as the slowest"

# ---- stop here, go on there --------------------------------------------------------------------------------
# A run that would go on for long is stopped by signals, as soon as it has made a few more updates, and ended
# some updates after the last stop. A run that nobody disturbed then goes as far.
long=("${small[@]}" --dropout=0.1 --bucket_cap_mb=0.1 --lr_schedule=wsd --lr_decay_iters=40)
stop() { # N:SIGNAL:WHO FOLDER
    local N signal who last
    IFS=: read -r N signal who <<<"$1"
    ranks_begin "$N" "${long[@]}" --max_iters=100000 --init_from=auto --out_dir="$2"
    await 60 has_made $(($(updates "$2") + 3)) "$2"
    if [ "$who" = mpirun ]; then
        kill -"$signal" "$(leader)"
    else
        kill -"$signal" "$(cat "pid.$who")"
    fi
    ranks_end
    last=$(tail -n 1 "$2/log.jsonl")
    [ "$code" -eq 75 ] && [[ $last == *'"reason":"signal"'* ]] &&
        [ -e "$2/step-$(printf %08d "$(updates "$2")").snap" ]
}
chain() { # FOLDER N:SIGNAL:WHO... N
    local folder=$1 name="" bad=0 goal
    shift
    while [ $# -gt 1 ]; do
        name+="$1, "
        stop "$1" "$folder" || { bad=1; echo "# $1: exit code $code"; sed 's/^/# /' stderr; }
        shift
    done
    goal=$(($(updates "$folder") + 5))
    ranks "$1" "${long[@]}" --max_iters=$goal --init_from=resume --out_dir="$folder"
    local found=$(weights)
    [ "$code" -eq 0 ] || bad=1
    ranks 0 "${long[@]}" --max_iters=$goal --out_dir="$folder-undisturbed"
    [ $bad -eq 0 ] && [ -n "$found" ] && [ "$(weights)" = "$found" ] &&
        [ "$(numbers "$folder")" = "$(numbers "$folder-undisturbed")" ]
    result $? "stopped at ${name}ended at $1: the weights and the log of an undisturbed run"
}
somebody=mpirun
[ $launcher = mpirun ] || somebody=0
chain down 4:TERM:2 3:USR1:$somebody 1
chain up 0:INT:0 5:TERM:4 2

# An update of 100,000 slots a rank. A signal to one rank ends all after the slot that they are at. The first
# evaluation tells that all ranks have begun; before, a signal would end them without a snapshot.
slots=("${small[@]}" --gradient_accumulation_steps=300000 --block_size=64 --max_iters=1 --eval_interval=1
    --eval_iters=1)
has_begun() {
    grep -q '^step 0: ' stdout
}
for rank in 0 2; do
    ranks_begin 3 "${slots[@]}" --out_dir=slots-$rank
    await 60 has_begun
    kill -TERM "$(cat pid.$rank)"
    ranks_end
    [ "$code" -eq 75 ] && [ -e slots-$rank/step-00000000.snap ]
    result $? "a signal to rank $rank ends all ranks within an update"
done

# ---- ranks that do not agree -------------------------------------------------------------------------------
# disagree NAME EXPECTED ARGUMENTS...: 3 ranks; exit 1, one line, which has EXPECTED.
disagree() {
    local name=$1 expected=$2
    shift 2
    ranks 3 "$@"
    [ "$code" -eq 1 ] && [ "$(grep -c '^train_gpt2: ' stderr)" -eq 1 ] && grep -qE -- "$expected" stderr
    result $? "$name"
    rm -rf rank-* out
}
echo --learning_rate=0.5 >rank-1.options
disagree "another option is named" 'rank 1 has "learning_rate":0\.5, rank 0 has "learning_rate":0\.003' \
    "${small[@]}" \
    --max_iters=3
echo --seed=7 >rank-2.options
disagree "another seed is named" 'rank 2 has "seed":7, rank 0 has "seed":1337' "${small[@]}" --max_iters=3
# Machines of their own: the same paths, other files.
machines() {
    local rank
    for rank in 0 1 2; do
        mkdir rank-$rank
        cp -r data "$@" rank-$rank
    done
}
machines
head -c 300000 data/train.bin >rank-2/data/train.bin
disagree "other training data are named" 'rank 2 differs from rank 0 in the training data' "${small[@]}" \
    --max_iters=3
ranks 0 "${small[@]}" --max_iters=4 --snapshot_interval=2 --out_dir=out --export_llmc=model.bin
final=$(weights)
machines model.bin
printf '\1' | dd of=rank-1/model.bin bs=1 seek=3001 conv=notrunc status=none
disagree "a weight that is off by a bit is named" 'rank 1 differs from rank 0 in the weights at start' \
    "${small[@]}" \
    --init_from=model.bin --max_iters=3
ranks 0 "${small[@]}" --max_iters=4 --snapshot_interval=2 --out_dir=out
ranks 0 "${small[@]}" --seed=7 --max_iters=4 --snapshot_interval=2 --out_dir=other
machines out
cp other/step-00000004.snap rank-2/out
disagree "a machine with another run's snapshot is named" \
    'rank 2 differs from rank 0 in the weights at start' "${small[@]}" --init_from=resume --max_iters=6

# Memory that goes bad on one rank. With learning_rate=0 no update hides what is changed: one bit in each of
# the first eight rows of wte, wherever the rank keeps all of them one after the other. While the rank is
# stopped; and in eight rows, because an update that was stopped half way may write one of them back.
frozen=("${small[@]}" --learning_rate=0 --min_lr=0 --max_iters=100000 --check_interval=2 --export_hf=hf)
ranks 0 "${frozen[@]}" --max_iters=0 --out_dir=frozen
cat >change_weights.py <<'END'
import json, os, signal, struct, sys, time
ROWS = 8
pid = int(sys.argv[1])
with open("hf/model.safetensors", "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    wte = [header[name] for name in header if name.endswith("wte.weight")][0]
    file.seek(wte["data_offsets"][0], 1)
    row_bytes = wte["shape"][1] * 4
    rows = file.read(ROWS * row_bytes)
assert len(rows) == ROWS * row_bytes > 500
try:
    memory = open("/proc/%d/mem" % pid, "r+b", 0)
except PermissionError as error:
    sys.exit(print("#", error) or 77)
os.kill(pid, signal.SIGSTOP)
try:
    while open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] not in "Tt":
        time.sleep(0.001)
    copies = 0
    for line in open("/proc/%d/maps" % pid):
        place, rights, *_ = line.split()
        low, high = (int(word, 16) for word in place.split("-"))
        try:
            memory.seek(low)
            is_state = rights.startswith("rw") and high - low < 1 << 32 # sanitizers map more
            content = memory.read(high - low) if is_state else b""
        except (OSError, OverflowError):
            continue # not memory
        found = content.find(rows)
        while found >= 0:
            copies += 1
            for row in range(ROWS):
                memory.seek(low + found + row * row_bytes)
                memory.write(bytes([rows[row * row_bytes] ^ 1]))
            found = content.find(rows, found + 1)
finally:
    os.kill(pid, signal.SIGCONT)
sys.exit(0 if copies else "no such weights in memory")
END
ranks_begin 3 "${frozen[@]}" --out_dir=frozen
await 60 has_made 3 frozen
python3 change_weights.py "$(cat pid.1)"
changed=$?
if [ $changed -eq 77 ]; then
    echo "# no right to change a rank's memory: its case is left out"
    kill -KILL -- -"$job"
    ranks_end
else
    await 60 false # until the ranks have ended
    ! kill -0 "$job" 2>/dev/null || kill -KILL "$(leader)" # they have noticed nothing
    ranks_end
    [ $changed -eq 0 ] && [ "$code" -eq 1 ] && [ "$(grep -c '^train_gpt2: ' stderr)" -eq 1 ] &&
        grep -qE '^train_gpt2: .*\] rank 1 differs from rank 0 in the weights after [0-9]+ updates' stderr
    result $? "a weight that changes in one rank's memory is named at the next check"
fi

end_of_tests
