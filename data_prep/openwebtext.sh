#!/usr/bin/env bash
# OpenWebText, 9 billion tokens, as data/openwebtext: 21 archives (13 GB) downloaded, or files given by hand
# (those archives, other archives of text files, or JSON lines). Half a thousandth is for validation, as
# nanoGPT has it.
#   data_prep/openwebtext.sh [FILE...]
# The shards take 18 GB. The archives stay in data/openwebtext/archives.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

files=()
for file in "$@"; do
    files+=("$(from_caller "$file")")
done
if [ ${#files[@]} -eq 0 ]; then
    source=https://huggingface.co/datasets/Skylion007/openwebtext/resolve/main/subsets
    for number in $(seq -w 0 20); do
        file=data/openwebtext/archives/urlsf_subset$number.tar
        fetch "$source/$(basename "$file")" "$file"
        files+=("$file")
    done
fi
need_tokenize
data_prep/tokenize -o data/openwebtext --val-fraction=0.0005 --shard-tokens=1000000000 "${files[@]}"
