#!/usr/bin/env bash
# What snapshots cost a run of GPT-2 124M: how long training waits for them, how much slower its steps are
# while one is written, and how far a state trained for a while is compressed.
#   PROGRAMS=. dev/bench/stall.sh FOLDER [UPDATES [INTERVAL [OPTIONS OF train_gpt2...]]]
# FOLDER holds tokens, train.bin and val.bin; 250 updates and a snapshot every 100 unless told. Snapshots go
# to a folder under TMPDIR.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
program=${PROGRAMS:-$root}/train_gpt2
[ -r "${1:-}/train.bin" ] || {
    echo "usage: dev/bench/stall.sh FOLDER [UPDATES [INTERVAL [OPTIONS...]]]" >&2
    exit 1
}
data=$1
updates=${2:-250}
interval=${3:-100}
shift $(($# < 3 ? $# : 3))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "machine: $cpu, $(nproc --all) cores; load $(cut -d ' ' -f 1 /proc/loadavg)"
"$program" --train_data="$data/train.bin" --val_data="$data/val.bin" --dtype=bf16 --batch_size=4 \
    --block_size=256 --gradient_accumulation_steps=1 --threads=2 --max_iters="$updates" --eval_interval=0 \
    --log_interval=1 --snapshot_interval="$interval" --keep_snapshots=1 --warmup_iters=20 \
    --out_dir="$work/out" "$@" >"$work/output" 2>&1 ||
    { tail -n 3 "$work/output" >&2; exit 1; }
python3 - "$work/out/log.jsonl" "$interval" <<'END_OF_PYTHON'
import json, statistics, sys
interval = int(sys.argv[2])
events = [json.loads(line) for line in open(sys.argv[1])]
parameters = events[0]["parameters"]
steps = {event["iter"]: event["ms"] for event in events if event["event"] == "step" and event["iter"] > 0}
quiet = dict(steps)
snapshots = [event for event in events if event["event"] == "snapshot"]
shares, slowings = [], []
for snapshot in snapshots:
    first, left_ms, during = snapshot["iter"], snapshot["write_ms"], []
    while left_ms > 0 and first in steps: # the steps that were made while it was written
        during.append(steps[first])
        left_ms -= quiet.pop(first, 0)
        first += 1
    snapshot["during"] = during
usual_ms = statistics.median(quiet.values())
print("step: %.0f ms, median of the %d steps without a snapshot in flight" % (usual_ms, len(quiet)))
for snapshot in snapshots:
    whole_ms, during = interval * usual_ms, snapshot["during"]
    print("snapshot %d: %d bytes, state / file = %.3f;" %
          (snapshot["iter"], snapshot["bytes"], parameters * 12 / snapshot["bytes"]), end=" ")
    if not during:
        print("after the last step: the run waits for it, %.0f ms" % snapshot["write_ms"])
        continue
    shares.append(snapshot["stall_ms"] / whole_ms)
    extra_ms = sum(during) - usual_ms * len(during) - snapshot["stall_ms"]
    slowings.append(extra_ms / whole_ms)
    print("stall %.1f ms = %.3f%% of %d steps; written in %.0f ms, %d steps slower by %.0f ms in all = "
          "%.2f%%" %
          (snapshot["stall_ms"], 100 * shares[-1], interval, snapshot["write_ms"], len(during), extra_ms,
           100 * slowings[-1]))
if shares:
    print("largest stall %.3f%%, largest slowing %.2f%% of the time of %d steps" %
          (100 * max(shares), 100 * max(slowings), interval))
END_OF_PYTHON
