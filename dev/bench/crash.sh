#!/usr/bin/env bash
# How safe snapshots are, counted. First a run with a snapshot at every update is killed (kill -9) at random
# moments and goes on, KILLS times: each restart must find what the log had promised, and every loss and norm
# in the log, and the weights at the end, must be those of a run that nobody killed. Then single random bits
# of a snapshot are flipped, BITS times: each must be refused.
#   PROGRAMS=build/mpi1 dev/bench/crash.sh [KILLS [BITS [SEED]]]      default: 200 1000, a seed that it prints
# Exit 0 if nothing was lost, wrong or accepted.
set -u
. "$(dirname "$0")/../test/ranks.bash"
kills=${1:-200}
bits=${2:-1000}
RANDOM=${3:-$((seed = $$ % 32768))}
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "machine: $cpu, $(nproc --all) cores; seed ${3:-$seed}"

small+=(--lr_schedule=wsd --lr_decay_iters=1000 --dropout=0.1 --snapshot_interval=1 --init_from=auto)
newest() {
    ls "$1" 2>/dev/null | grep -xE 'step-[0-9]{8}\.snap' | sort | tail -n 1 | grep -oE '[1-9][0-9]*'
}
promised() { # the newest snapshot that the log tells of
    grep -o '"file":"step-[0-9]*' out/log.jsonl 2>/dev/null | tail -n 1 | grep -oE '[1-9][0-9]*$'
}
numbers() { # of each update, once: one that a kill cut off is made again
    grep -hE '^\{"event":"step".*\}$' "$1/log.jsonl" |
        sed -E 's/,"(ms|tok_per_s|compute_ms|comm_ms|exposed_ms|mfu)":[^,}]*//g' | sort -u
}

lost=0 damaged=0 failed=0 starting=0 writing=0
for ((kill = 0; kill < kills; kill++)); do
    from=$(newest out)
    from=${from:-0}
    if [ "$from" -lt "$(promised || echo 0)" ]; then
        lost=$((lost + 1))
        echo "kill $kill: the log promised step $(promised), the newest snapshot is of step $from"
    fi
    ranks_begin 0 "${small[@]}" --max_iters=100000 --out_dir=out
    if [ $((RANDOM % 10)) -gt 0 ]; then
        await 120 has_made $((from + RANDOM % 6)) out
    else
        starting=$((starting + 1))
    fi
    sleep 0.0$((RANDOM % 90 + 10)) # a moment, which nothing below depends on
    kill -KILL "$(leader)"
    ranks_end
    [ $code -eq 137 ] ||
        { failed=$((failed + 1)) && echo "kill $kill: exit code $code: $(tail -n 1 stderr)"; }
    grep -q damaged stderr && damaged=$((damaged + 1)) && echo "kill $kill: $(tail -n 1 stderr)"
    writing=$((writing + $(ls out 2>/dev/null | grep -c 'snap\.tmp')))
done
goal=$(($(newest out) + 3))
ranks 0 "${small[@]}" --max_iters=$goal --out_dir=out
found=$(weights)
repeated=$(($(grep -c '"event":"step"' out/log.jsonl) - goal))
ranks 0 "${small[@]}" --max_iters=$goal --out_dir=undisturbed
wrong=0
[ -n "$found" ] && [ "$found" = "$(weights)" ] || wrong=1
differing=$(diff <(numbers out) <(numbers undisturbed) | grep -c '^[<>]')
echo "kills: $kills ($starting while it started, $writing while a snapshot was half written) over" \
    "$goal updates; $repeated updates made again after a kill"
echo "kills: $lost promised snapshots lost, $damaged snapshots damaged, $failed restarts failed"
echo "kills: $differing log lines differ, final weights" \
    "$([ $wrong -eq 0 ] && echo equal || echo DIFFER): $found"

snapshot=$(ls out/*.snap | tail -n 1)
bytes=$(stat -c %s "$snapshot")
accepted=0
for ((bit = 0; bit < bits; bit++)); do
    place=$(((RANDOM << 15 | RANDOM) % bytes))
    rm -rf one
    mkdir one
    cp "$snapshot" one
    byte=$(od -An -tu1 -j$place -N1 "$snapshot")
    printf "\\x$(printf %02x $((byte ^ 1 << RANDOM % 8)))" |
        dd of="one/${snapshot##*/}" bs=1 seek=$place conv=notrunc status=none
    ./train_gpt2 "${small[@]}" --init_from=resume --max_iters=$((goal + 1)) --out_dir=one >stdout 2>stderr
    if [ $? -ne 1 ] || ! grep -q 'all damaged' stderr || [ ! -e "one/${snapshot##*/}.damaged" ]; then
        accepted=$((accepted + 1))
        echo "bit $bit: byte $place: $(tail -n 1 stdout stderr)"
    fi
done
echo "bits: $bits flipped, one at a time, in a snapshot of $bytes bytes:" \
    "$((bits - accepted)) refused, $accepted accepted"
[ $((lost + damaged + failed + wrong + differing + accepted)) -eq 0 ]
