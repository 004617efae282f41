#!/usr/bin/env bash
# FineWeb's sample of 10 billion tokens as data/fineweb: shards that are already tokens (100 million, 200 MB
# each), downloaded, or files given by hand: JSON lines with "text" (also .gz, .zst, .tar), or the Parquet
# tables that FineWeb is published as (duckdb or Python's pyarrow reads them), which are tokenised.
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
    files=() tables=()
    for file in "$@"; do
        case $file in
        *.parquet) tables+=("$(from_caller "$file")") ;;
        *) files+=("$(from_caller "$file")") ;;
        esac
    done
    need_tokenize
    if [ ${#tables[@]} -gt 0 ]; then
        [ ${#files[@]} -eq 0 ] ||
            die "${files[0]}: expected Parquet tables beside ${tables[0]}, found another file"
        for table in "${tables[@]}"; do
            [ -r "$table" ] || die "$table: expected a Parquet table, found no file that can be read"
        done
        need_parquet "${tables[0]}"
        parquet_lines "${tables[@]}" |
            data_prep/tokenize -o data/fineweb --format=jsonl --shard-tokens=100000000 -
        exit
    fi
    exec data_prep/tokenize -o data/fineweb --format=jsonl --shard-tokens=100000000 "${files[@]}"
fi
source_url=https://huggingface.co/datasets/kjj0/fineweb10B-gpt2/resolve/main
fetch "$source_url/fineweb_val_000000.bin" data/fineweb/val_000000.bin
for number in $(seq -f %06g 1 "$count"); do
    fetch "$source_url/fineweb_train_$number.bin" "data/fineweb/train_$number.bin"
done
