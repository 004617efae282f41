#!/usr/bin/env bash
# The CPU program against llm.c's own train_gpt2.c, on demand: llm.c's Python writes a random model, both
# programs train it on shards of data_prep/tokenize, and all losses are compared; then llm.c's program reads
# our export. Not part of `make test`: it needs a clone of llm.c, and Python with torch and numpy.
#   PYTHON=python3 PROGRAMS=build/mpi1 dev/test/llmc_losses.sh CLONE TEXT        1.1 MB of text will do
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
programs=$(cd "${PROGRAMS:-$root}" && pwd)
clone=$(cd "$1" && pwd)
text=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
data=dev/data/tinyshakespeare # where llm.c's program looks
mkdir -p $data

"${PYTHON:-python3}" - "$clone" <<'END'
import sys
import torch
sys.path.insert(0, sys.argv[1])
from train_gpt2 import GPT, GPTConfig, write_model
torch.manual_seed(42)
model = GPT(GPTConfig(block_size=128, vocab_size=50257, n_layer=4, n_head=4, n_embd=128))
write_model(model, "gpt2_124M.bin", "float32")  # the name that its program opens
END
"$programs/data_prep/tokenize" -o $data --eot=prepend --header=llmc --val-tokens=32768 "$text"
ln -s train.bin $data/tiny_shakespeare_train.bin
ln -s val.bin $data/tiny_shakespeare_val.bin

# Its training windows come in an order of its own: here in file order, as ours with shuffle=false.
sed 's/\(dataloader_init(&train_loader, train_tokens, B, T, 0, 1, \)1)/\10)/' "$clone/train_gpt2.c" \
    >train_gpt2.c
! cmp -s "$clone/train_gpt2.c" train_gpt2.c || { echo "train_gpt2.c: expected a shuffled loader"; exit 1; }
"${CC:-gcc}" -O3 -march=native -fopenmp -DOMP -I"$clone" -o llmc train_gpt2.c -lm
./llmc >llmc.txt
"$programs/train_gpt2" --init_from=gpt2_124M.bin --train_data=$data/train.bin --val_data=$data/val.bin \
    --shuffle=false --batch_size=4 --block_size=64 --gradient_accumulation_steps=1 --max_iters=41 \
    --eval_interval=10 --eval_iters=5 --lr_schedule=constant --warmup_iters=0 --learning_rate=1e-4 \
    --weight_decay=0 --beta2=0.999 --grad_clip=0 --dtype=fp32 --snapshot_interval=0 --out_dir=ours \
    --export_llmc=ours.bin >ours.txt
mkdir back
ln -s "$work/dev" back/dev
ln -s "$work/ours.bin" back/gpt2_124M.bin
(cd back && stdbuf -oL ../llmc) | grep -am1 '^val loss' >back.txt || true

python3 - <<'END'
import json
import re
import sys
log = [json.loads(line) for line in open("ours/log.jsonl")]
steps = {e["iter"]: e["loss"] for e in log if e["event"] == "step"}
evals = {e["iter"]: e["val_loss"] for e in log if e["event"] == "eval"}
text = open("llmc.txt", errors="replace").read()
pairs = [(float(loss), steps[int(i)]) for i, loss in re.findall(r"^step (\d+): train loss (\S+)", text, re.M)]
vals = re.findall(r"^val loss (\S+)", text, re.M)
pairs += [(float(loss), evals[10 * i]) for i, loss in enumerate(vals)]
pairs.append((float(open("back.txt").read().split()[2]), evals[41]))
worst = max(abs(theirs - ours) for theirs, ours in pairs)
print(f"{len(pairs)} losses, from {pairs[0][0]:.6f} to {pairs[-1][0]:.6f}: largest distance {worst:.2g}")
sys.exit(len(pairs) != 41 + 5 + 1 or worst > 1e-5)
END
