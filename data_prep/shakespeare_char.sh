#!/usr/bin/env bash
# Tiny Shakespeare by characters as data/shakespeare_char: downloaded, or from a file given by hand. The
# characters' numbers and the split are nanoGPT's: 65 of them, 1,003,854 to train on, 111,540 to evaluate.
#   data_prep/shakespeare_char.sh [FILE]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

shakespeare_text "$@"
need_tokenize
data_prep/tokenize --tokenizer=char -o data/shakespeare_char --val-fraction=0.1 "$text"
