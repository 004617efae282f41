#!/usr/bin/env bash
# From nothing to a model that writes in the style of a book, in under five minutes on two cores: install what
# is missing, build, tokenise, train a small GPT-2 for two and a half minutes, show the curve of its
# losses and what it wrote before and after.
#   scripts/quickstart.sh [FILE] [--name=value ...]
#       FILE           a text to learn from, instead of the King James Bible of Debian's packages
#       --name=value   an option of train_gpt2, later than those of scripts/config/kjv.conf; with
#                      --max_iters=N it makes so many updates, however long they take
# Run again, it goes on where it was stopped; `rm -r out/NAME` begins anew.
set -euo pipefail
case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
config=scripts/config/kjv.conf
training_s=150 # at least 60 and at most so long, and what installing and building have left of ..
total_s=285

book=
out_dir=
options=()
updates=
for argument in "$@"; do
    case $argument in
    --max_iters=*) updates=${argument#*=} ;;
    --out_dir=*) out_dir=${argument#*=} ;;
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
out_dir=${out_dir:-out/$name}

# How many updates there is time for on this machine: the recipe's at most, and enough to learn something. A
# run that goes on keeps the number that it began with.
mkdir -p "$out_dir"
if [ -n "$updates" ]; then
    echo "$updates" >"$out_dir/updates"
elif [ ! -e "$out_dir/updates" ]; then
    echo "timing a few updates of this machine .."
    trial=$(mktemp -d)
    trap 'rm -rf "$trial"' EXIT
    ./train_gpt2 $config "--dataset=$name" "--out_dir=$trial" ${options[@]+"${options[@]}"} --max_iters=12 \
        --eval_interval=0 --snapshot_interval=0 --num_samples=0 --log_interval=1 >/dev/null
    # The first updates warm up; the median of the others is not misled by what else the machine does.
    update_us=$(sed -n 's/.*"event":"step".*"ms":\([0-9.]*\).*/\1/p' "$trial/log.jsonl" | tail -n 9 |
        sort -n | awk 'NR == 5 { printf "%d", $1 * 1000 + 1 }')
    rm -rf "$trial"
    left_s=$((total_s - SECONDS))
    training_s=$((left_s < 60 ? 60 : left_s < training_s ? left_s : training_s))
    # An evaluation, 40 forward passes, takes as long as 14 updates: one every 300 updates, one at both ends.
    updates_most=$(sed -n 's/^max_iters *= *//p' $config)
    updates=$(((training_s * 1000000 / update_us - 28) * 300 / 314))
    updates=$((updates < 100 ? 100 : updates > updates_most ? updates_most : updates))
    echo "$updates" >"$out_dir/updates"
    echo "training: $updates updates, about $(((updates * 314 / 300 + 28) * update_us / 1000000)) s"
fi
updates=$(cat "$out_dir/updates")
recipe=($config "--dataset=$name" "--out_dir=$out_dir" "--max_iters=$updates" "--lr_decay_iters=$updates")

# draw ARGUMENTS..: one sample of the model, alone.
draw() {
    ./train_gpt2 "${recipe[@]}" ${options[@]+"${options[@]}"} --sample_only=true --num_samples=1 "$@" |
        sed -n '/^model: /,/^-\{15\}$/p' | sed -E '/^(model|notice|resuming|starting from|-{15}$)/d'
}
if [ ! -e "$out_dir/before.txt" ] && ! compgen -G "$out_dir/step-*.snap" >/dev/null; then
    draw --init_from=scratch --max_new_tokens=20 >"$out_dir/before.txt" 2>/dev/null || true
fi

# In the background, so that a signal to this script reaches it; Ctrl-C does without help.
./train_gpt2 "${recipe[@]}" --init_from=auto --num_samples=0 ${options[@]+"${options[@]}"} &
child=$!
trap 'kill -TERM $child 2>/dev/null' TERM HUP USR1
trap : INT
status=0
while wait $child || status=$?; [ $status -gt 128 ] && kill -0 $child 2>/dev/null; do
    status=0
done
[ $status -le 128 ] || { wait $child && status=0 || status=$?; } # a signal came, and then the end
trap - TERM HUP USR1 INT
[ $status -eq 0 ] || exit $status

echo
scripts/plot.sh --published=none "$out_dir" || true
if [ -s "$out_dir/before.txt" ]; then
    printf '\nBefore the first update it wrote:\n\n'
    cat "$out_dir/before.txt"
fi
printf '\nNow, after %s updates:\n\n' "$updates"
draw --init_from=resume
