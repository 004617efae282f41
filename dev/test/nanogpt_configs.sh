#!/usr/bin/env bash
# The config files of a clone of nanoGPT, unchanged, on tiny data and tiny weights: each must start, and every
# option that it sets must have the value that Python gives it. Not part of `make test`, which has no clone.
#   PROGRAMS=build/mpi1 dev/test/nanogpt_configs.sh CLONE        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
clone=$(cd "${1:?usage: dev/test/nanogpt_configs.sh CLONE}" && pwd) || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "${PROGRAMS:-.}/train_gpt2" "$work" || exit 1
cd "$work" || exit 1

for dataset in openwebtext shakespeare shakespeare_char; do
    mkdir -p data/$dataset
    head -c 20000 /dev/zero >data/$dataset/train.bin
    head -c 20000 /dev/zero >data/$dataset/val.bin
done
shape=(--vocab_size=64 --n_layer=1 --n_head=1 --n_embd=8 --block_size=64)
quick=(--max_iters=1 --eval_iters=1 --batch_size=1 --gradient_accumulation_steps=1)
./train_gpt2 "${shape[@]}" "${quick[@]}" --eval_interval=0 --snapshot_interval=0 --out_dir=made \
    --export_hf=models/gpt2 >stdout 2>stderr || { cat stderr; exit 1; }
for size in medium large xl; do
    cp -r models/gpt2 models/gpt2-$size
done

# agrees CONFIG SUMMARY: what the program says it uses against what Python makes of the file.
agrees() {
    python3 - "$1" "$2" <<'PYTHON'
import re, sys
values = {}
exec(open(sys.argv[1]).read(), values)
used = dict(re.findall(r"(\w+)=(\S*)", " ".join(
    line for line in open(sys.argv[2]) if re.match(r"(run|data|batch|model|optim|system) ", line))))
bad = 0
if values.get("decay_lr") is False:
    values.update(lr_schedule="constant", warmup_iters=0)
if str(values.get("init_from", "")).startswith("gpt2"):
    values["init_from"] = "models/" + values["init_from"]
for name, value in values.items():
    if name not in used:
        continue
    same = (used[name] == str(value).lower() if isinstance(value, bool) else
            used[name] == value if isinstance(value, str) else float(used[name]) == value)
    if not same:
        print(f"# {name}: expected {value}, found {used[name]}")
        bad = 1
sys.exit(bad)
PYTHON
}

for config in "$clone"/config/*.py; do
    name=$(basename "$config" .py)
    rm -rf out*
    override=("${quick[@]}" --out_dir=out)
    grep -q "^init_from = 'gpt2" "$config" || override+=("${shape[@]}")
    ./train_gpt2 "$config" "${override[@]}" >stdout 2>stderr && grep -q '^weights ' stdout
    result $? "$name.py runs"
    # Without the numbers that make it quick: it is stopped when it has said what it uses.
    shape_alone=(--vocab_size=64 --n_layer=1 --n_head=1 --n_embd=8)
    grep -q "^init_from = 'gpt2" "$config" && shape_alone=()
    sed -E '/^(n_layer|n_head|n_embd) *=/d' "$config" >"$name.py"
    rm -rf out*
    mkfifo pipe
    ./train_gpt2 "$name.py" "${shape_alone[@]}" --threads=1 >pipe 2>stderr &
    pid=$!
    sed '/^model:/q' pipe >summary # who reads no more lets the next line end it
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    rm pipe
    grep -q '^model:' summary && agrees "$name.py" summary
    result $? "$name.py: the values are Python's"
done
[ "$tests" -ge 14 ]
result $? "all of nanoGPT's configs were there"
end_of_tests
