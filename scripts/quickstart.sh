#!/usr/bin/env bash
# From nothing to a model that writes in the style of a book, in under five minutes on two cores: install what
# is missing, build, tokenise, train a small GPT-2 for about three minutes, print samples.
#   scripts/quickstart.sh [FILE] [--name=value ...]
#       FILE           a text to learn from, instead of the King James Bible of Debian's packages
#       --name=value   an option of train_gpt2, later than those of scripts/config/kjv.conf
# Run again, it goes on where it was stopped; `rm -r out/NAME` begins anew.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
config=scripts/config/kjv.conf
training_ms=150000

book=
options=()
for argument in "$@"; do
    case $argument in
    --*) options+=("$argument") ;;
    /*) book=$argument ;;
    *) book=$caller/$argument ;;
    esac
done
if [ -n "$book" ] && [ ! -r "$book" ]; then
    echo "quickstart.sh: $book: expected a text file, found nothing that can be read" >&2
    exit 1
fi

if [ -n "$book" ]; then
    scripts/install_deps.sh
else
    scripts/install_deps.sh --book
fi
make -j"$(nproc)" ${MPI:+MPI=$MPI}

name=kjv
if [ -n "$book" ]; then
    name=$(basename "$book")
    name=${name%%.*}
    name=${name//[^A-Za-z0-9_-]/_}
    data_prep/tokenize -o "data/$name" "$book"
else
    data_prep/kjv.sh
fi
out_dir=out/$name

# How many updates are three minutes on this machine: the recipe's at most, and enough to learn something. A
# run that goes on keeps the number that it began with.
mkdir -p "$out_dir"
if [ ! -e "$out_dir/updates" ]; then
    echo "timing a few updates of this machine .."
    trial=$(mktemp -d)
    trap 'rm -rf "$trial"' EXIT
    ./train_gpt2 $config "--dataset=$name" "--out_dir=$trial" ${options[@]+"${options[@]}"} --max_iters=12 \
        --eval_interval=0 --snapshot_interval=0 --num_samples=0 --log_interval=1 >/dev/null
    # The first updates warm up; the median of the others is not misled by what else the machine does.
    update_ms=$(sed -n 's/.*"event":"step".*"ms":\([0-9]*\).*/\1/p' "$trial/log.jsonl" | tail -n 9 |
        sort -n | sed -n 5p)
    updates_most=$(sed -n 's/^max_iters *= *//p' $config)
    updates=$((training_ms / (update_ms + 1)))
    updates=$((updates < 100 ? 100 : updates > updates_most ? updates_most : updates))
    echo "$updates" >"$out_dir/updates"
fi
updates=$(cat "$out_dir/updates")
exec ./train_gpt2 $config "--dataset=$name" "--out_dir=$out_dir" --init_from=auto "--max_iters=$updates" \
    "--lr_decay_iters=$updates" ${options[@]+"${options[@]}"}
