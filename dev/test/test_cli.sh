#!/usr/bin/env bash
# train_gpt2 as a user meets it: what it prints and writes, and how it ends; every mistake is one line on
# stderr that names the thing and the way out, and exit code 1.
#   PROGRAMS=build/mpi1 dev/test/test_cli.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Copies: a build that goes on meanwhile does not change what is tested.
cp "${PROGRAMS:-.}/train_gpt2" "${PROGRAMS:-.}/data_prep/tokenize" "$work" || exit 1
train_gpt2=$work/train_gpt2
tokenize=$work/tokenize
cd "$work" || exit 1

# run ARGUMENTS...: train_gpt2 with its output in the files stdout and stderr and its exit code in $code.
run() {
    timeout "$(scaled 120)" "$train_gpt2" "$@" >stdout 2>stderr
    code=$?
}

# refused NAME EXPECTED... -- ARGUMENTS...: exit 1, one line on stderr that holds every EXPECTED, starts with
# the program's name, and no out_dir left behind.
refused() {
    local name=$1 expected=() bad=0 text
    shift
    while [ "$1" != -- ]; do
        expected+=("$1")
        shift
    done
    shift
    run "$@"
    [ "$code" -eq 1 ] || { echo "# exit code: expected 1, found $code"; bad=1; }
    [ "$(wc -l <stderr)" -eq 1 ] || { echo "# lines on stderr: expected 1, found $(wc -l <stderr)"; bad=1; }
    for text in "train_gpt2: " "${expected[@]}"; do
        grep -qF -- "$text" stderr || { echo "# expected on stderr: $text"; bad=1; }
    done
    [ ! -e out ] || { echo "# a refused run left a folder"; rm -rf out; bad=1; }
    result $bad "$name"
}

# last line of the last run: its weights.
weights() {
    tail -n 1 stdout | grep -E '^weights [0-9a-f]{16}$'
}

# Tokens that are the bytes of the sources: each byte followed by a zero byte is one little-endian uint16.
bytes_as_tokens() {
    iconv -f LATIN1 -t UTF-16LE
}
mkdir -p data/bytes
cat "$root"/llmc/*/*.c | head -c 200000 | bytes_as_tokens >data/bytes/train.bin
cat "$root"/llmc/*/*.h | head -c 20000 | bytes_as_tokens >data/bytes/val.bin

shape=(--vocab_size=256 --n_layer=2 --n_head=2 --n_embd=32 --block_size=32)
small=(--dataset=bytes "${shape[@]}" --batch_size=2 --gradient_accumulation_steps=3 --max_iters=12
    --warmup_iters=3 --lr_decay_iters=12 --learning_rate=3e-3 --eval_interval=5 --eval_iters=4
    --snapshot_interval=5 --dtype=fp32)

# ---- options -----------------------------------------------------------------------------------------------
run --help
[ "$code" -eq 0 ] && grep -q -- '--gradient_accumulation_steps=40' stdout && [ ! -s stderr ]
result $? "--help prints the table"
refused "no data: the command that makes them is named" "data/openwebtext" "data_prep/openwebtext.sh" --
refused "unknown option" "batchsize: unknown option; did you mean batch_size" -- "${small[@]}" --batchsize=3
refused "malformed integer" "batch_size=3x: expected an integer from 1 to 65536" -- "${small[@]}" \
    --batch_size=3x
refused "out of range" "n_layer=0: expected an integer from 1 to 1000" -- "${small[@]}" --n_layer=0
refused "overflow" "max_iters=99999999999999999999: expected" -- "${small[@]}" \
    --max_iters=99999999999999999999
refused "NaN" "learning_rate=nan: expected a number from 0 to 100" -- "${small[@]}" --learning_rate=nan
refused "infinity" "weight_decay=inf: expected a number" -- "${small[@]}" --weight_decay=inf
refused "heads that do not divide" "n_embd=32: expected a multiple of n_head=3" -- "${small[@]}" --n_head=3
refused "two modes" "eval_only=true and sample_only=true" -- "${small[@]}" --eval_only=true --sample_only=true
refused "no value" "--batch_size: expected --batch_size=value or --batch_size value, found --seed=3" -- \
    --batch_size --seed=3
refused "a config file behind a flag" "nowhere.conf: expected a config file or --name=value" -- --eval_only \
    nowhere.conf
refused "meant by its meaning" "steps: unknown option; did you mean max_iters" -- --steps 100
printf 'batch_size = 2\n\nbatch_size 3\n' >bad.conf
refused "syntax error in a config file" "bad.conf:3: expected name = value" -- bad.conf
printf 'dtype = fp64 # no\n' >bad.conf
refused "bad value in a config file" "bad.conf:1: dtype=fp64: expected fp32|bf16" -- bad.conf
refused "missing config file" "nowhere.conf" "no such file" -- nowhere.conf
printf 'batchsize = 2\n\nseed = -1 # no\nblock_size = 8\nimport time\nn_layer = 1 / 2\n' >bad.py
run bad.py
[ "$code" -eq 1 ] && [ "$(wc -l <stderr)" -eq 3 ] && [ "$(cut -d ' ' -f 1-3 stderr | tr '\n' '|')" = \
    "train_gpt2: bad.py:1: batchsize:|train_gpt2: bad.py:3: seed=-1:|train_gpt2: bad.py:6: n_layer=0.5:|" ]
result $? "all mistakes of a config file are told, each with its line"
refused "weights that are not there" "init_from=gpt2-medium: expected OpenAI's weights in " "curl " \
    "https://huggingface.co/openai-community/gpt2-medium/resolve/main/" -- --init_from gpt2-medium
refused "no biases" "bias=False: expected True" -- --bias=False
for config in "$root"/scripts/config/*.conf; do
    refused "$(basename "$config") parses" nowhere -- "$config" --init_from=scratch --train_data=nowhere \
        --val_data=nowhere
done

# ---- data --------------------------------------------------------------------------------------------------
refused "missing shard" "nowhere.bin" "data_prep/tokenize" -- "${small[@]}" --train_data=nowhere.bin \
    --val_data=x
: >empty.bin
refused "empty shard" "empty.bin" -- "${small[@]}" --train_data=empty.bin --val_data=data/bytes/val.bin
head -c 64 data/bytes/val.bin >short.bin
refused "data shorter than a window" "short.bin" "block_size" -- "${small[@]}" --train_data=short.bin \
    --val_data=data/bytes/val.bin
head -c 4001 data/bytes/val.bin >odd.bin
refused "half a token" "odd.bin" -- "${small[@]}" --train_data=odd.bin --val_data=data/bytes/val.bin
refused "training data without validation data" "val_data" "--eval_interval=0" -- "${small[@]}" \
    --train_data=data/bytes/train.bin
mkdir -p data/half && cp data/bytes/train.bin data/half
refused "a data set without val" "data/half/val" "--eval_interval=0" -- "${small[@]}" --dataset=half
run "${small[@]}" --dataset=half --eval_interval=0 --max_iters=1 --snapshot_interval=0 --out_dir=half
[ "$code" -eq 0 ] && weights >/dev/null && ! grep -q '^step 0' stdout
result $? "eval_interval=0 trains without val"
run "${small[@]}" --vocab_size=97 --shuffle=false --out_dir=vocab
[ "$code" -eq 1 ] &&
    grep -qE 'train.bin: token [0-9]+ at position [0-9,]+: expected tokens below vocab_size=97' stderr
result $? "token beyond the vocabulary, with file and position"

# ---- out_dir -----------------------------------------------------------------------------------------------
: >file
refused "out_dir is a file" "out_dir" "file" -- "${small[@]}" --out_dir=file
refused "out_dir cannot be made" "out_dir" "file/below" -- "${small[@]}" --out_dir=file/below
refused "nothing to resume" "out" "snapshot" -- "${small[@]}" --init_from=resume
refused "init_from names nothing" "init_from=scrach: expected scratch, resume, auto, a path or auto:PATH" -- \
    "${small[@]}" --init_from=scrach
refused "init_from names something else" "bad.conf" -- "${small[@]}" --init_from=bad.conf

# ---- a run -------------------------------------------------------------------------------------------------
run "${small[@]}" --out_dir=straight
[ "$code" -eq 0 ] && [ ! -s stderr ] && straight=$(weights) && [ -n "$straight" ]
result $? "a run ends with the hash of its weights"
line='^iter [0-9]+: loss [0-9.]+, lr [0-9.e+-]+, norm [0-9.]+, time [0-9.]+ms, [0-9,]+ tok/s'
[ "$(grep -cE "$line" stdout)" -eq 12 ]
result $? "iter lines: one an update, as nanoGPT prints them"
[ "$(grep -oE '^step [0-9]+: train loss [0-9.]+, val loss [0-9.]+' stdout | cut -d: -f1 | tr '\n' ' ')" = \
    "step 0 step 5 step 10 step 12 " ]
result $? "step lines: every eval_interval, and at the end"
[ "$(ls straight | tr '\n' ' ')" = "log.jsonl step-00000010.snap step-00000012.snap " ]
result $? "keep_snapshots newest snapshots are kept"
# A snapshot is told of when it is durable, which may be some updates later.
events=$(sed -E 's/^\{"event":"([a-z]+)".*\}$/\1/' straight/log.jsonl | grep -v snapshot | uniq -c |
    awk '{printf "%s*%s ", $2, $1}')
[ "$events" = "start*1 eval*1 step*5 eval*1 step*5 eval*1 step*2 eval*1 end*1 " ] &&
    [ "$(grep -o '"event":"snapshot","iter":[0-9]*' straight/log.jsonl | cut -d: -f3 | tr '\n' ' ')" = \
        "5 10 12 " ]
result $? "log.jsonl holds every event in its order"
zstd -qt straight/step-00000012.snap 2>stderr
result $? "zstd verifies a snapshot"

run "${small[@]}" --out_dir=one --threads=1
[ "$(weights)" = "$straight" ]
result $? "one thread gives the same weights"
printf '%s\n' "${small[@]}" | sed 's/^--//; s/=/ = /' >small.conf
run small.conf --out_dir=conf
[ "$(weights)" = "$straight" ]
result $? "a config file gives the same run"
cat >small.py <<'PYTHON'
# the same in the syntax of nanoGPT's configs
import time

out_dir = 'python' # below this folder
wandb_log = False # feel free to turn on
wandb_run_name = 'run-' + str(time.time())
dataset = 'bytes'
vocab_size = 2 ** 8
n_layer = 2; n_head = 2
n_embd = 4 * 8
block_size = 32
batch_size = 2
gradient_accumulation_steps = 6 // 2
max_iters = 1_2
lr_decay_iters = 1.2e1
warmup_iters = 3
learning_rate = 3e-3
eval_interval = 5 # keep frequent
eval_iters = 4
snapshot_interval = 5
compile = False
dtype = 'float32'
PYTHON
run small.py --device cpu
[ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ] &&
    grep -qx 'notice: left aside, without meaning here: wandb_log, wandb_run_name, compile, device' stdout
result $? "a config of nanoGPT's kind gives the same run, and says what it leaves aside"
apart=()
for option in "${small[@]}"; do
    apart+=("${option%%=*}" "${option#*=}")
done
run --out_dir apart "${apart[@]}" --shuffle --autotune False
[ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ]
result $? "--name value is --name=value, and --flag is --flag=true"
run "${small[@]}" --out_dir=constant --decay_lr=False --max_iters=2
[ "$code" -eq 0 ] && [ "$(grep -c '^iter [01]: .* lr 3.00e-03,' stdout)" -eq 2 ]
result $? "decay_lr=False: learning_rate from the first update on"
run "${small[@]}" --out_dir=notices --max_iters=2 --eval_iters=100000 --snapshot_interval=0
grep -q '^notice: warmup_iters=3 is not below max_iters=2: ' stdout &&
    grep -q '^notice: eval_iters=100000 x batch_size=2 are 200,000 windows, but the validation data ' stdout
result $? "a warm-up longer than the run, an evaluation larger than the data: notices"
run "${small[@]}" --out_dir=seed --seed=1
[ "$code" -eq 0 ] && [ "$(weights)" != "$straight" ]
result $? "another seed gives other weights"
run "${small[@]}" --out_dir=batch --batch_size=3 --gradient_accumulation_steps=2
[ "$code" -eq 0 ] && [ "$(weights)" != "$straight" ]
result $? "other micro-batches round differently"

# ---- what scripts ask --------------------------------------------------------------------------------------
printf '%s\n' " out_dir = 'a folder' # with a blank" 'n_layer=3' >asked.conf
asked=(asked.conf --n_layer=4 --start='a "b"' --init_from=nowhere)
for one in 'out_dir=a folder' n_layer=4 'start=a "b"' n_head=12 dropout=0 lr_schedule=cosine shuffle=true; do
    run "${asked[@]}" --print="${one%%=*}"
    [ "$code" -eq 0 ] && [ "$(cat stdout)" = "${one#*=}" ] && [ ! -s stderr ] && [ ! -e "a folder" ]
    result $? "--print=${one%%=*} tells its value after config file and command line, and nothing else"
done
WORLD_SIZE=2 SLURM_STEP_ID=0 SLURM_NTASKS=2 run --print=out_dir
[ "$code" -eq 0 ] && [ "$(cat stdout)" = out ]
result $? "--print waits for no other rank"
refused "--print of no option" "out_dirr: unknown option; did you mean out_dir?" -- --print=out_dirr
refused "--print does not hide a mistake" "n_layer=x" -- --n_layer=x --print=out_dir

# ---- what a run leaves for its supervisor ------------------------------------------------------------------
[ "$(cat straight/.end)" = '0 done' ] && [ ! -e straight/.lock ]
result $? "out_dir/.end says that a run is done"
run --n_layer=x "${small[@]}" --out_dir=straight
[ "$code" -eq 1 ] && [ "$(cat straight/.end)" = '0 done' ] && rm straight/.end &&
    run --n_layer=x "${small[@]}" --out_dir=straight
[ "$code" -eq 1 ] && [ "$(cat straight/.end)" = "1 $(cat stderr)" ]
result $? "a mistake is written where nothing is, also when it comes before out_dir"

# ---- resume ------------------------------------------------------------------------------------------------
refused "a new run does not overwrite" "out_dir=straight: holds snapshots (newest step-00000012.snap)" \
    "--init_from=auto goes on" "--out_dir=OTHER" -- "${small[@]}" --out_dir=straight
refused "nor one that begins with weights" "--init_from=auto:models/gpt2 goes on" -- "${small[@]}" \
    --out_dir=straight --init_from=models/gpt2
refused "resume with another shape" "n_layer=3: straight/step-00000012.snap has n_layer=2" -- "${small[@]}" \
    --out_dir=straight --init_from=resume --n_layer=3
run "${small[@]}" --out_dir=parts --init_from=auto --max_iters=7
run "${small[@]}" --out_dir=parts --init_from=auto --threads=1
[ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ] && grep -q 'resuming parts/step-00000007.snap' stdout &&
    ! grep -q notice: stdout
result $? "stopped at a step and resumed: the same weights"
[ "$(grep -c '"event":"step"' parts/log.jsonl)" -eq 12 ]
result $? "log.jsonl is continued"
run "${small[@]}" --out_dir=parts --init_from=resume
[ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ] && ! grep -q '^iter' stdout
result $? "nothing left to train: the weights are told again"
run "${small[@]}" --out_dir=parts --init_from=resume --max_iters=13 --batch_size=1
[ "$code" -eq 0 ] && grep -q 'notice: batch_size was 2 when the snapshot was written, is now 1' stdout
result $? "an option that changes results is told"

# Stop a run of many updates by a signal once it has made some, then let it go on to where a straight run
# ends.
stopped() { # SIGNAL
    rm -rf stopped stdout # whose lines tell when the run has come far enough
    "$train_gpt2" "${small[@]}" --out_dir=stopped --max_iters=20000 --lr_schedule=constant --eval_interval=0 \
        >stdout 2>stderr &
    local pid=$! deadline=$((SECONDS + $(scaled 60)))
    until grep -q '^iter 9:' stdout 2>/dev/null || [ $SECONDS -ge $deadline ]; do
        kill -0 $pid 2>/dev/null || break
        sleep 0.02
    done
    kill -"$1" $pid
    wait $pid
    code=$?
}
for signal in USR1 TERM INT; do
    stopped $signal
    made=$(ls stopped | grep -o '[0-9]*\.snap' | sort | tail -n 1 | grep -oE '[1-9][0-9]*')
    [ "$code" -eq 75 ] && [ -n "$made" ] && grep -q '"reason":"signal"' stopped/log.jsonl
    result $? "SIG$signal: a snapshot, then exit 75"
    goal=$((made + 3))
    run "${small[@]}" --out_dir=stopped --max_iters=$goal --lr_schedule=constant --eval_interval=0 \
        --init_from=resume
    resumed=$(weights)
    rm -rf stopped
    run "${small[@]}" --out_dir=stopped --max_iters=$goal --lr_schedule=constant --eval_interval=0
    [ -n "$resumed" ] && [ "$(weights)" = "$resumed" ]
    result $? "SIG$signal: resumed to the same weights"
done

# A damaged snapshot is set aside, and the one before it is used.
snap=straight/step-00000012.snap
printf 'X' | dd of=$snap bs=1 seek=$(($(stat -c %s $snap) / 2)) conv=notrunc status=none
run "${small[@]}" --out_dir=straight --init_from=resume
[ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ] && grep -q 'step-00000012.snap' stderr &&
    [ -e $snap.damaged ] && grep -q 'resuming straight/step-00000010.snap' stdout
result $? "a damaged snapshot costs the steps since the one before"
mkdir damaged
head -c 1000 $snap >damaged/step-00000012.snap
run "${small[@]}" --out_dir=damaged --init_from=resume
[ "$code" -eq 1 ] && [ "$(wc -l <stderr)" -le 2 ] && grep -q 'damaged/step-00000012.snap' stderr
result $? "only damaged snapshots: an error, not a new run"
run "${small[@]}" --out_dir=damaged --init_from=auto
[ "$code" -eq 1 ] && grep -q 'step-00000012.snap.damaged: damaged, and no good snapshot' stderr
result $? "nor does the next start forget them"

# ---- evaluate, sample, export ------------------------------------------------------------------------------
cp -r one copy
run "${small[@]}" --out_dir=copy --init_from=resume --eval_only=true
[ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ] &&
    [ "$(grep '^step 12' stdout)" = \
        "$(grep -h '^step 12' <("$train_gpt2" "${small[@]}" --out_dir=again) | sed 's/, [^,]* left$//')" ]
result $? "eval_only gives the losses that the run gave"
run "${small[@]}" --out_dir=copy --init_from=resume --eval_only=true --eval_iters=0
all=$(grep '^step 12' stdout)
run "${small[@]}" --out_dir=copy --init_from=resume --eval_only=true --eval_iters=0 --batch_size=7
[ -n "$all" ] && [ "$(grep '^step 12' stdout)" = "$all" ]
result $? "eval_iters=0 evaluates the whole of val, whatever the batch"
run --out_dir=copy --sample_only=true --num_samples=2 --max_new_tokens=40
[ "$code" -eq 0 ] && [ "$(grep -ac '^---------------$' stdout)" -eq 2 ] && [ ! -s stderr ]
result $? "sample_only resumes and needs no data"
sed '/^resuming/,$!d' stdout >first
run --out_dir=copy --sample_only=true --num_samples=2 --max_new_tokens=40 --threads=1
sed '/^resuming/,$!d' stdout | cmp -s - first
result $? "samples are reproducible"
refused "sampling without a model" "out" "snapshot" -- --sample_only=true
refused "start beyond the vocabulary" "start: token" "vocab_size=256" -- --out_dir=copy --sample_only=true \
    --start=Weather
run "${small[@]}" --out_dir=copy --init_from=resume --export_hf=hf --export_llmc=model.bin
[ "$code" -eq 0 ] && [ -s hf/model.safetensors ] && [ -s hf/config.json ] && [ -s model.bin ]
result $? "exports when nothing is left to train"
for source in hf hf/model.safetensors model.bin copy/step-00000012.snap; do
    run --init_from=$source --max_iters=0 --out_dir=imported
    [ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ]
    result $? "init_from=$source brings the same weights"
    run --init_from=auto:$source --max_iters=0 --out_dir=imported
    [ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ]
    result $? "and so does auto:$source where there is nothing to resume"
done
mkdir -p models && cp -r hf models/gpt2-large
printf "init_from = 'gpt2-large' # this is a large one\neval_only = True\n" >eval.py
run eval.py --dataset=bytes --batch_size=2 --eval_iters=4 --dtype=fp32 --out_dir=evaluated
[ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ] && grep -q '^starting from models/gpt2-large ' stdout &&
    grep -q '^step 0: train loss ' stdout
result $? "init_from='gpt2-large' takes models/gpt2-large, which brings its shape"
run eval.py --init_from=auto:gpt2-large --dataset=bytes --batch_size=2 --eval_iters=4 --dtype=fp32 \
    --out_dir=evaluated
[ "$code" -eq 0 ] && [ "$(weights)" = "$straight" ] && grep -q '^starting from models/gpt2-large ' stdout
result $? "and so does init_from=auto:gpt2-large"
run "${small[@]}" --init_from=hf --out_dir=tuned
tuned=$(weights)
run "${small[@]}" --init_from=auto:hf --out_dir=begun --max_iters=5
grep -q '^starting from hf (' stdout && [ "$(weights)" != "$tuned" ] &&
    run "${small[@]}" --init_from=auto:hf --out_dir=begun
[ "$code" -eq 0 ] && grep -q '^resuming begun/step-00000005.snap' stdout && [ -n "$tuned" ] &&
    [ "$(weights)" = "$tuned" ]
result $? "init_from=auto:PATH starts from PATH and then resumes: the same weights"
refused "auto:PATH of nothing" "init_from=auto:nope: expected" "no such file" -- "${small[@]}" \
    --init_from=auto:nope
run "${small[@]}" --init_from=hf --out_dir=lower --block_size=16 --max_iters=1
[ "$code" -eq 0 ] && weights >/dev/null
result $? "block_size may be lowered"
refused "block_size may not be raised" "block_size=64" "hf" -- "${small[@]}" --init_from=hf --block_size=64

# ---- from text ---------------------------------------------------------------------------------------------
mkdir text && cat "$root"/llmc/run/*.c >text/source.txt
"$tokenize" -o data/source text/source.txt >stdout 2>stderr
result $? "tokenize makes a data set"
run --dataset=source "${shape[@]:1}" --batch_size=2 --gradient_accumulation_steps=2 --max_iters=3 \
    --out_dir=source --eval_interval=3 --eval_iters=1 --num_samples=1 --max_new_tokens=10 --start="int main" \
    --warmup_iters=1
[ "$code" -eq 0 ] && weights >/dev/null && grep -aq '^int main' stdout
result $? "GPT-2's vocabulary: train and sample"

end_of_tests
