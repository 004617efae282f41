#!/usr/bin/env bash
# Tiny Shakespeare by GPT-2's tokens as data/tinyshakespeare: downloaded, or from a file given by hand. The
# split is that of nanoGPT's data/shakespeare: 301,966 tokens to train on, 36,059 to evaluate.
#   data_prep/tinyshakespeare.sh [FILE]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

shakespeare_text "$@"
tokenize_nanogpt_split data/tinyshakespeare "$text"
