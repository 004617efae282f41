#!/usr/bin/env python3
"""Train GPT-2 124M on one GPU by train_gpt2cu and by PyTorch compiled, and print step time, memory and
start-up.

    dev/bench/compare_pytorch_cuda.py [--program ./train_gpt2cu] [--batch 64] [--context 1024] [--json FILE]

PyTorch runs as one would write it for speed: torch.compile, scaled_dot_product_attention, fused AdamW,
clip_grad_norm_, bf16 autocast, a vocabulary padded to 50304, no wait for the device but at the ends of ten
updates. Ours runs as it is, with a line after each update. Both train on the same random tokens, ours before
and after, and a last time with --autotune=true. `start` is from the start of the process to the end of the
first update, less a usual update: what one waits for. Memory is what nvidia-smi shows above what it showed
before. Without PyTorch only ours is measured.
"""
import argparse
import array
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare_pytorch import REPOSITORY, gpt2_124m, write_tokens

PADDED_VOCABULARY = 50304
WARMUP_STEPS = 5
GROUP_STEPS = 10


# ---- PyTorch, in a process of its own ----------------------------------------------------------------------


def pytorch_child(args):
    import torch

    is_cuda = args.device == "cuda"
    synchronize = torch.cuda.synchronize if is_cuda else lambda: None
    torch.manual_seed(1)
    model = gpt2_124m(torch, PADDED_VOCABULARY, args.layers).to(args.device)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    run = model if args.eager else torch.compile(model)
    with open(args.data, "rb") as file:
        tokens = torch.tensor(array.array("H", file.read()), dtype=torch.long)
    B, T = args.batch, args.context
    windows = (len(tokens) - 1) // (B * T)

    def update(step):
        first = step % windows * B * T
        window = tokens[first : first + B * T + 1]
        inputs, targets = window[:-1].view(B, T), window[1:].view(B, T)
        if is_cuda:
            inputs, targets = (x.pin_memory().to(args.device, non_blocking=True) for x in (inputs, targets))
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = run(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def group(first, count):
        start = time.perf_counter()
        for step in range(first, first + count):
            loss = update(step)
        synchronize()
        ms = (time.perf_counter() - start) * 1e3 / count
        print(json.dumps({"event": "step", "iter": first, "loss": loss.item(), "ms": ms}), flush=True)

    group(0, 1)
    group(1, WARMUP_STEPS - 1)
    done = WARMUP_STEPS
    while done < args.steps:
        count = min(GROUP_STEPS, args.steps - done)
        group(done, count)
        done += count
    if is_cuda:
        allocated = torch.cuda.max_memory_allocated() / 2**20
        print(json.dumps({"event": "memory", "allocated_mib": allocated}), flush=True)


# ---- the two programs, each measured from outside ----------------------------------------------------------


def device_mib():
    """Memory used on the first GPU, or None where nvidia-smi does not say."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return float(subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return None


class Run:
    """ms of each update after the warm-up, start-up, peak memory."""

    def __init__(self, name, command, log_path=None):
        before = device_mib()
        self.peak_mib = None
        start = time.perf_counter()
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            is_running = threading.Event()
            watch = threading.Thread(target=self.watch_memory, args=(is_running, before))
            watch.start()
            first_line, lines = None, []
            for line in process.stdout:
                if first_line is None and ("iter 0:" in line or '"iter": 0' in line):
                    first_line = time.perf_counter()
                lines.append(line)
            code = process.wait()
            is_running.set()
            watch.join()
            if code != 0 or first_line is None:
                errors.seek(0)
                sys.exit(f"{name}: {' '.join(command)} ended with {code}:\n{errors.read()[-4000:]}")
        if log_path:
            with open(log_path) as file:
                lines = file.readlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        steps = [event for event in events if event["event"] == "step"]
        self.ms = statistics.median(step["ms"] for step in steps if step["iter"] >= WARMUP_STEPS)
        self.start_s = first_line - start - self.ms / 1e3
        self.mfu = max(step.get("mfu", 0) for step in steps)
        self.allocated_mib = next((e["allocated_mib"] for e in events if e["event"] == "memory"), None)

    def watch_memory(self, is_done, before):
        while before is not None and not is_done.wait(0.2):
            used = device_mib()
            if used is not None:
                self.peak_mib = max(self.peak_mib or 0, used - before)


def run_ours(args, data, folder, *more):
    out_dir = tempfile.mkdtemp(dir=folder)
    command = [
        os.path.abspath(args.program), f"--out_dir={out_dir}", f"--train_data={data}",
        f"--n_layer={args.layers}",
        f"--batch_size={args.batch}", f"--block_size={args.context}", "--gradient_accumulation_steps=1",
        f"--max_iters={args.steps}", "--eval_interval=0", "--snapshot_interval=0", "--log_interval=1",
        "--warmup_iters=0", "--lr_schedule=constant", "--dtype=bf16", *more,
    ]  # fmt: skip
    return Run("ours", command, os.path.join(out_dir, "log.jsonl"))


def run_pytorch(args, data, _folder):
    command = [
        sys.executable, os.path.abspath(__file__), "--child", "--data", data, "--batch", str(args.batch),
        "--context", str(args.context), "--steps", str(args.steps), "--layers", str(args.layers),
        "--device", args.device,
    ]  # fmt: skip
    return Run("PyTorch", command + (["--eager"] if args.eager else []))


def print_row(args, name, run):
    def number(value, form):
        return "-" if value is None else form.format(value)

    rate = args.batch * args.context / run.ms * 1e3
    print(
        f"| {name} | {run.ms:.2f} | {rate:,.0f} | {number(run.mfu or None, '{:.1%}')} | {run.start_s:.2f} "
        f"| {number(run.peak_mib, '{:.0f}')} | {number(run.allocated_mib, '{:.0f}')} |",
        flush=True,
    )


def compare(args, data, folder):
    print("| | ms an update | tok/s | mfu | start, s | device MiB | tensors' MiB |")
    print("|---|---|---|---|---|---|---|")
    ours = [run_ours(args, data, folder)]
    print_row(args, "train_gpt2cu", ours[0])
    pytorch = None
    if importlib.util.find_spec("torch"):
        pytorch = run_pytorch(args, data, folder)
        print_row(args, "PyTorch" + ("" if args.eager else " compiled"), pytorch)
        ours.append(run_ours(args, data, folder))
        print_row(args, "train_gpt2cu", ours[1])
    tuned = run_ours(args, data, folder, "--autotune=true")
    print_row(args, "train_gpt2cu --autotune=true", tuned)
    result = {
        "ms": min(run.ms for run in ours),
        "tok_per_s": args.batch * args.context / min(run.ms for run in ours) * 1e3,
        "mfu": max(run.mfu for run in ours),
        "start_s": min(run.start_s for run in ours),
        "autotuned_ms": tuned.ms,
        "autotuned_start_s": tuned.start_s,
        "mib": max((run.peak_mib for run in ours if run.peak_mib is not None), default=None),
    }
    if pytorch:
        result.update(pytorch_ms=pytorch.ms, pytorch_mib=pytorch.peak_mib, pytorch_start_s=pytorch.start_s)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(REPOSITORY, "train_gpt2cu"))
    parser.add_argument("--batch", type=int, default=64, help="B")
    parser.add_argument("--context", type=int, default=1024, help="T")
    parser.add_argument("--steps", type=int, default=35,
                        help=f"of each run; the first {WARMUP_STEPS} are not counted")
    parser.add_argument("--layers", type=int, default=12, help="fewer to try this script out")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"],
                        help="of PyTorch; cpu to try this out")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--json", help="write the figures there")
    parser.add_argument("--data", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return pytorch_child(args)
    if args.steps <= WARMUP_STEPS:
        parser.error(f"--steps: expected more than {WARMUP_STEPS}, found {args.steps}")
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "tokens.bin")
        write_tokens(data, min(args.steps, 16) * args.batch * args.context + 1)
        result = compare(args, data, folder)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file)


if __name__ == "__main__":
    main()
