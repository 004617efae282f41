#!/usr/bin/env bash
# Training as a whole: the losses and norms that PyTorch finds in the same thirty updates, and the same
# weights to the bit whatever the threads and wherever the run was stopped, in both precisions and for one
# slot or many.
#   PROGRAMS=build/mpi1 dev/test/test_training.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
programs=$(cd "${PROGRAMS:-.}" && pwd)
reference=$(cd "$(dirname "$0")/../reference" && pwd)
training=$(cd "$(dirname "$0")/training" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# The recipe of dev/reference/train_reference.py.
recipe=(--init_from="$reference/heads_of_7" --train_data="$training/tokens.bin" --eval_interval=0
    --shuffle=false --batch_size=4 --block_size=32 --gradient_accumulation_steps=3 --max_iters=30
    --learning_rate=3e-3 --min_lr=3e-4 --warmup_iters=5 --lr_decay_iters=25 --weight_decay=0.1 --beta1=0.9
    --beta2=0.95 --grad_clip=0.42 --snapshot_interval=0)

# run OUT ARGUMENTS...: a run into a fresh folder OUT; its exit code in $code, its last line in $weights.
run() {
    local out=$1
    shift
    timeout "$(scaled 120)" "$programs/train_gpt2" "${recipe[@]}" --out_dir="$out" "$@" >stdout 2>stderr
    code=$?
    weights=$(tail -n 1 stdout | grep -E '^weights [0-9a-f]{16}$')
}

# steps OUT: iter, loss, norm and lr of each update.
steps() {
    sed -n 's/.*"event":"step","iter":/"iter":/p' "$1/log.jsonl" |
        sed -n 's/"iter":\([0-9]*\),"loss":\([^,]*\),"lr":\([^,]*\),"norm":\([^,]*\),.*/\1 \2 \4 \3/p'
}

# agrees OUT LOSS NORM: every update within these relative distances of PyTorch's; says the largest of each.
agrees() {
    steps "$1" | paste -d' ' - "$training/expected.txt" | awk -v loss="$2" -v norm="$3" '
        function distance(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / b }
        NF != 8 || $1 != $5 { print "# line " NR ": " $0; bad = 1 }
        { l = distance($2, $6); n = distance($3, $7); r = distance($4, $8) }
        l > worst_loss { worst_loss = l }
        n > worst_norm { worst_norm = n }
        l > loss || n > norm || r > 1e-6 { print "# update " $1 ": " $0; bad = 1 }
        END { print "# largest distance: loss " worst_loss ", norm " worst_norm; exit bad || NR != 30 }'
}

for level in "" x86-64-v2; do
    export CPU_LEVEL=$level
    run "level$level" --dtype=fp32
    if ! grep -q "CPU_LEVEL=$level: expected" stderr; then
        agrees "level$level" 2e-5 1e-3
        result $? "30 updates agree with PyTorch's in fp32 ${level:+on $level}"
    fi
done
unset CPU_LEVEL
run bf16 --dtype=bf16
# 2^-8 is what one rounding to bf16 may be off; a mean over 384 tokens and whole tensors stays below it.
agrees bf16 0.0039 0.04
result $? "30 updates in bf16 stay near PyTorch's in fp32"

for dtype in fp32 bf16; do
    for slots in 1 4; do
        same=("--dtype=$dtype" "--gradient_accumulation_steps=$slots" --dropout=0.1 --shuffle=true)
        run one-$dtype-$slots "${same[@]}" --threads=1
        expected=$weights
        for threads in 2 3; do
            run threads-$dtype-$slots-$threads "${same[@]}" --threads=$threads
            [ $code -eq 0 ] && [ -n "$weights" ] && [ "$weights" = "$expected" ]
            result $? "$dtype, G=$slots: $threads threads give the weights of one"
        done
        run part-$dtype-$slots "${same[@]}" --threads=1 --max_iters=11 --snapshot_interval=11
        run part-$dtype-$slots "${same[@]}" --threads=2 --init_from=auto
        [ $code -eq 0 ] && [ -n "$weights" ] && [ "$weights" = "$expected" ]
        result $? "$dtype, G=$slots: stopped after 11 updates, resumed on other threads: the same weights"
    done
done

# A run that is stopped again and again, wherever it happens to be, ends as one that never was.
long=(--max_iters=800 --lr_decay_iters=800 --log_interval=100 --shuffle=true --threads=2)
for dtype in fp32 bf16; do
    run whole-$dtype "${long[@]}" --dtype=$dtype
    expected=$weights
    stops=0
    tries=0
    initial=$reference/heads_of_7
    code=75
    while [ $code -eq 75 ] && [ $tries -lt 30 ]; do
        tries=$((tries + 1))
        : >stdout
        "$programs/train_gpt2" "${recipe[@]}" --out_dir=stopped-$dtype "${long[@]}" --dtype=$dtype \
            --init_from="$initial" >stdout 2>stderr &
        pid=$!
        deadline=$((SECONDS + $(scaled 60)))
        until grep -q '^iter ' stdout || ! kill -0 $pid 2>/dev/null || [ $SECONDS -ge $deadline ]; do
            sleep 0.02 # let it make some updates first, then stop it
        done
        [ $tries -gt 4 ] || kill -TERM $pid 2>/dev/null
        wait $pid
        code=$?
        [ $code -ne 75 ] || stops=$((stops + 1))
        initial=resume
    done
    weights=$(tail -n 1 stdout | grep -E '^weights [0-9a-f]{16}$')
    echo "# stopped $stops times, exit code $code"
    [ $code -eq 0 ] && [ $stops -ge 1 ] && [ -n "$weights" ] && [ "$weights" = "$expected" ]
    result $? "$dtype: stopped by SIGTERM and resumed: the weights of a run never stopped"
done

# A learning rate that blows the weights up: updates that are not finite are skipped and named, then it ends.
run blown --dtype=fp32 --learning_rate=100 --min_lr=100 --grad_clip=0 --warmup_iters=0 --weight_decay=100 \
    --max_iters=2000 --max_bad_steps=5
[ $code -ne 0 ] && [ "$(grep -c '"event":"skip"' blown/log.jsonl)" -eq 5 ] && [ "$(wc -l <stderr)" -eq 1 ] &&
    grep -q '5 updates in a row' stderr
result $? "updates that are not finite are skipped, and the run ends after max_bad_steps of them"

run learned --dtype=fp32 --max_iters=60 --lr_decay_iters=60 --export_hf=exported --eval_interval=60 \
    --eval_iters=0 \
    --val_data="$training/tokens.bin"
val=$(sed -n 's/.*"event":"eval","iter":60.*"val_loss":\([^,}]*\).*/\1/p' learned/log.jsonl)
run again --dtype=fp32 --init_from=exported --eval_only=true --eval_iters=0 --val_data="$training/tokens.bin"
val_again=$(sed -n 's/.*"event":"eval".*"val_loss":\([^,}]*\).*/\1/p' again/log.jsonl)
[ -n "$val" ] && [ "$val" = "$val_again" ]
result $? "the exported model has the loss of the trained one ($val, $val_again)"
end_of_tests
