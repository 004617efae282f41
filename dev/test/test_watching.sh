#!/usr/bin/env bash
# How a run is watched: the status line on a terminal and nowhere else, and the curves for TensorBoard.
#   PROGRAMS=build/mpi1 dev/test/test_watching.sh        prints TAP
set -u
. "$(dirname "$0")/ranks.bash"
screen=$root/dev/test/screen.py
run=("${small[@]}" --block_size=32 --log_interval=5 --eval_interval=10 --eval_iters=2 --snapshot_interval=10)

# terminal [NAME=VALUE ..] COMMAND..: in a terminal of 100 columns; what it gets is in the file pty, its exit
# code in $code.
terminal() {
    printf -v command '%q ' "$@"
    TERM=xterm timeout "$(scaled 60)" script -qefc "stty cols 100; exec env $command" /dev/null \
        </dev/null >pty 2>&1
    code=$?
}

# What differs from run to run is made the same.
without_times() {
    sed -E -e 's/[0-9.]+ms/ms/g; s/[0-9,]+ tok/tok/; s/, [0-9hdms ]+ left//; s/out_dir=[a-z0-9]*//' -e \
        '/^snapshot /d'
}

# ---- the status line ---------------------------------------------------------------------------------------
ranks 0 "${run[@]}" --max_iters=30 --out_dir=plain
without_times <stdout >plain.lines
! grep -q $'[\033\r]' stdout stderr && [ "$code" -eq 0 ]
result $? "no status line in a pipe"
terminal ./train_gpt2 "${run[@]}" --max_iters=30 --out_dir=shown
line='^[0-9]+ of 30 updates, loss [0-9.]+(, [0-9]+s left)?, [0-9,]+ tok/s, snapshot in [0-9]+ updates'
[ "$code" -eq 0 ] && [ "$(tr '\r' '\n' <pty | grep -cE "$line")" -ge 6 ] && grep -q 'evaluating \.\.' pty
result $? "a status line on a terminal"
python3 "$screen" 100 <pty >stdout && without_times <stdout | diff - plain.lines >stderr
result $? "what stays there is what a pipe gets"
terminal TERM=dumb ./train_gpt2 "${run[@]}" --max_iters=10 --out_dir=dumb
dumb=$code$(grep -c $'\033' pty)
terminal ./train_gpt2 "${run[@]}" --max_iters=10 --out_dir=off --status_line=false
[ "$dumb" = 00 ] && [ "$code" -eq 0 ] && ! grep -q $'\033' pty
result $? "none where TERM is dumb, nor with --status_line=false"
terminal bash -c 'stty cols 30; exec ./train_gpt2 "$@"' bash "${run[@]}" --max_iters=30 --out_dir=narrow
python3 "$screen" 30 <pty >stdout 2>stderr && [ "$code" -eq 0 ] && grep -q 'of 30 updates, loss' pty &&
    ! grep -q 'tok/s, snapshot' pty
result $? "a narrow terminal gets as much of it as fits"
# The group of processes that a shell with job control starts by & is in the background.
terminal bash -c 'set -m; ./train_gpt2 "$@" & wait $!' bash "${run[@]}" --max_iters=30 --out_dir=behind
[ "$code" -eq 0 ] && grep -q '^weights' pty && ! grep -q $'\033' pty
result $? "none from the background"

# stopped COMMAND..: a run on a terminal; once it has come some way, the command, and then SIGINT.
stopped() {
    rm -rf out gone pty pid
    terminal bash -c 'echo $$ >pid.new && mv pid.new pid; exec ./train_gpt2 "$@"' bash "${run[@]}" \
        --max_iters=1000000 --lr_schedule=constant --eval_interval=0 --out_dir=out &
    job=$!
    await 60 has_made 20 out && "$@" && kill -INT "$(cat pid)"
    wait $job
    code=$?
    job=
}
stopped true
python3 "$screen" 100 <pty >stdout 2>stderr && tail -n 1 stdout | grep -qE '^weights [0-9a-f]{16}$' &&
    ! grep -q 'of 1,000,000' stdout && grep -q 'of 1,000,000' pty
result $? "a signal: the line is gone at the end"
# Snapshots fail where a file takes the place of their folder.
lose_folder() {
    mv out gone && : >out && await 60 grep -q 'the run goes on without this snapshot' pty
}
stopped lose_folder
python3 "$screen" 100 <pty >stdout 2>stderr && ! grep -q 'of 1,000,000' stdout &&
    grep -q '^train_gpt2: .*the run goes on without this snapshot' stdout
result $? "the line makes room for what goes wrong meanwhile"
# A token in the second update is none: the error has a line of its own.
{ head -c 1600 data/train.bin; printf '\377\377'; head -c 400 data/train.bin; } >bad.bin
terminal ./train_gpt2 "${run[@]}" --shuffle=false --train_data=bad.bin --eval_interval=0 --max_iters=1000 \
    --log_interval=0 --out_dir=bad
python3 "$screen" 100 <pty >stdout 2>stderr && [ "$code" -eq 1 ] && grep -q 'of 1,000 updates' pty &&
    grep -q '^train_gpt2: bad.bin: token' stdout && ! grep -q 'of 1,000 updates' stdout
result $? "an error: the line is gone before it"
if [ $launcher = mpirun ]; then
    terminal mpirun "${mpirun_options[@]}" -np 2 ./train_gpt2 "${run[@]}" --max_iters=10 \
        --out_dir=two --tensorboard=true
    [ "$code" -eq 0 ] && grep -q '^weights' pty && ! grep -q $'\033' pty &&
        [ "$(ls two | grep -c '^events.out.tfevents')" -eq 1 ]
    result $? "none under mpirun, and one file for TensorBoard"
fi

# ---- TensorBoard -------------------------------------------------------------------------------------------
board=("${run[@]}" --log_interval=1 --tensorboard=true --out_dir=board --lr_schedule=constant)
ranks 0 "${board[@]}" --max_iters=17
rm board/step-00000017.snap # as after a crash
ranks 0 "${board[@]}" --max_iters=25 --init_from=resume
[ "$code" -eq 0 ] && [ "$(ls board | grep -c '^events.out.tfevents.[0-9]*.[^.]*')" -eq 2 ] &&
    grep -q 'resuming board/step-00000010.snap' stdout
result $? "each process writes a file of its own"
python3 "$root/dev/test/read_events.py" board >read 2>stderr &&
    diff <(grep -E '^(train/loss|eval/val_loss) ' read) <(
        for i in 0 10 20 25; do
            grep "\"event\":\"eval\",\"iter\":$i," board/log.jsonl | tail -n 1 |
                sed -E 's/.*"iter":([0-9]+),.*"val_loss":([^}]+)}/eval\/val_loss \1 \2/'
        done
        for ((i = 0; i < 25; i++)); do
            grep "\"event\":\"step\",\"iter\":$i," board/log.jsonl | tail -n 1 |
                sed -E 's/.*"iter":([0-9]+),"loss":([^,]+),.*/train\/loss \1 \2/'
        done
    ) >>stderr
result $? "each update once, the later one, with the numbers of log.jsonl"
grep -q '^train/lr 24 ' read && grep -q '^train/norm 24 ' read && grep -q '^speed/tok_per_s 24 ' read
result $? "rate, norm and throughput"
ranks 0 "${run[@]}" --max_iters=25 --init_from=resume --out_dir=board --eval_only=true --tensorboard=true
[ "$code" -eq 0 ] && [ "$(ls board | grep -c '^events')" -eq 2 ]
result $? "eval_only writes none"

# ---- log.jsonl ---------------------------------------------------------------------------------------------
# What was written in all of these runs; dev/test/test_log_doc.sh looks at the sources.
python3 -c '
import json, sys
for line in sys.stdin:
    event = json.loads(line)
    for key in event:
        print(event["event"], key) if key != "event" else None
' < <(cat */log.jsonl | grep "}$") | sort -u >written
sed -nE 's/^\| `([a-z_]+)` \| `([a-z_]+)` \|.*/\1 \2/p' "$root/docs/log.md" | sort >documented
comm -23 written documented >stderr
[ ! -s stderr ] && [ "$(wc -l <written)" -ge 25 ]
result $? "every event and key is documented"
end_of_tests
