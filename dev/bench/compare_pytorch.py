#!/usr/bin/env python3
"""Train GPT-2 by ./train_gpt2 and by PyTorch eager in turns, and print tokens a second, start-up and peak
memory.

    dev/bench/compare_pytorch.py [--threads 2] [--rounds 3] [--steps 8] [--only speed|memory]

PyTorch runs as one would write it: scaled_dot_product_attention, fused AdamW, clip_grad_norm_, and for bf16
autocast. Both train on the same random tokens. The two alternate, so that other load on the machine falls on
both; a figure is the median over steps after the first two, then over rounds.
"""
import argparse
import array
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

VOCABULARY = 50257
WARMUP_STEPS = 2
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# ---- PyTorch, in a process of its own ----------------------------------------------------------------------


def gpt2_124m(torch, vocabulary=VOCABULARY, L=12):
    nn, F = torch.nn, torch.nn.functional
    C, NH, block_size = 768, 12, 1024

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
            self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
            self.fc, self.fcproj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

        def forward(self, x):
            B, T, _ = x.shape
            q, k, v = self.qkv(self.ln_1(x)).view(B, T, 3, NH, C // NH).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.fcproj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, C), nn.Embedding(block_size, C)
            self.blocks = nn.Sequential(*[Block() for _ in range(L)])
            self.ln_f = nn.LayerNorm(C)
            for parameter in self.parameters():
                if parameter.dim() >= 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            logits = F.linear(self.ln_f(self.blocks(x)), self.wte.weight)
            return F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1))

    return Model()


def pytorch_child(args):
    import contextlib

    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = gpt2_124m(torch)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    with open(args.data, "rb") as file:
        tokens = array.array("H", file.read())
    B, T = args.batch, args.context
    for step in range(args.steps):
        start = time.perf_counter()
        first = step * B * T
        window = torch.tensor(tokens[first : first + B * T + 1], dtype=torch.long)
        is_bf16 = args.dtype == "bf16"
        bf16 = torch.autocast("cpu", dtype=torch.bfloat16) if is_bf16 else contextlib.nullcontext()
        with bf16:
            loss = model(window[:-1].view(B, T), window[1:].view(B, T))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ms = (time.perf_counter() - start) * 1e3
        print(json.dumps({"event": "step", "iter": step, "loss": loss.item(), "ms": ms}), flush=True)


# ---- the two programs, each measured from outside ----------------------------------------------------------


class Run:
    """One training run: ms of each step, start-up (until the first step begins), peak memory, first loss."""

    def __init__(self, command, environment, log_path=None):
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        first_line = None
        lines = []
        for line in process.stdout:
            if first_line is None and ("iter 0:" in line or '"iter": 0' in line):
                first_line = time.perf_counter()
            lines.append(line)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0 or first_line is None:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{errors}")
        if log_path:
            with open(log_path) as file:
                lines = file.readlines()
        steps = [json.loads(line) for line in lines if line.startswith("{")]
        steps = [step for step in steps if step["event"] == "step"]
        self.step_ms = [step["ms"] for step in steps]
        self.first_loss = steps[0]["loss"]
        self.start_ms = (first_line - start) * 1e3 - self.step_ms[0]
        self.peak_mb = usage.ru_maxrss / 1024


def run_ours(args, data, folder, dtype, B, T, steps):
    out_dir = tempfile.mkdtemp(dir=folder)
    command = [
        os.path.join(REPOSITORY, "train_gpt2"), f"--out_dir={out_dir}", f"--train_data={data}",
        f"--val_data={data}", f"--batch_size={B}", f"--block_size={T}", "--gradient_accumulation_steps=1",
        f"--max_iters={steps}", "--eval_interval=0", "--snapshot_interval=0", "--log_interval=1",
        "--warmup_iters=0", "--lr_schedule=constant", f"--dtype={dtype}", f"--threads={args.threads}",
        "--shuffle=false",
    ]  # fmt: skip
    return Run(command, dict(os.environ), os.path.join(out_dir, "log.jsonl"))


def run_pytorch(args, data, _folder, dtype, B, T, steps):
    command = [
        sys.executable, os.path.abspath(__file__), "--child", "--data", data, "--dtype", dtype,
        "--batch", str(B), "--context", str(T), "--steps", str(steps), "--threads", str(args.threads),
    ]  # fmt: skip
    return Run(command, dict(os.environ, OMP_NUM_THREADS=str(args.threads)))


def write_tokens(path, count):
    draw = random.Random(1)
    tokens = array.array("H", (draw.randrange(VOCABULARY) for _ in range(count)))
    if sys.byteorder != "little":
        tokens.byteswap()
    with open(path, "wb") as file:
        tokens.tofile(file)


def compare_speed(args, data, folder):
    B = 4
    print("\nTokens a second (median), and the ratio of the fastest steps:\n")
    print("| dtype | B | T | train_gpt2 | PyTorch | ratio | ratio of fastest | start, ours "
          "| start, PyTorch |")
    print("|---|---|---|---|---|---|---|---|---|")
    for T in args.contexts:
        for dtype in args.dtypes:
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(run_ours(args, data, folder, dtype, B, T, args.steps))
                theirs.append(run_pytorch(args, data, folder, dtype, B, T, args.steps))
            median = [
                statistics.median(statistics.median(run.step_ms[WARMUP_STEPS:]) for run in runs)
                for runs in (ours, theirs)
            ]
            fastest = [min(min(run.step_ms[WARMUP_STEPS:]) for run in runs) for runs in (ours, theirs)]
            start = [min(run.start_ms for run in runs) for runs in (ours, theirs)]
            print(
                f"| {dtype} | {B} | {T} | {B * T / median[0] * 1e3:.0f} | {B * T / median[1] * 1e3:.0f} "
                f"| {median[1] / median[0]:.2f} | {fastest[1] / fastest[0]:.2f} "
                f"| {start[0] / 1e3:.2f} s | {start[1] / 1e3:.2f} s |",
                flush=True,
            )


def compare_memory(args, data, folder):
    B, T = 4, 1024
    print("\nPeak resident memory:\n")
    print("| dtype | B | T | train_gpt2 | PyTorch | ratio |")
    print("|---|---|---|---|---|---|")
    for dtype in args.dtypes:
        ours = run_ours(args, data, folder, dtype, B, T, 2)
        theirs = run_pytorch(args, data, folder, dtype, B, T, 2)
        print(
            f"| {dtype} | {B} | {T} | {ours.peak_mb:.0f} MiB | {theirs.peak_mb:.0f} MiB "
            f"| {ours.peak_mb / theirs.peak_mb:.2f} |",
            flush=True,
        )


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            fields = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines()
                          if ":" in line)
        fields = {name.strip(): value.strip() for name, value in fields.items()}
        wanted = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"} & set(fields.get("flags", "").split())
        return (
            f"{fields.get('model name', '?')} (family {fields.get('cpu family', '?')}), "
            f"{os.cpu_count()} cores, {' '.join(sorted(wanted))}"
        )
    except OSError:
        return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="of each run; the first two are not counted")
    parser.add_argument("--only", choices=["speed", "memory"])
    parser.add_argument("--contexts", type=int, nargs="*", default=[64, 256], help="T")
    parser.add_argument("--dtypes", nargs="*", default=["fp32", "bf16"])
    for name in ("--data", "--dtype"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--batch", "--context"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return pytorch_child(args)
    if args.steps <= WARMUP_STEPS:
        parser.error(f"--steps: expected more than {WARMUP_STEPS}, found {args.steps}")
    version = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
    ).stdout.strip()
    if not version:
        sys.exit("compare_pytorch.py: expected PyTorch in this Python; pip install torch")
    print(f"dev/bench/compare_pytorch.py {' '.join(sys.argv[1:])}")
    print(f"{processor()}; PyTorch {version}, Python {platform.python_version()}; {args.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "tokens.bin")
        write_tokens(data, 4 * max(2 * 1024, args.steps * max(args.contexts)) + 4 * 1024)
        if args.only != "memory":
            compare_speed(args, data, folder)
        if args.only != "speed":
            compare_memory(args, data, folder)


if __name__ == "__main__":
    main()
