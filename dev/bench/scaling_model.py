#!/usr/bin/env python3
"""What a step takes and how much of its all-reduce is hidden: a model fitted to what scaling.py measured,
checked against it, and then asked about GPUs.

    dev/bench/scaling_model.py dev/bench/results/scaling.json        the check, then the predictions
    dev/bench/scaling_model.py --gpu a100 --tokens_per_slot 16384    the predictions with other assumptions

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
    """Marks, then chunks of rows, then the tail."""
    marks, rest = [padded_rows(shape) * 2], rows * shape.C * 8
    return marks + [min(LATE_CHUNK, rest - first) for first in range(0, int(rest), LATE_CHUNK)] + [64]


def play(shape, compute, link, reduce, slots, late_rows=0, overlap=True, early_head=None):
    """early_head: whether lm_head's part of wte goes first and late rows last."""
    early_head = reduce == "exact" if early_head is None else early_head
    now, link_free, comm, total, pending, cut = 0.0, 0.0, 0.0, 0, 0, 0

    def launch(size):
        nonlocal link_free, comm, total, cut
        ms = link.latency_ms + size / link.bytes_per_ms
        link_free = max(link_free, now) + ms
        comm, total, cut = comm + ms, total + size, cut + 1

    buckets = []
    for work, size, joins in ranges(shape, compute, reduce, early_head):
        if overlap:  # compute is slower while the link is busy
            slow = min(work * (1 + link.slowdown), max(0.0, link_free - now))
            now += slow + (work - slow / (1 + link.slowdown))
        else:
            now += work
        flush = [pending] if pending and not joins else []
        pending = size if flush else pending + size
        while pending >= (FIRST_BUCKET if cut + len(flush) + len(buckets) == 0 else BUCKET):
            flush.append(FIRST_BUCKET if cut + len(flush) + len(buckets) == 0 else BUCKET)
            pending -= flush[-1]
        for one in flush:
            launch(one) if overlap else buckets.append(one)
    end = now
    for one in buckets + ([pending] if pending else []):
        launch(one)
    now = max(now, link_free)
    for one in late_bytes(shape, late_rows) if reduce == "exact" and early_head else [64]:
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
    return play(shape_of(row), scaled, link, row["reduce"], slots, late_rows_of(row), row["overlap"] == "on")


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
    with_rows, without = (play(shape_of(exact), compute, link, "exact", slots, late_rows_of(exact),
                               early_head=early)
                          for early in (True, False))
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


# ---- asked about GPUs --------------------------------------------------------------------------------------

# Dense bf16 products a second, bytes of memory a second, and what NCCL's all-reduce over NVLink makes of the
# links of 8 GPUs (bus bandwidth, GB/s, as nccl-tests print it: NVLink SHARP on H100, rings on A100).
Gpu = namedtuple("Gpu", "name flops memory nvlink_gb")
GPUS = {"h100": Gpu("H100", 989e12, 3.35e12, 480), "h100ring": Gpu("H100, rings", 989e12, 3.35e12, 370),
        "a100": Gpu("A100", 312e12, 2.0e12, 230)}
MEMORY_SHARE = 0.8  # of the memory's rate that reading and writing in a row reaches
# Of an all-reduce; and each way for each level of a tree of nodes.
NVLINK_LATENCY_MS, NETWORK_LATENCY_MS = 0.020, 0.010
NODE_GPUS = 8
NETWORKS = [("NVLink between all (beyond 72 GPUs no such machine is sold)", None),
            ("nodes of 8 with a 400 Gb/s link for each GPU", 8 * 47.0),
            ("nodes of 8 with one 400 Gb/s link", 47.0),
            ("nodes of 8 with a 100 Gb/s link for each GPU", 8 * 11.5),
            ("nodes of 8 with one 100 Gb/s link", 11.5)]


def gpu_compute(gpu, arguments, reduce):
    """In ms: products at a part of the peak, backward twice forward; sums and the update by memory's rate."""
    L, C, V, T = GPT2
    memory = gpu.memory * MEMORY_SHARE
    rate = gpu.flops * arguments.mfu / 1e3 / arguments.tokens_per_slot
    fold = 20 / memory * 1e3 if reduce == "exact" else 0  # fp32 in, int64 in and out
    block, wte = 12 * C * C + 13 * C, padded_rows(GPT2) * C
    block_forward = (24 * C * C + 2 * T * C) / rate
    head = L * block_forward + 6 * V * C / rate + wte * fold
    block_backward = 2 * block_forward + block * fold
    parameters = L * block + wte + T * C
    gradient_bytes = 8 if reduce == "exact" else 4
    update = parameters * (26 + 2 * gradient_bytes) / memory * 1e3  # state there and back, gradient twice
    return Compute(head + L * block_backward, head, 0.01, block_backward, 0.05, update)


def gpu_link(gpu, network_gb, N, slowdown):
    nodes = max(1, N // NODE_GPUS)
    if network_gb is None or nodes == 1:
        return Link(NVLINK_LATENCY_MS, gpu.nvlink_gb * 1e6 / wire_share(N), slowdown)
    latency_ms = NVLINK_LATENCY_MS + 2 * math.log2(nodes) * NETWORK_LATENCY_MS
    return Link(latency_ms, min(gpu.nvlink_gb, network_gb) * 1e6 / wire_share(N), slowdown)


def distinct_tokens(draws):
    """Expected, of words as frequent as Zipf says: how many rows are late."""
    weights = [1 / (k + 2.7) for k in range(GPT2.V)]
    total = sum(weights)
    return sum(1 - math.exp(-draws * weight / total) for weight in weights)


def predict(arguments):
    gpu = GPUS[arguments.gpu]
    print("\nGPT-2 124M on %s: assumptions, none of them measured here" % gpu.name)
    print("- products at %.0f%% of %.0f TF/s, backward twice forward; exact sums and AdamW at %.0f%% of "
          "%.2f TB/s" %
          (100 * arguments.mfu, gpu.flops / 1e12, 100 * MEMORY_SHARE, gpu.memory / 1e12))
    print("- a slot has %s tokens; G = 40 slots, or one for each GPU where there are more" %
          format(arguments.tokens_per_slot, ","))
    print("- all-reduce: bus bandwidth %d GB/s by NVLink, 47 and 11.5 GB/s by a link of 400 and 100 Gb/s; "
          "%.0f us for each," %
          (gpu.nvlink_gb, 1e3 * NVLINK_LATENCY_MS))
    print("  and twice %.0f us for each level of a binary tree of nodes; compute %.0f%% slower meanwhile" %
          (1e3 * NETWORK_LATENCY_MS, 100 * arguments.slowdown))
    print("- tokens as frequent as Zipf says: they decide how many rows are late")
    late = {N: distinct_tokens(N * arguments.tokens_per_slot) for N in (8, 16, 32, 64, 128, 256, 512, 1024)}
    for name, network_gb in NETWORKS:
        print("\n%s\n GPUs slots late rows | exact: step ms hidden  without late rows | fp32: step ms hidden "
              "|"
              " bf16: step ms hidden" % name)
        for N, late_rows in late.items():
            slots = -(-max(40, N) // N)
            link = gpu_link(gpu, network_gb, N, arguments.slowdown)
            ways = (("exact", True), ("exact", False), ("fp32", False), ("bf16", False))
            steps = [play(GPT2, gpu_compute(gpu, arguments, reduce), link, reduce, slots, late_rows,
                          early_head=early) for reduce, early in ways]
            hidden = [1 - step.exposed / step.comm for step in steps]
            print("%5d %5d %9d | %14.1f %6.2f %13.1f %+5.1f%% | %13.1f %6.2f | %13.1f %6.2f" %
                  (N, slots, late_rows, steps[0].ms, hidden[0], steps[1].ms,
                   100 * (steps[1].ms / steps[0].ms - 1),
                   steps[2].ms, hidden[2], steps[3].ms, hidden[3]))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("measured", nargs="?", help="what scaling.py --json wrote")
    parser.add_argument("--gpu", choices=GPUS, default="h100")
    parser.add_argument("--mfu", type=float, default=0.45)
    parser.add_argument("--tokens_per_slot", type=int, default=12 * 1024)
    parser.add_argument("--slowdown", type=float, default=0.08)
    arguments = parser.parse_args()
    if arguments.measured:
        with open(arguments.measured) as file:
            check([json.loads(line) for line in file])
    predict(arguments)


if __name__ == "__main__":
    sys.exit(main())
