#!/usr/bin/env bash
# Tiny Shakespeare by GPT-2's tokens under nanoGPT's name for it, data/shakespeare: 301,966 tokens to train
# on, 36,059 to evaluate. Downloaded, or from a file given by hand.
#   data_prep/shakespeare.sh [FILE]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

shakespeare_text "$@"
tokenize_nanogpt_split data/shakespeare "$text"
