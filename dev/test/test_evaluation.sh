#!/usr/bin/env bash
# Evaluation as users ask for it: the loss and perplexity of any token file, and HellaSwag, alone and during a
# run, at any number of ranks; what a signal cut short is made up for.
#   PROGRAMS=build/mpi1 dev/test/test_evaluation.sh        prints TAP
set -u
. "$(dirname "$0")/ranks.bash"

items=$root/dev/test/hellaswag/make_items.py
"$items" few.bin 37 256 || exit 1
"$items" many.bin 60000 256 || exit 1

# events FOLDER EVENT: those of its log.
events() {
    grep "\"event\":\"$2\"" "$1/log.jsonl"
}

# ---- during a run ------------------------------------------------------------------------------------------
run=("${small[@]}" --max_iters=4 --eval_interval=2 --eval_iters=2 --snapshot_interval=4)
ranks 0 "${run[@]}" --out_dir=without
expected=$(weights)
ranks 0 "${run[@]}" --hellaswag=few.bin --out_dir=run
same "HellaSwag changes no weights" "$expected"
[ "$(events run hellaswag | grep -c '"items":37,"accuracy":0\.[0-9]*,"loss":')" -eq 3 ] &&
    [ "$(grep -cE '^step [024]: hellaswag 0\.[0-9]{4} \([0-9]+/37\)$' stdout)" -eq 3 ] &&
    grep -q '^hellaswag: 37 items$' stdout && grep -qE '^notice: hellaswag: [0-9]+ of 37 items' stdout
result $? "after each evaluation it is in log and console"
for N in 2 3; do
    ranks $N "${run[@]}" --hellaswag=few.bin --out_dir=run-$N
    [ "$code" -eq 0 ] && [ "$(weights)" = "$expected" ] &&
        [ "$(events run-$N hellaswag)" = "$(events run hellaswag)" ] &&
        [ "$(events run-$N eval)" = "$(events run eval)" ]
    result $? "$N ranks: the same losses and answers, to the last digit"
done
ranks 0 "${run[@]}" --eval_interval=0 --hellaswag=few.bin --out_dir=never
[ "$code" -eq 0 ] && grep -q '^notice: hellaswag: never evaluated, as eval_interval=0$' stdout
result $? "a notice where it is never asked"

# ---- cut short ---------------------------------------------------------------------------------------------
has_event() { # FOLDER EVENT ITER
    grep -qs "\"event\":\"$2\",\"iter\":$3," "$1/log.jsonl"
}
slow=("${small[@]}" --max_iters=4 --eval_interval=2 --eval_iters=1)
ranks 0 "${slow[@]}" --max_iters=1 --eval_interval=0 --snapshot_interval=1 --out_dir=cut
for N in 0 2; do
    rm -rf cut-$N && cp -r cut cut-$N
    ranks_begin $N "${slow[@]}" --hellaswag=many.bin --init_from=resume --out_dir=cut-$N
    await 60 has_event cut-$N eval 2
    kill -TERM "$(cat pid.0)"
    ranks_end
    [ "$code" -eq 75 ] && ! has_event cut-$N hellaswag 2 && [ -e cut-$N/step-00000002.snap ]
    result $? "$N ranks: a signal ends HellaSwag, and the run after a snapshot"
    ranks $N "${slow[@]}" --hellaswag=few.bin --init_from=resume --out_dir=cut-$N
    [ "$code" -eq 0 ] && [ "$(events cut-$N eval | cut -c 1-26 | uniq -c | wc -l)" -eq 2 ] &&
        [ "$(events cut-$N eval | wc -l)" -eq 2 ] && [ "$(events cut-$N hellaswag | wc -l)" -eq 2 ] &&
        has_event cut-$N hellaswag 2 && has_event cut-$N hellaswag 4
    result $? "$N ranks: what is owed, and nothing else, is made up for when it goes on"
done
is_open() {
    grep -q '^hellaswag: ' stdout
}
ranks_begin 2 "${slow[@]}" --hellaswag=many.bin --eval_only=true --out_dir=cut-only
await 60 is_open
kill -TERM "$(cat pid.1)"
ranks_end
[ "$code" -eq 75 ] && ! grep -q '^step .*hellaswag' stdout
result $? "eval_only: a signal ends HellaSwag; exit code 75"

# ---- evaluation alone --------------------------------------------------------------------------------------
model=(--init_from=run/step-00000004.snap --dtype=fp32 --batch_size=2 --threads=1)
only=("${model[@]}" --eval_only=true --eval_iters=2)
ranks 0 "${only[@]}" --val_data=data/val.bin --out_dir=only
loss=$(events run eval | tail -n 1 | sed 's/.*"val_loss":\([^,}]*\).*/\1/')
[ "$code" -eq 0 ] && [ -n "$loss" ] &&
    events only eval | grep -q "^{\"event\":\"eval\",\"iter\":0,\"val_loss\":$loss,\"perplexity\":" &&
    ! grep -q 'train loss' stdout && grep -qE '^data: [0-9,]+ tokens to evaluate$' stdout
result $? "val_data alone: the loss that the run had; no training data are asked for"
events only eval | sed 's/.*"val_loss":\([^,]*\),"perplexity":\([^}]*\)}.*/\1 \2/' >numbers
awk '{ exit !(NF == 2 && (exp($1) - $2) / $2 < 1e-6 && ($2 - exp($1)) / $2 < 1e-6) }' numbers &&
    [ "$(grep '^val loss' stdout)" = "$(awk '{ printf "val loss %.4f, perplexity %.2f", $1, $2 }' numbers)" ]
result $? "perplexity is e to the loss, in console and log"
ranks 0 "${only[@]}" --train_data=data/train.bin --val_data=data/val.bin --out_dir=both
[ "$code" -eq 0 ] && grep -q '^step 0: train loss .*, val loss ' stdout && grep -q '^val loss ' stdout &&
    events both eval | grep -q "\"train_loss\":[^,]*,\"val_loss\":$loss,\"perplexity\":"
result $? "with training data: their loss too"
mkdir -p data/half && cp data/val.bin data/half
ranks 0 "${only[@]}" --dataset=half --out_dir=half
[ "$code" -eq 0 ] && events half eval | grep -q "^{\"event\":\"eval\",\"iter\":0,\"val_loss\":$loss,"
result $? "a dataset without training shards: val alone"
ranks 0 "${only[@]}" --eval_iters=0 --val_data=data/val.bin --out_dir=whole
whole=$(events whole eval)
answers() { # FOLDER: the numbers of its last HellaSwag
    events "$1" hellaswag | tail -n 1 | cut -d, -f3-
}
for N in 2 3; do
    ranks $N "${only[@]}" --eval_iters=0 --val_data=data/val.bin --hellaswag=few.bin --out_dir=whole-$N
    [ "$code" -eq 0 ] && [ "$(events whole-$N eval)" = "$whole" ] && [ "$whole" != "$(events only eval)" ] &&
        [ -n "$(answers run)" ] && [ "$(answers whole-$N)" = "$(answers run)" ]
    result $? "eval_iters=0, $N ranks: the whole file, and HellaSwag as the run had it"
done
ranks 0 "${only[@]}" --hellaswag=few.bin --out_dir=alone
[ "$code" -eq 0 ] && ! grep -q 'loss' stdout &&
    [ "$(answers alone)" = "$(answers run)" ]
result $? "HellaSwag alone needs no token file"

# ---- refused -----------------------------------------------------------------------------------------------
# refused NAME EXPECTED ARGUMENTS...: exit 1 and one line, and no folder is made.
refused() {
    local name=$1 expected=$2
    shift 2
    ranks 0 "$@" --out_dir=refused
    [ "$code" -eq 1 ] && [ "$(wc -l <stderr)" -eq 1 ] && grep -qF -- "$expected" stderr && [ ! -e refused ]
    result $? "$name"
}
head -c 2000 few.bin >cut.bin
head -n 3 "$root/dev/test/hellaswag/items.jsonl" | head -c 800 >cut.jsonl
refused "no such file" "hellaswag: nope.bin: cannot open" "${run[@]}" --hellaswag=nope.bin
refused "a file that was cut" "hellaswag: cut.bin: item " "${run[@]}" --hellaswag=cut.bin
refused "JSON that was cut" "hellaswag: cut.jsonl:3: not JSON" "${only[@]}" --hellaswag=cut.jsonl
refused "a token file" "found another file; take hellaswag_val.jsonl" "${run[@]}" --hellaswag=data/val.bin
refused "a model of another vocabulary" "expected tokens below vocab_size=256; HellaSwag is for" \
    "${only[@]}" --hellaswag="$root/dev/test/hellaswag/items.jsonl"
refused "nothing to evaluate" "data/openwebtext: expected a folder of token shards, found none" "${only[@]}"
end_of_tests
