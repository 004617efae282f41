#!/usr/bin/env bash
# FineWeb's sample of 10 billion tokens as data/fineweb: shards that are already tokens (100 million, 200 MB
# each), downloaded, or files given by hand: JSON lines with "text" (also .gz, .zst, .tar), which are
# tokenised.
#   data_prep/fineweb.sh [COUNT]       the first COUNT of 103 training shards, and the validation shard
#   data_prep/fineweb.sh FILE...
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

count=103
if [ $# -eq 1 ] && [[ $1 =~ ^[0-9]+$ ]]; then
    count=$1
    if [ "$count" -lt 1 ] || [ "$count" -gt 103 ]; then
        die "$count: expected 1 to 103 shards"
    fi
    shift
fi
if [ $# -gt 0 ]; then
    files=()
    for file in "$@"; do
        files+=("$(from_caller "$file")")
    done
    need_tokenize
    exec data_prep/tokenize -o data/fineweb --format=jsonl --shard-tokens=100000000 "${files[@]}"
fi
source_url=https://huggingface.co/datasets/kjj0/fineweb10B-gpt2/resolve/main
fetch "$source_url/fineweb_val_000000.bin" data/fineweb/val_000000.bin
for number in $(seq -f %06g 1 "$count"); do
    fetch "$source_url/fineweb_train_$number.bin" "data/fineweb/train_$number.bin"
done
