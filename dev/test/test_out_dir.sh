#!/usr/bin/env bash
# One run owns out_dir, others may read there; what lies there need not be what its name says; memory and
# stack that are small.
#   PROGRAMS=build/mpi1 dev/test/test_out_dir.sh        prints TAP
set -u
. "$(dirname "$0")/ranks.bash"

endless=(--max_iters=100000 --log_interval=1) # until something stops it

# alone NAME ARGUMENTS...: a run without a launcher beside the one in the background; its code in $own_code.
alone() {
    timeout "$(scaled 60)" ./train_gpt2 "$@" >own.stdout 2>own.stderr
    own_code=$?
}

# ---- two runs ----------------------------------------------------------------------------------------------
# As long as there are no snapshots, only the lock tells of the other run.
host=$(hostname)
for init in auto scratch; do
    ranks_begin 2 "${small[@]}" "${endless[@]}" --out_dir=out
    await 60 has_made 3 out
    alone "${small[@]}" "${endless[@]}" --init_from=$init --out_dir=out
    status=1
    [ $own_code -eq 1 ] && [ "$(wc -l <own.stderr)" -eq 1 ] &&
        grep -q "out: in use by process $(cat pid.0) on $host since 20" own.stderr && status=0
    kill -KILL -- -"$job"
    ranks_end
    [ $status -eq 0 ] && [ "$(grep -c '"event":"start"' out/log.jsonl)" -eq 1 ]
    result $? "a second run, init_from=$init, is refused and told who is first"
    ranks 0 "${small[@]}" --max_iters=2 --init_from=auto --out_dir=out
    [ $code -eq 0 ] && [ ! -e out/.lock ]
    result $? "what was killed holds nothing"
    rm -rf out
done

# Both begin at once, in a folder that is not there.
bad=0 refused=0
for turn in 1 2 3; do
    for one in a b; do
        ./train_gpt2 "${small[@]}" --max_iters=40 --init_from=auto --snapshot_interval=7 --out_dir=out/new \
            >stdout.$one 2>stderr.$one &
        eval "pid_$one=$!"
    done
    wait "$pid_a"; code_a=$?
    wait "$pid_b"; code_b=$?
    refused=$((refused + code_a + code_b))
    # One is refused: the other is at work, or has been. Or it comes later and repeats the last line.
    [ $((code_a + code_b)) -le 1 ] && [ "$(ls out/new | grep -c 'tmp\|damaged')" -eq 0 ] &&
        [ "$(grep -c '"event":"step"' out/new/log.jsonl)" -eq 40 ] || bad=1
    [ $((code_a + code_b)) -eq 0 ] ||
        cat stderr.a stderr.b | grep -q 'in use by process\|holds snapshots' || bad=1
    rm -rf out
done
[ $bad -eq 0 ]
result $? "of two that begin at once, one trains ($refused of 3 were refused)"

# ---- beside a run that trains ------------------------------------------------------------------------------
ranks_begin 0 "${small[@]}" "${endless[@]}" --snapshot_interval=1 --out_dir=out
await 60 has_made 5 out
touched=$(stat -c %Y out/.lock)
is_touched() {
    [ "$(stat -c %Y out/.lock)" -gt "$touched" ]
}
await 30 is_touched
result $? "a run that lives touches its lock"
alone --n_layer=x --out_dir=out
[ $own_code -eq 1 ] && [ ! -e out/.end ]
result $? "a mistake says nothing in the name of the run that lives there"
bad=0
for ((i = 0; i < 4; i++)); do # old ones are deleted all the while
    alone --out_dir=out --sample_only=true --num_samples=1 --max_new_tokens=5 --start=a
    [ $own_code -eq 0 ] || bad=1
done
[ $bad -eq 0 ] || cp own.stderr stderr
result $bad "sample_only beside it"
alone "${small[@]}" --out_dir=out --init_from=resume --eval_only=true --eval_iters=1
[ $own_code -eq 0 ] && grep -q '^step ' own.stdout && grep -q 'log.jsonl is not written' own.stdout &&
    ! grep -q '"event":"eval"' out/log.jsonl && [ "$(grep -c '"event":"start"' out/log.jsonl)" -eq 1 ]
result $? "eval_only beside it leaves its log alone"
alone "${small[@]}" --out_dir=out --init_from=resume --max_iters=1 --export_hf=exported
[ $own_code -eq 0 ] && [ -s exported/model.safetensors ]
result $? "an export beside it"
touch out/step-00000001.snap.tmp.0123456789abcdef
alone "${small[@]}" --out_dir=out --init_from=resume --max_iters=100000
[ $own_code -eq 1 ] && grep -q 'in use by process' own.stderr &&
    [ -e out/step-00000001.snap.tmp.0123456789abcdef ]
result $? "a run that would train is refused, and removes nothing"
kill -USR1 "$(leader)"
ranks_end
[ $code -eq 75 ] && [ ! -e out/.lock ]
result $? "which did not disturb the first"
rm -rf out

# ---- what is there under a snapshot's name -----------------------------------------------------------------
ranks 0 "${small[@]}" --max_iters=4 --snapshot_interval=2 --out_dir=out
for kind in 'mkfifo' 'mkdir' 'ln -s nowhere'; do
    $kind out/step-00000008.snap
    limit_s=20 ranks 0 "${small[@]}" --max_iters=6 --init_from=auto --out_dir=out
    [ $code -eq 1 ] && grep -q 'step-00000008.snap: expected a regular file, found' stderr &&
        [ "$(ls out | grep -c '^step')" -eq 3 ]
    result $? "$kind: an error at once, and nothing is set aside"
    rm -r out/step-00000008.snap
done
rm -f out/log.jsonl && mkfifo out/log.jsonl
limit_s=20 ranks 0 "${small[@]}" --max_iters=6 --init_from=auto --out_dir=out
[ $code -eq 1 ] && grep -q 'log.jsonl: expected a regular file, found a FIFO' stderr
result $? "a FIFO instead of log.jsonl"
rm -rf out
mkfifo fifo.bin
limit_s=20 ranks 0 "${small[@]}" --train_data=fifo.bin --out_dir=out
[ $code -eq 1 ] && grep -q 'fifo.bin: expected a regular file, found a FIFO' stderr
result $? "a FIFO instead of data"

# ---- small memory ------------------------------------------------------------------------------------------
# Whatever the limit: a run that makes an update has the memory for its snapshots.
large=("${small[@]}" --n_embd=192 --n_layer=3 --max_iters=2 --gradient_accumulation_steps=1)
bad=0 began=0 live=0
for ((mib = 100; mib <= 400; mib += 20)); do
    (ulimit -v $((mib << 10)) && exec ./train_gpt2 "${large[@]}" --snapshot_interval=1 --out_dir=memory) \
        >stdout 2>stderr
    if grep -q '^iter' stdout; then
        began=$((began + 1))
        grep -q "^notice: snapshots are written from the model's own memory" stdout && live=$((live + 1))
        [ -e memory/step-00000002.snap ] || { bad=1; echo "# $mib MiB:"; tail -n 3 stdout stderr; }
    fi
    rm -rf memory
done
echo "# of 16 limits $began were enough to begin, $live of them too little for a copy"
[ $bad -eq 0 ] && [ $began -gt 0 ]
result $? "limits on addresses: what begins can save"

# The same with a limit on pages, by which the kernel kills. Only root may make a cgroup.
group=
for root_group in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    if mkdir "$root_group/llmc-test-$$" 2>/dev/null; then
        group=$root_group/llmc-test-$$
        limit_file=$group/memory.limit_in_bytes
        [ -e "$limit_file" ] || limit_file=$group/memory.max
        [ -w "$limit_file" ] && break
        rmdir "$group"
        group=
    fi
done
if [ -n "$group" ]; then
    # n_embd=1024: a copy takes 154 MB, much more than what is not counted.
    large=("${small[@]}" --n_embd=1024 --n_layer=1 --max_iters=2 --gradient_accumulation_steps=1)
    bad=0 began=0 live=0
    for mib in 220 280 340 400 520 640; do
        echo $((mib << 20)) >"$limit_file"
        (echo $BASHPID >"$group/cgroup.procs" &&
            exec ./train_gpt2 "${large[@]}" --snapshot_interval=1 --out_dir=memory) >stdout 2>stderr
        if grep -q '^iter' stdout; then
            began=$((began + 1))
            grep -q "^notice: snapshots are written from the model's own memory" stdout && live=$((live + 1))
            [ -e memory/step-00000002.snap ] || { bad=1; echo "# $mib MiB:"; tail -n 3 stdout stderr; }
        fi
        rm -rf memory
    done
    rmdir "$group"
    echo "# of 6 limits $began were enough to begin, $live of them too little for a copy"
    [ $bad -eq 0 ] && [ $began -gt 0 ] && [ $live -gt 0 ]
    result $? "limits of a cgroup: what begins can save"
else
    echo "# no right to make a cgroup: its case is left out"
fi

# ---- a small stack -----------------------------------------------------------------------------------------
bad=0
for kib in 200 100; do
    for arguments in "--max_iters=2 --eval_iters=1" "--max_iters=4 --init_from=resume --eval_iters=1" \
        "--sample_only=true --num_samples=1 --max_new_tokens=5 --start=a" \
        "--init_from=resume --max_iters=1 --export_hf=small" "--init_from=small --max_iters=1"; do
        out=stack
        [ "$arguments" != "--init_from=small --max_iters=1" ] || out=other
        (ulimit -s $kib && exec ./train_gpt2 "${small[@]}" --threads=2 --eval_interval=2 \
            --snapshot_interval=2 $arguments --out_dir=$out) >stdout 2>stderr ||
            { bad=1; echo "# $kib KiB: $arguments: $?"; }
    done
    rm -rf stack other small
done
result $bad "a main stack of 100 KiB is enough"
end_of_tests
