# shellcheck shell=bash
# For the scripts of data sets: they run in the repository's root, and take files by hand where nothing can be
# downloaded.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=data_prep/$(basename "$0")

die() {
    echo "$script: $*" >&2
    exit 1
}

need_tokenize() {
    [ -x data_prep/tokenize ] || make --no-print-directory data_prep/tokenize
}

# from_caller PATH: a path that the caller gave, seen from here.
from_caller() {
    case $1 in
    /* | -) echo "$1" ;;
    *) echo "$caller/$1" ;;
    esac
}

# fetch URL FILE: download unless it is there; goes on with a download that was cut off.
fetch() {
    [ -e "$2" ] && return
    mkdir -p "$(dirname "$2")"
    echo "$script: downloading $1"
    if command -v curl >/dev/null; then
        curl -fL --retry 3 -C - -o "$2.part" "$1" || cannot_fetch "$1"
    elif command -v wget >/dev/null; then
        wget -c -O "$2.part" "$1" || cannot_fetch "$1"
    else
        die "expected curl or wget to download with, found neither; install one, or download" \
            "$1 elsewhere and run: $script FILE..."
    fi
    mv "$2.part" "$2"
}

cannot_fetch() {
    die "cannot download $1 from this machine; download it elsewhere, copy it here, and run: $script FILE..."
}

# shakespeare_text [FILE]: the path of tiny Shakespeare, in $text: FILE as the caller gave it, or downloaded.
shakespeare_text() {
    if [ $# -eq 0 ]; then
        text=data/tinyshakespeare/input.txt
        local source=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare
        fetch $source/input.txt "$text"
    else
        text=$(from_caller "$1")
    fi
    [ -r "$text" ] || die "$text: expected a text, found no file that can be read"
}

# tokenize_nanogpt_split FOLDER FILE: GPT-2's tokens without marks, where validation is the text from nine
# tenths on, as nanoGPT has it. The cut is between two characters.
tokenize_nanogpt_split() {
    local folder=$1 file=$2 bytes cut parts byte
    bytes=$(wc -c <"$file")
    cut=$((bytes * 9 / 10))
    while byte=$(od -An -tu1 -j "$cut" -N 1 "$file") && [ "${byte:-0}" -ge 128 ] && [ "$byte" -lt 192 ]; do
        cut=$((cut - 1)) # inside a character
    done
    parts=$(mktemp -d)
    trap 'rm -rf "$parts"' EXIT
    head -c "$cut" "$file" >"$parts/train.txt"
    tail -c "+$((cut + 1))" "$file" >"$parts/val.txt"
    need_tokenize
    data_prep/tokenize -o "$folder" --eot=none --val-input="$parts/val.txt" "$parts/train.txt"
    rm -rf "$parts"
}

# parquet_lines FILE...: the column text of Parquet tables as JSON lines, by duckdb or Python's pyarrow. Ends
# with a line that is no JSON where that fails, so that nobody takes what has come for all of it.
parquet_lines() {
    local list='' file
    if command -v duckdb >/dev/null; then
        for file in "$@"; do
            list+="${list:+, }'${file//\'/\'\'}'"
        done
        duckdb -c "COPY (SELECT text FROM read_parquet([$list])) TO '/dev/stdout' (FORMAT json)" ||
            echo "duckdb cannot read the tables"
    else
        python3 - "$@" <<'END' || echo "pyarrow cannot read the tables"
import json
import sys

import pyarrow.parquet

for path in sys.argv[1:]:
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(columns=["text"]):
        for text in batch.column(0).to_pylist():
            print(json.dumps({"text": text}))
END
    fi
}

# need_parquet FILE: something that reads Parquet is installed.
need_parquet() {
    command -v duckdb >/dev/null || python3 -c 'import pyarrow.parquet' 2>/dev/null ||
        die "$1: expected duckdb or Python's pyarrow, to read a Parquet table with, found neither; install" \
            "one (pip install pyarrow), or write the texts as JSON lines"
}
