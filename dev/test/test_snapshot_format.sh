#!/usr/bin/env bash
# Snapshots and exports as others see them: the zstd program verifies and decompresses what a run wrote, a
# reader that shares no code with this program understands it, and transformers loads what is exported.
#   PROGRAMS=build/mpi1 dev/test/test_snapshot_format.sh        prints TAP
# PYTHON names the interpreter (python3). What it lacks is named on a line that starts with `#` and counts as
# nothing.
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
programs=$(cd "${PROGRAMS:-.}" && pwd)
train_gpt2=$programs/train_gpt2
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
told() {
    tail -n 5 output
}

# 4,000 tokens below 61, as nanoGPT writes them.
for file in train.bin val.bin; do
    for i in $(seq 1 4000); do printf "\\x$(printf %x $((i * i % 61)))\\0"; done >$file
done

train() {
    timeout "$(scaled 120)" "$train_gpt2" --out_dir=out --train_data=train.bin --val_data=val.bin \
        --n_layer=2 --n_head=2 --n_embd=20 --vocab_size=300 --block_size=8 \
        --batch_size=2 --gradient_accumulation_steps=2 --warmup_iters=0 \
        --eval_interval=0 --num_samples=0 --snapshot_interval=2 "$@" >output 2>&1
}

train --max_iters=4 --export_hf=hf --export_llmc=model.bin
result $? "a run writes snapshots and exports"
snapshot=out/step-00000004.snap

zstd -tq "$snapshot" out/step-00000002.snap >output 2>&1
result $? "zstd verifies the files"
zstd -lv "$snapshot" 2>&1 | tee output | grep -q 'Check: XXH64'
result $? "the frames have content checksums"
zstd -dq "$snapshot" -o snapshot.safetensors >output 2>&1
result $? "zstd decompresses it"

size=$(stat -c %s "$snapshot")
cp "$snapshot" flipped.snap
byte=$(od -An -tu1 -j $((size / 2)) -N 1 flipped.snap)
printf "\\x$(printf %x $((byte ^ 16)))" | dd of=flipped.snap bs=1 seek=$((size / 2)) conv=notrunc status=none
! zstd -tq flipped.snap >output 2>&1
result $? "zstd refuses it with a bit flipped"
"$train_gpt2" --init_from=flipped.snap --out_dir=none --sample_only=true >output 2>&1
[ $? -eq 1 ] && grep -q '^train_gpt2: flipped.snap: damaged' output && [ ! -e none ]
result $? "so does train_gpt2, in one line that names it"

cp "$snapshot" whole.snap
zstd -q -19 snapshot.safetensors -o again.snap &&
    train --init_from=again.snap --out_dir=a --max_iters=0 && tail -n 1 output >weights_again &&
    train --init_from=whole.snap --out_dir=b --max_iters=0 && tail -n 1 output >weights_whole &&
    grep -q '^weights [0-9a-f]\{16\}$' weights_again && cmp weights_again weights_whole >>output 2>&1
result $? "a file that zstd compressed again is the same snapshot"

if "$python" -c '' 2>/dev/null; then
    "$python" "$root/dev/test/read_snapshot.py" snapshot.safetensors hf >output 2>&1
    result $? "a reader of its own finds the exported weights in the byte planes"
else
    echo "# no $python: the snapshot was not read by another program"
fi
if "$python" -c 'import safetensors' 2>/dev/null; then
    "$python" -c "
from safetensors import safe_open
with safe_open('snapshot.safetensors', 'np') as file:
    assert file.metadata()['step'] == '4', file.metadata()
    assert all(file.get_slice(name).get_dtype() == 'U8' for name in file.keys())" >output 2>&1
    result $? "the safetensors library reads it"
else
    echo "# no safetensors for $python: the library did not read the snapshot"
fi
if "$python" -c 'import torch, transformers' 2>/dev/null; then
    HF_HUB_OFFLINE=1 "$python" "$root/dev/reference/check_export.py" hf >output 2>&1
    result $? "transformers loads the export"
    original=$root/dev/reference/twelve_layers
    "$train_gpt2" --init_from="$original" --out_dir=c --train_data=train.bin --val_data=val.bin \
        --max_iters=0 --eval_interval=0 --num_samples=0 --batch_size=1 --export_hf=hf2 >output 2>&1 &&
        HF_HUB_OFFLINE=1 "$python" "$root/dev/reference/check_export.py" hf2 "$original" >output 2>&1
    result $? "a model of transformers comes back as it was"
else
    echo "# no torch and transformers for $python: they did not load the export"
fi
end_of_tests
