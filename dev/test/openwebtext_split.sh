#!/usr/bin/env bash
# tokenize --shuffle-documents beside numpy, tiktoken and datasets: a synthetic OpenWebText (10,000 documents)
# must give the same train.bin and val.bin. Not part of make test: it needs Python packages.
#   PYTHON=venv/bin/python dev/test/openwebtext_split.sh [DOCUMENTS] [--datasets]
# test_shuffle.sh runs the same with 700 documents against hashes.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
count=${1:-10000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/expected"
python3 dev/reference/openwebtext_split.py make "$work" "$count"
"$python" dev/reference/openwebtext_split.py expect "$work" "$work/expected" "${@:2}"
same=1
for input in "--clean=openwebtext openwebtext.tar" "--shuffle-memory=1 openwebtext.jsonl"; do
    # shellcheck disable=SC2086
    data_prep/tokenize -o "$work/found" --header=none --shuffle-documents=2357 --val-fraction=0.0005 \
        ${input% *} "$work/${input##* }"
    for name in train val; do
        cmp "$work/found/$name.bin" "$work/expected/$name.bin" || same=0
    done
done
[ $same -eq 1 ] && echo "the same bytes: $(stat -c %s "$work/expected/train.bin") and" \
    "$(stat -c %s "$work/expected/val.bin") of $count documents"
