#!/usr/bin/env python3
"""What a step of GPT-2 124M takes on 8 to 1,024 GPUs, on paper: scaling_model.py's play of a step, with rates
of products, attention and memory for the compute, and published rates of NCCL for the all-reduce.

    dev/bench/scaling_gpu.py                        H100; --gpu a100: A100
    dev/bench/scaling_gpu.py --sms 32 --latency 4   32 of its SMs for NCCL, 4 times its latency
    dev/bench/scaling_gpu.py --products 790 --attention_forward 790 --attention_backward 790 --memory_share 1
                                                    the bound of every operation instead of what is expected

NCCL's reducer (llmc/comm/nccl) sums wte as a whole at the end; flags and loss ride in the last bucket.
Nothing here was measured by this project: each rate is an argument, and its source is printed.
"""
import argparse
import math
import sys
from collections import namedtuple

from scaling_model import BUCKET, FIRST_BUCKET, GPT2, WIRE_BYTES, Compute, Link, padded_rows, play, wire_share

# peak: dense bf16 products, TFLOP/s; memory in TB/s; bus bandwidths in GB/s as nccl-tests print them: of 8
# GPUs (best, and by rings), of the links of a node with one for each GPU, of one link. sms: multiprocessors.
# has_nvls: NVLink SHARP. public_ms: llm.c's step of 524,288 tokens on 8 of them, in bf16.
Gpu = namedtuple("Gpu", "name peak memory node_gb ring_gb links_gb link_gb link_name sms has_nvls public_ms")
GPUS = {"h100": Gpu("H100", 989, 3.35, 480, 370, 8 * 47, 47, "400 Gb/s", 132, True, 140),
        "a100": Gpu("A100", 312, 2.04, 230, 230, 8 * 23.5, 23.5, "200 Gb/s", 108, False, 300)}

# On an H100, what dev/bench/budget.py expects: one rate for products, two for attention, and of what is bound
# by memory the share of 3.35 TB/s that its kernels reach together. mma.sync reaches 62% of an H100's peak and
# all of an A100's.
PRODUCTS, ATTENTION_FORWARD, ATTENTION_BACKWARD = 608, 247, 199
MMA_SYNC_SHARE = 0.62
MEMORY_SHARE = 0.84
SLOT_BYTES = 53.8e9  # of a slot of 64 x 1,024 tokens, besides products and attention
UPDATE_BYTES = 26  # of an element, besides reading its gradient twice

# NCCL's own model of itself (src/graph/tuning.cc, 2.2x): us of an all-reduce before bytes count.
BASE_US, RING_STEP_US, TREE_STEP_US, NETWORK_STEP_US, NVLS_US, TREE_SHARE = 8.4, 3.4, 4.0, 14.0, 25.0, 0.92
COUNTERS_US = 6  # two kernels of one thread around each bucket, which the watchdog watches
NODE_GPUS = 8
SLOT_ROWS = 64
COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024)
MODES = ("exact", "fp32", "bf16")
PARAMETERS = GPT2.L * (12 * GPT2.C ** 2 + 13 * GPT2.C) + 2 * GPT2.C + (padded_rows(GPT2) + GPT2.T) * GPT2.C


# ---- a GPU's work ------------------------------------------------------------------------------------------


def gpu_compute(gpu, arguments, reduce, rows=SLOT_ROWS):
    """Of a slot of `rows` rows, in ms; reduce None: of a GPU alone with one slot, whose gradients stay fp32.
    """
    L, C, _, T = GPT2
    tokens = rows * T
    scale = gpu.peak / GPUS["h100"].peak
    attention_scale = scale if gpu.name == "H100" else scale / MMA_SYNC_SHARE
    products = arguments.products * scale * 1e9  # a ms
    memory = gpu.memory * arguments.memory_share * 1e9
    fold = 12 / memory if reduce == "exact" else 0  # one slot: fp32 in, int64 out
    block, wte = 12 * C * C + 13 * C, padded_rows(GPT2) * C
    attention = 4 * rows * T * T * C / 2  # causal, forward; backward is 2.5 times that
    attention_forward = attention / (arguments.attention_forward * attention_scale * 1e9)
    attention_backward = 2.5 * attention / (arguments.attention_backward * attention_scale * 1e9)
    moved = SLOT_BYTES * rows / SLOT_ROWS / L / 3 / memory  # a block's forward; backward moves twice that
    block_forward = 24 * C * C * tokens / products + attention_forward + moved
    block_backward = 48 * C * C * tokens / products + attention_backward + 2 * moved + block * fold
    head = L * block_forward + 6 * padded_rows(GPT2) * C * tokens / products + wte * fold
    update = PARAMETERS * (UPDATE_BYTES + 2 * (8 if reduce == "exact" else 4)) / memory
    return Compute(head + L * block_backward, head, 0.0, block_backward, 0.0, update)


def alone_ms(gpu, arguments, rows=SLOT_ROWS):
    compute = gpu_compute(gpu, arguments, None, rows)
    return compute.slot + compute.update


# ---- NCCL --------------------------------------------------------------------------------------------------


def algorithms(gpu, between_gb, N):
    """(us before bytes count, bus bandwidth) of what NCCL may choose."""
    nodes = max(1, N // NODE_GPUS)
    steps = 2 * (min(N, NODE_GPUS) - 1)
    if nodes == 1:
        found = [(BASE_US + steps * RING_STEP_US, gpu.ring_gb)]
        return found + [(NVLS_US, gpu.node_gb)] if gpu.has_nvls else found
    crossing = 2 * (nodes - 1)
    bandwidth = min(gpu.ring_gb, between_gb)
    return [(BASE_US + (2 * (N - 1) - crossing) * RING_STEP_US + crossing * NETWORK_STEP_US, bandwidth),
            (BASE_US + steps * TREE_STEP_US + 2 * math.log2(nodes) * NETWORK_STEP_US, bandwidth * TREE_SHARE)]


def gpu_link(gpu, arguments, between_gb, N):
    """The algorithm that is best for a bucket."""
    links = [((us * arguments.latency + COUNTERS_US) / 1e3, gb * arguments.bandwidth * 1e6 / wire_share(N))
             for us, gb in algorithms(gpu, between_gb, N)]
    latency_ms, bytes_per_ms = min(links, key=lambda one: one[0] + BUCKET / one[1])
    share = arguments.sms / gpu.sms
    return Link(latency_ms, bytes_per_ms, share / (1 - share))


def step_of(gpu, arguments, between_gb, N, reduce, rows=SLOT_ROWS, **how):
    last = how.pop("last", ())  # flags and loss need no all-reduce of their own
    how.setdefault("is_wte_cut", reduce == "bf16")  # whose buckets have to fit into a buffer
    compute, link = gpu_compute(gpu, arguments, reduce, rows), gpu_link(gpu, arguments, between_gb, N)
    return play(GPT2, compute, link, reduce, 1, last, **how)


def hidden(step):
    return 1 - step.exposed / step.comm


# ---- what is printed ---------------------------------------------------------------------------------------


def print_assumptions(gpu, arguments):
    compute = gpu_compute(gpu, arguments, None)
    print("""GPT-2 124M, T = 1,024, bf16, on %s
compute: products %g TFLOP/s, attention forward %g, backward %g on an H100 (on an A100 by peak, attention by
  that of mma.sync); memory at %g of %g TB/s; 64 rows take a GPU alone %.1f ms, of which update %.1f,
  backward of a block %.2f
  [dev/bench/budget.py: expected, measured on no GPU]""" %
          (gpu.name, arguments.products, arguments.attention_forward, arguments.attention_backward,
           arguments.memory_share, gpu.memory, alone_ms(gpu, arguments), compute.update, compute.block))
    print("""NCCL: bus bandwidth %g GB/s in a node, %g by rings; a node's links of %s: %g GB/s with one for
  each GPU, %g with one [public nccl-tests results]; latency of an all-reduce by the constants of NCCL's
  src/graph/tuning.cc, ring or tree, what is quicker for a bucket, and %d us for our counters; times %g;
  bandwidths times %g
  NCCL's kernels take %d of %d SMs from compute while a bucket is on its way [assumed]""" %
          (gpu.node_gb, gpu.ring_gb, gpu.link_name, gpu.links_gb, gpu.link_gb, COUNTERS_US, arguments.latency,
           arguments.bandwidth, arguments.sms, gpu.sms))
    print("""buckets of 1, then 25 MB, wte last and uncut but in bf16, %d in exact mode; a slot a GPU
efficiency: of as many GPUs alone, with fp32 gradients. Fewer rows are taken to run at the same rates""" %
          (2 + ((PARAMETERS - GPT2.V * GPT2.C) * WIRE_BYTES["exact"] - FIRST_BUCKET) // BUCKET))


def print_check(gpu, arguments):
    step = step_of(gpu, arguments, None, NODE_GPUS, "bf16")
    print("""
checked: 8 GPUs, 524,288 tokens, bf16 all-reduce: predicted %.0f ms (all-reduce %.2f, exposed %.2f); llm.c's
public result about %d ms: error %+.0f%%. Nothing was fitted. A network without cost would make it %.0f ms:
the result can judge the compute rates, which are of other kernels, and not the all-reduce""" %
          (step.ms, step.comm, step.exposed, gpu.public_ms, 100 * (step.ms / gpu.public_ms - 1),
           alone_ms(gpu, arguments)))


def print_table(gpu, arguments, title, counts, rows_of, between_gb):
    print("\n%s\n GPUs  rows | exact: step ms exposed hidden effic. | fp32: step ms exposed hidden effic. |"
          " bf16: step ms exposed hidden effic. | Mtok/s exact" % title)
    for N in counts:
        rows = rows_of(N)
        cells = []
        for reduce in MODES:
            step = step_of(gpu, arguments, between_gb, N, reduce, rows)
            cells.append((step, "%13.1f %7.2f %6.3f %6.3f" % (step.ms, step.exposed, hidden(step),
                                                             alone_ms(gpu, arguments, rows) / step.ms)))
        print("%5d %5d | %s | %s | %s | %8.1f" %
              (N, rows, *(text for _, text in cells), N * rows * 1024 / cells[0][0].ms / 1e3))


def distinct_tokens(draws):
    """Expected, of words as frequent as Zipf says: how many rows are late."""
    weights = [1 / (k + 2.7) for k in range(GPT2.V)]
    total = sum(weights)
    return sum(1 - math.exp(-draws * weight / total) for weight in weights)


def late_step(gpu, arguments, between_gb, N, share):
    """wte's dense part first; at the end marks, and the rows of that share of the vocabulary."""
    rows = share * GPT2.V
    last = (padded_rows(GPT2) * 2, rows * GPT2.C * 8)
    return step_of(gpu, arguments, between_gb, N, "exact", last=last, early_head=True)


def break_even(gpu, arguments, between_gb, N, ms):
    """The share of rows at which late rows neither gain nor lose; None if they lose at any."""
    low, high = 0.0, 1.0
    if late_step(gpu, arguments, between_gb, N, low).ms >= ms:
        return None
    for _ in range(30):
        middle = (low + high) / 2
        gains = late_step(gpu, arguments, between_gb, N, middle).ms < ms
        low, high = (middle, high) if gains else (low, middle)
    return low


def print_tail(gpu, arguments, networks):
    print("""
wte's tail, exact, 64 rows a GPU: as it is, in one all-reduce; cut into buckets, and what that would cost;
lm_head's part first and late rows last in one all-reduce, what that would gain, and of how few rows it would
(late rows: as many as Zipf's law expects [assumed])
                                               GPUs |  exposed    step |     cut   cost |\
 late rows    step   gain | gains below""")
    for title, between_gb, counts in networks:
        for N in counts:
            now = step_of(gpu, arguments, between_gb, N, "exact")
            cut = step_of(gpu, arguments, between_gb, N, "exact", is_wte_cut=True)
            rows = distinct_tokens(N * SLOT_ROWS * 1024)
            late = late_step(gpu, arguments, between_gb, N, rows / GPT2.V)
            limit = break_even(gpu, arguments, between_gb, N, now.ms)
            print("%-45s %5d | %8.2f %7.1f | %7.1f %+5.1f%% | %9d %7.1f %+5.1f%% | %s" %
                  (title, N, now.exposed, now.ms, cut.ms, 100 * (cut.ms / now.ms - 1), rows, late.ms,
                   100 * (1 - late.ms / now.ms),
                   "never" if limit is None else "%.0f%% of rows" % (100 * limit)))


def print_sensitivity(gpu, arguments):
    print("\nwhat the assumptions matter, 64 GPUs, a link of %s for each, exact: step ms, exposed, hidden,"
          " efficiency" % gpu.link_name)
    cases = [("as above", {})] + [("latency times %g" % x, {"latency": x}) for x in (0, 0.5, 2, 4)]
    cases += [("bandwidths times %g" % x, {"bandwidth": x}) for x in (0.5, 2)]
    cases += [("%d SMs for NCCL" % x, {"sms": x}) for x in (0, 8, 32)]
    cases += [("buckets of %d MB" % x, {"bucket": x}) for x in (5, 100)]
    for name, change in cases:
        how = {"bucket": change.pop("bucket") << 20} if "bucket" in change else {}
        other = argparse.Namespace(**{**vars(arguments), **change})
        step = step_of(gpu, other, gpu.links_gb, 64, "exact", **how)
        print("  %-22s %7.1f %6.2f %6.3f %6.3f" %
              (name, step.ms, step.exposed, hidden(step), alone_ms(gpu, other) / step.ms))


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--gpu", choices=GPUS, default="h100")
    parser.add_argument("--products", type=float, default=PRODUCTS, help="TFLOP/s on an H100")
    parser.add_argument("--attention_forward", type=float, default=ATTENTION_FORWARD)
    parser.add_argument("--attention_backward", type=float, default=ATTENTION_BACKWARD)
    parser.add_argument("--memory_share", type=float, default=MEMORY_SHARE)
    parser.add_argument("--sms", type=int, default=16, help="that NCCL's kernels take")
    parser.add_argument("--latency", type=float, default=1, help="times NCCL's constants")
    parser.add_argument("--bandwidth", type=float, default=1, help="times the published ones")
    return parser.parse_args()


def main():
    arguments = parse()
    gpu = GPUS[arguments.gpu]
    print_assumptions(gpu, arguments)
    print_check(gpu, arguments)
    many = "nodes of 8, a link of %s for each GPU" % gpu.link_name
    one = "nodes of 8, one link of %s" % gpu.link_name
    print_table(gpu, arguments, "524,288 tokens a step; " + many, COUNTS[:4], lambda N: 512 // N,
                gpu.links_gb)
    print_table(gpu, arguments, "65,536 tokens a GPU; " + many, COUNTS, lambda N: SLOT_ROWS, gpu.links_gb)
    print_table(gpu, arguments, "65,536 tokens a GPU; " + one, COUNTS[1:], lambda N: SLOT_ROWS, gpu.link_gb)
    print_tail(gpu, arguments, [("one node", None, COUNTS[:1]), (many, gpu.links_gb, (16, 64, 256, 1024)),
                                (one, gpu.link_gb, (16, 64, 256, 1024))])
    print_sensitivity(gpu, arguments)


if __name__ == "__main__":
    sys.exit(main())
