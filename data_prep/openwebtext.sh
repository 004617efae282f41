#!/usr/bin/env bash
# OpenWebText, 9 billion tokens, as data/openwebtext: 21 archives (13 GB) downloaded, or files given by hand
# (those archives, other archives of text files, or JSON lines). Documents are cleaned, put in random order
# and split as nanoGPT's data/openwebtext/prepare.py does it (docs/openwebtext.md), so that losses compare.
#   data_prep/openwebtext.sh [FILE...]
# train.bin takes 18 GB, and as much again twice while it is made. Stopped and started again, it goes on. The
# archives stay in data/openwebtext/archives.
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
data_prep/tokenize -o data/openwebtext --header=none --clean=openwebtext --shuffle-documents=2357 \
    --val-fraction=0.0005 "${files[@]}"
