#!/usr/bin/env python3
"""Where the time of a step goes on a GPU, on paper: operations, bytes, bound, expected time of each kernel.

    dev/bench/budget.py                             GPT-2 124M, B 64, T 1024, one slot, on an H100
    dev/bench/budget.py --gpu=a100 --B=24 --model=gpt2-medium --slots=8
    dev/bench/budget.py --before                    the kernels before what dev/notes/cuda.md counts
    dev/bench/budget.py --each                      each kernel, not their groups
    dev/bench/budget.py --residual=bf16             the stream and its gradient in bf16
    dev/bench/budget.py --bgrad                     as if cuBLASLt summed fc's bias gradient: not known

No GPU has measured any of this. Operations and bytes are counted: each input read once, each output written
once, unless a kernel is known to do more. What share of its bound a kernel reaches is assumed (SHARES): a
review's estimate from machine code of sm_90a, scaled to other GPUs by their rates. A measurement replaces it.
"""
import argparse
from collections import namedtuple

# Dense bf16 operations and bytes a second, as the makers' data sheets give them. products: the share of it
# that cuBLASLt's products reach on average. mma: the share that mma.sync can reach, which attention uses.
# has_gelu: GELU is part of cuBLASLt's products (by rule from sm_90 on), not kernels of our own.
Gpu = namedtuple("Gpu", "name flops bandwidth products mma has_gelu")
GPUS = {"h100": Gpu("H100 SXM", 989e12, 3.35e12, 0.616, 0.62, True),
        "h200": Gpu("H200 SXM", 989e12, 4.8e12, 0.616, 0.62, True),
        "a100": Gpu("A100 80 GB SXM", 312e12, 2.04e12, 0.68, 1.0, False)}
Shape = namedtuple("Shape", "L C NH")
MODELS = {"gpt2": Shape(12, 768, 12), "gpt2-medium": Shape(24, 1024, 16), "gpt2-large": Shape(36, 1280, 20),
          "gpt2-xl": Shape(48, 1600, 25)}
V, VP = 50257, 50304

# The share of its bound that a kernel is expected to reach, before the changes and now. Attention's is of
# mma.sync's rate, and of the five products of backward that are needed, not of the seven that are made.
SHARES = {"attention forward": (0.373, 0.403), "attention backward": (0.298, 0.325),
          "layer norm forward": (0.82, 0.85), "layer norm backward": (0.72, 0.82),
          "GELU": (0.82, 0.82), "classifier": (0.895, 0.895),
          "bias gradients": (0.81, 0.81), "embeddings": (0.82, 0.82),
          "norm, AdamW": (0.80, 0.80), "exact fold": (0.82, 0.82)}
SECOND_STAGE_US = (7.0, 3.0)       # a launch that adds up what blocks have summed
FREQUENT_TOKEN_MS = (0.6, 0.0)     # one block sums all rows of a token that is 5% of 65,536
LOGIT_BYTES = (512 << 20, 2 << 30)
ACCUMULATE_EXPOSED = 0.72          # of reading and writing d_wte again for each chunk of logits
GAPS_MS = 1.0                      # between kernels and steps

Kernel = namedtuple("Kernel", "group name calls flops bytes ms bound")


def chunk_count(rows, is_before):
    chunk = LOGIT_BYTES[not is_before] // (2 * VP)
    if chunk > 256:
        chunk -= chunk % 256
    return -(-rows // chunk)


def products(gpu, shape, rows, is_before):
    """The three products of each layer; lm_head's chunk by chunk."""
    C = shape.C
    for name, inputs, outputs, calls in (("qkv", C, 3 * C, shape.L), ("proj", C, C, shape.L),
                                         ("fc", C, 4 * C, shape.L), ("fcproj", 4 * C, C, shape.L),
                                         ("lm_head", C, VP, 1)):
        flops = 2.0 * rows * inputs * outputs
        moved = 2.0 * (rows * inputs + rows * outputs + inputs * outputs)
        for kind in ("forward", "d_input", "d_weight"):
            extra = 0.0
            if name == "lm_head" and kind == "d_weight":
                extra = 8.0 * inputs * outputs * (chunk_count(rows, is_before) - 1)
            if kind == "d_weight":
                moved += 2.0 * inputs * outputs  # fp32
            bound = max(flops / gpu.flops, (moved + extra) / gpu.bandwidth)
            ms = flops / (gpu.flops * gpu.products) + extra / gpu.bandwidth * ACCUMULATE_EXPOSED
            yield Kernel("products", name + " " + kind, calls, flops, moved + extra, 1e3 * ms, 1e3 * bound)


def streaming(gpu, group, name, calls, moved, is_before, extra_ms=0.0):
    bound = 1e3 * moved / gpu.bandwidth
    return Kernel(group, name, calls, 0.0, moved, bound / SHARES[group][not is_before] + extra_ms, bound)


def attention(gpu, group, calls, flops, moved, is_before):
    rate = gpu.flops * gpu.mma
    bound = 1e3 * max(flops / rate, moved / gpu.bandwidth)
    return Kernel(group, group, calls, flops, moved, 1e3 * flops / rate / SHARES[group][not is_before], bound)


def gelu(gpu, shape, E, is_before, has_sums):
    """Of our own: forward, and backward with the sums of fc's bias gradient. Where cuBLASLt's products have
    GELU, these sums are a pass, unless it sums too."""
    if not is_before and not gpu.has_gelu:
        yield streaming(gpu, "GELU", "forward", shape.L, 16 * E, is_before)
        yield streaming(gpu, "GELU", "backward, with sums", shape.L, 24 * E, is_before)
    elif is_before or not has_sums:
        yield streaming(gpu, "bias gradients", "fc", shape.L, 8 * E, is_before)


def kernels(gpu, shape, B, T, slots, is_before, has_sums, S):
    """Of one slot; then of the update, whose calls are those of a step. S: bytes of the stream's elements."""
    L, C = shape.L, shape.C
    rows = B * T
    E = float(rows * C)
    found = list(products(gpu, shape, rows, is_before))
    flops = 2.0 * B * T * T * C  # the causal half of two products
    found.append(attention(gpu, "attention forward", L, flops, 8 * E, is_before))
    moved = (20 if is_before else 18) * E
    found.append(attention(gpu, "attention backward", L, 2.5 * flops, moved, is_before))
    found.append(streaming(gpu, "layer norm forward", "with the branch", 2 * L, (4 + 2 * S) * E, is_before))
    found.append(streaming(gpu, "layer norm forward", "the first", 1, (2 + S) * E, is_before))
    found.append(streaming(gpu, "layer norm backward", "of a block", 2 * L - 1, (4 + 3 * S) * E, is_before))
    found.append(streaming(gpu, "layer norm backward", "the last and the first", 1, (6 + 5 * S) * E,
                           is_before))
    found += gelu(gpu, shape, E, is_before, has_sums)
    for name, width in (("qkv", 3), ("proj", 1), ("fcproj", 1)) if is_before else ():
        found.append(streaming(gpu, "bias gradients", name, L, 2 * width * E, is_before))
    passes = 3 if is_before else 2
    found.append(streaming(gpu, "classifier", "classifier", 1, 2.0 * passes * rows * VP, is_before))
    calls = 2 * (2 * L + 1) + 4 * L if is_before else (2 * L + 1) + 3 * L + 1
    found.append(Kernel("second stages", "second stages", calls, 0.0, 0.0,
                        1e-3 * SECOND_STAGE_US[not is_before], 0.0))
    found.append(streaming(gpu, "embeddings", "forward", 1, (4 + S) * E, is_before))
    found.append(streaming(gpu, "embeddings", "d_wpe", 1, S * E, is_before))
    found.append(streaming(gpu, "embeddings", "d_wte", 1, S * E + 8.0 * VP * C, is_before,
                           FREQUENT_TOKEN_MS[not is_before] * rows / 65536))
    parameters = L * (12 * C * C + 13 * C) + 2 * C + (VP + T) * C
    if slots > 1:
        moved = (20.0 * slots - 8) / slots * parameters
        found.append(streaming(gpu, "exact fold", "into int64", 1, moved, is_before))
    gradient = 16 if slots > 1 else 8
    update = streaming(gpu, "norm, AdamW", "norm, AdamW", 1, (26.0 + gradient) * parameters, is_before)
    return found, [update, Kernel("gaps", "gaps", 1, 0.0, 0.0, GAPS_MS, 0.0)]


def step_of(gpu, shape, B, T, slots, is_before, has_sums, S):
    slot, update = kernels(gpu, shape, B, T, slots, is_before, has_sums, S)
    return [kernel._replace(calls=kernel.calls * slots) for kernel in slot] + update


def groups_of(found):
    """The sums of each group, as kernels called once."""
    groups = {}
    for kernel in found:
        before = groups.get(kernel.group, Kernel(kernel.group, kernel.group, 0, 0.0, 0.0, 0.0, 0.0))
        groups[kernel.group] = Kernel(kernel.group, kernel.group, before.calls + kernel.calls,
                                      *(old + kernel.calls * new for old, new in zip(before[3:], kernel[3:])))
    return [group._replace(calls=1, name="%s (%d)" % (group.group, group.calls)) for group in groups.values()]


def print_table(found):
    total = sum(kernel.calls * kernel.ms for kernel in found)
    print("%-32s %9s %8s %9s %9s %6s" % ("kernel (calls)", "TFLOP", "GB", "bound ms", "ms", "share"))
    for kernel in found:
        name = kernel.name if kernel.name.startswith(kernel.group) else kernel.group + ": " + kernel.name
        name += " (%d)" % kernel.calls if kernel.calls > 1 else ""
        print("%-32s %9.3f %8.2f %9.2f %9.2f %5.1f%%" %
              (name, kernel.calls * kernel.flops * 1e-12, kernel.calls * kernel.bytes * 1e-9,
               kernel.calls * kernel.bound, kernel.calls * kernel.ms, 100 * kernel.calls * kernel.ms / total))
    print("%-32s %9.3f %8.2f %9.2f %9.2f" %
          ("all of a step", sum(k.calls * k.flops for k in found) * 1e-12,
           sum(k.calls * k.bytes for k in found) * 1e-9, sum(k.calls * k.bound for k in found), total))
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", choices=sorted(GPUS), default="h100")
    parser.add_argument("--model", choices=sorted(MODELS), default="gpt2")
    parser.add_argument("--B", type=int, default=64)
    parser.add_argument("--T", type=int, default=1024)
    parser.add_argument("--slots", type=int, default=1, help="micro-batches of a step on this GPU")
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--bgrad", action="store_true")
    parser.add_argument("--residual", choices=("fp32", "bf16"), default="fp32")
    arguments = parser.parse_args()
    gpu, shape = GPUS[arguments.gpu], MODELS[arguments.model]
    if min(arguments.B, arguments.T, arguments.slots) < 1:
        parser.error("expected B, T and slots of at least 1")
    print("%s on %s, B %d, T %d, %d slot%s a step, bf16%s: on paper, no GPU has measured it" %
          (arguments.model, gpu.name, arguments.B, arguments.T, arguments.slots,
           "" if arguments.slots == 1 else "s", ", the kernels of before" if arguments.before else ""))
    found = step_of(gpu, shape, arguments.B, arguments.T, arguments.slots, arguments.before,
                    arguments.bgrad, 2 if arguments.residual == "bf16" else 4)
    total = print_table(found if arguments.each else groups_of(found))
    print("%s tokens a second" % format(int(1e3 * arguments.slots * arguments.B * arguments.T / total), ","))


if __name__ == "__main__":
    main()
