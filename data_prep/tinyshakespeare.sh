#!/usr/bin/env bash
# Tiny Shakespeare, 338,000 tokens, as data/tinyshakespeare: downloaded, or from a file given by hand. The
# last tenth is for validation.
#   data_prep/tinyshakespeare.sh [FILE]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ $# -eq 0 ]; then
    text=data/tinyshakespeare/input.txt
    fetch https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt "$text"
else
    text=$(from_caller "$1")
fi
need_tokenize
data_prep/tokenize -o data/tinyshakespeare --val-fraction=0.1 "$text"
