#!/usr/bin/env python3
"""What a step takes and how much of its all-reduce is hidden: a model fitted to what scaling.py measured, and
checked against it. scaling_gpu.py asks it about GPUs.

    dev/bench/scaling_model.py dev/bench/results/scaling.json

The model plays one step as reducer.c does: backward finishes ranges one after the other, ranges become
buckets (1 MB, then 25 MB), and one link sums bucket after bucket, each at the cost of a latency and of bytes
over a bandwidth. While a bucket is on its way compute is slower by a fixed part. After backward come the rest
of the buckets, in exact mode the late rows, and the update.
"""
import argparse
import json
import math
import statistics
import sys
from collections import namedtuple

# What one rank computes, in ms. head: the last slot until lm_head's gradient is complete.
Compute = namedtuple("Compute", "slot head ln_f block embedding update")
# What an all-reduce takes: a latency for each and bytes over a bandwidth; slowdown: of compute, meanwhile.
Link = namedtuple("Link", "latency_ms bytes_per_ms slowdown")
Shape = namedtuple("Shape", "L C V T")
Step = namedtuple("Step", "ms compute comm exposed bytes")

WIRE_BYTES = {"exact": 8, "fp32": 4, "bf16": 2}
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20
LATE_CHUNK = 8 << 20
GPT2 = Shape(12, 768, 50257, 1024)


# ---- one step ----------------------------------------------------------------------------------------------


def padded_rows(shape):
    return (shape.V + 127) // 128 * 128


def ranges(shape, compute, reduce, early_head):
    """(ms of compute until it is final, since the one before; bytes; whether it joins the one before)."""
    C, size = shape.C, WIRE_BYTES[reduce]
    wte = padded_rows(shape) * C * size
    all_ranges = [(compute.head, wte, False)] if early_head else [(compute.head, 0, False)]
    all_ranges.append((compute.ln_f, 2 * C * size, False))
    all_ranges += [(compute.block, (12 * C * C + 13 * C) * size, True)] * shape.L
    all_ranges.append((compute.embedding, shape.T * C * size, True))
    return all_ranges if early_head else all_ranges + [(0, wte, True)]


def late_bytes(shape, rows):
    """What the host's reducer sums last in exact mode: marks, then chunks of rows, then the tail."""
    marks, rest = [padded_rows(shape) * 2], rows * shape.C * 8
    return marks + [min(LATE_CHUNK, rest - first) for first in range(0, int(rest), LATE_CHUNK)] + [64]


def play(shape, compute, link, reduce, slots, last=(64,), overlap=True, early_head=False, bucket=BUCKET,
         is_wte_cut=True):
    """last: bytes of the sums that begin when all buckets are done. early_head: whether lm_head's part of wte
    goes first. is_wte_cut: whether what is final at the very end is cut into buckets too."""
    now, link_free, comm, total, pending, cut = 0.0, 0.0, 0.0, 0, 0, 0

    def launch(size):
        nonlocal link_free, comm, total, cut
        ms = link.latency_ms + size / link.bytes_per_ms
        link_free = max(link_free, now) + ms
        comm, total, cut = comm + ms, total + size, cut + 1

    buckets = []
    all_ranges = ranges(shape, compute, reduce, early_head)
    for index, (work, size, joins) in enumerate(all_ranges):
        if overlap:  # compute is slower while the link is busy
            slow = min(work * (1 + link.slowdown), max(0.0, link_free - now))
            now += slow + (work - slow / (1 + link.slowdown))
        else:
            now += work
        flush = [pending] if pending and not joins else []
        pending = size if flush else pending + size
        is_cut = is_wte_cut or index + 1 < len(all_ranges)
        while is_cut and pending >= (FIRST_BUCKET if cut + len(flush) + len(buckets) == 0 else bucket):
            flush.append(FIRST_BUCKET if cut + len(flush) + len(buckets) == 0 else bucket)
            pending -= flush[-1]
        for one in flush:
            launch(one) if overlap else buckets.append(one)
    end = now
    for one in buckets + ([pending] if pending else []):
        launch(one)
    now = max(now, link_free)
    for one in last:
        launch(one)
    exposed = link_free - end
    compute_ms = (slots - 1) * compute.slot + end
    return Step(compute_ms + exposed + compute.update, compute_ms, comm, exposed, total)


# ---- fitted to the CPU program ---------------------------------------------------------------------------


def wire_share(N):
    """How often each byte crosses a rank's link in a ring."""
    return 2 * (N - 1) / N


def fit_link(row):
    """From buckets that nothing disturbs: least squares of ms = latency + bytes / bandwidth."""
    N = row["ranks"]
    points = [(size * wire_share(N), ms) for _, size, ms in row["buckets"][1:] if size > 4096]
    mean_x, mean_y = (statistics.mean(one[i] for one in points) for i in (0, 1))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return max(0.0, mean_y - slope * mean_x) / (2 * (N - 1)), 1 / slope / (row["mbit"] / 8 * 1e3)


def shape_of(row):
    options = row["options"]
    return Shape(options["n_layer"], options["n_embd"], options["vocab_size"], options["block_size"])


def find(rows, **what):
    return next((row for row in rows if all(row[key] == value for key, value in what.items())), None)


def late_rows_of(row):
    return sum(size for name, size, _ in row["buckets"] if name == "late rows") / (8 * shape_of(row).C)


def play_row(row, compute, link_fit, slowdown, crowd):
    """The step of a measured row; crowd: how many times slower compute is, because ranks share cores."""
    N = row["ranks"]
    options = row["options"]
    latency_ms, efficiency = link_fit
    bandwidth = efficiency * row["mbit"] / 8 * 1e3 / wire_share(N) if N > 1 else math.inf
    busy = slowdown * crowd * row["mbit"] / 4000  # bytes cost processor time
    scaled = Compute(*(part * crowd for part in compute))
    link = Link(latency_ms * 2 * (N - 1), bandwidth, busy)
    slots = -(-options["gradient_accumulation_steps"] // N)
    if N == 1:
        return Step(slots * scaled.slot + scaled.update, slots * scaled.slot, 0, 0, 0)
    is_exact = row["reduce"] == "exact"
    last = late_bytes(shape_of(row), late_rows_of(row)) if is_exact else [64]
    return play(shape_of(row), scaled, link, row["reduce"], slots, last, row["overlap"] == "on",
                early_head=is_exact)


def fit_slowdown(row, compute, link_fit, crowd):
    """The slowdown at 4000 Mb/s that gives the compute time measured with overlap."""
    low, high = 0.0, 2.0
    for _ in range(40):
        middle = (low + high) / 2
        if play_row(row, compute, link_fit, middle, crowd).compute < row["compute_ms"]:
            low = middle
        else:
            high = middle
    return low


def check(rows):
    base = find(rows, ranks=2, reduce="exact", overlap="off")
    with_overlap = find(rows, ranks=2, reduce="exact", overlap="on", mbit=base["mbit"])
    compute = Compute(base["slot_ms"], base["head_ms"], base["ln_f_ms"], base["block_ms"],
                      base["embedding_ms"],
                      base["update_ms"])
    link_fit = fit_link(base)
    slowdown = fit_slowdown(with_overlap, compute, link_fit, 1)
    print("fitted to 2 ranks, exact, %d Mb/s: %.3f ms for a step of the ring, %.1f%% of the link's rate,"
          " one block's"
          % (base["mbit"], link_fit[0], 100 * link_fit[1]))
    print("backward %.0f ms, all of a slot %.0f ms; compute is %.1f%% slower while 4000 Mb/s are on their way"
          % (compute.block, compute.slot, 100 * slowdown))
    print("\nranks  overlap reduce Mb/s |  step ms: measured predicted  error | exposed: measured predicted |"
          " hidden: measured predicted")
    errors = []
    for row in rows:
        crowd = max(1.0, row["ranks"] / row["cores"])
        step = play_row(row, compute, link_fit, slowdown, crowd)
        error = step.ms / row["ms"] - 1
        is_fitted = row is base or row is with_overlap
        errors += [] if is_fitted else [abs(error)]
        hidden = ("%16.3f %9.3f" % (row["hidden"], 1 - step.exposed / step.comm)) if row["ranks"] > 1 else ""
        print("%5d  %-7s %-6s %4d | %18.0f %9.0f %+5.1f%% | %17.0f %9.0f | %s%s" %
              (row["ranks"], row["overlap"] if row["ranks"] > 1 else "-", row["reduce"], row["mbit"],
               row["ms"], step.ms,
               100 * error, row["exposed_ms"], step.exposed, hidden, "  (fitted)" if is_fitted else ""))
    print("step time of what was not fitted: mean error %.1f%%, largest %.1f%%" %
          (100 * statistics.mean(errors), 100 * max(errors)) if errors else "")
    check_late_rows(rows, with_overlap, compute, link_fit, slowdown)


def check_late_rows(rows, exact, compute, link_fit, slowdown):
    """What it gains that lm_head's part of wte goes first: fp32 sends half the bytes and wte as a whole at
    the end, so that on a link of half the rate it is the same step without late rows."""
    link = Link(link_fit[0] * 2, link_fit[1] * exact["mbit"] / 8 * 1e3, slowdown * exact["mbit"] / 4000)
    slots = exact["options"]["gradient_accumulation_steps"] // 2
    last = late_bytes(shape_of(exact), late_rows_of(exact))
    with_rows = play(shape_of(exact), compute, link, "exact", slots, last, early_head=True)
    without = play(shape_of(exact), compute, link, "exact", slots)
    print("\nwte's tail, 2 ranks at %d Mb/s, overlap: exposed ms and hidden fraction" % exact["mbit"])
    print("  predicted: lm_head's part first %.0f %.3f, wte as a whole last %.0f %.3f; "
          "step %.0f ms and %.0f" %
          (with_rows.exposed, 1 - with_rows.exposed / with_rows.comm, without.exposed,
           1 - without.exposed / without.comm,
           with_rows.ms, without.ms))
    fp32 = find(rows, ranks=2, reduce="fp32", overlap="on", mbit=exact["mbit"] // 2)
    if fp32:  # its step has fewer bytes for the processor too, and is not compared
        print("  measured: lm_head's part first %.0f %.3f, wte as a whole last (fp32 at half the rate) "
              "%.0f %.3f" %
              (exact["exposed_ms"], exact["hidden"], fp32["exposed_ms"], fp32["hidden"]))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("measured", help="what scaling.py --json wrote")
    with open(parser.parse_args().measured) as file:
        check([json.loads(line) for line in file])


if __name__ == "__main__":
    sys.exit(main())
