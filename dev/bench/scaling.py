#!/usr/bin/env python3
"""Train over 1, 2 and 4 ranks with a link of chosen speed between them, buckets during and after backward,
and print where the time of a step goes.

    dev/bench/scaling.py [--ranks 1,2,4] [--overlap on,off] [--reduce exact] [--mbit 4000] [--delay_us 0]
                         [--steps 5] [--json FILE] [--trace FILE] [-- OPTIONS...]

Each rank has a network namespace of its own, joined by a veth pair to a bridge; tc shapes what leaves it (tbf
for the rate, netem for the delay). Where that is not allowed the ranks talk over loopback, and the output
says so. Namespaces go away however this ends, SIGKILL apart. --json appends what was measured to a file for
scaling_model.py; --show FILE prints such a file as the table. The model is GPT-2 124M unless options say
otherwise; tokens are random, as unequally frequent as words are (Zipf). A figure is the median of the steps
that other programs did not disturb, `steps` of them: of the cores they had at most `others` in any of these.
"""
import argparse
import array
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WARMUP_STEPS = 1
DISTURBED = 0.05  # when others have more of the cores
BURST_BYTES = 256 << 10  # what tbf lets through at once: small against a bucket, large against a packet
OPTIONS = ["--dtype=bf16", "--batch_size=2", "--block_size=1024", "--gradient_accumulation_steps=4",
           "--threads=1", "--eval_interval=0", "--snapshot_interval=0", "--log_interval=1",
           "--warmup_iters=1"]

KEPT_OPTIONS = ["n_layer", "n_head", "n_embd", "vocab_size", "batch_size", "block_size",
                "gradient_accumulation_steps",
                "dtype", "threads", "bucket_cap_mb"]


# ---- the network -------------------------------------------------------------------------------------------


def run(command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more)


class Network:
    """One namespace for each rank and one for the bridge; `command` puts a program into a rank's."""

    def __init__(self, rank_count, mbit, delay_us):
        self.prefix = "llmc%d" % os.getpid()
        self.rank_count = rank_count
        self.namespaces = []
        self.is_shaped = True
        self.delay_us = delay_us
        self.notes = []
        try:
            self.add_namespace("switch")
            self.inside("switch", "ip link add bridge type bridge")
            self.inside("switch", "ip link set bridge up")
            for rank in range(rank_count):
                self.add_rank(rank)
            self.shape(mbit, delay_us)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            self.is_shaped = False
            reason = getattr(error, "stderr", None) or str(error)
            self.notes.append("loopback, not shaped: namespaces, or tc in them, are refused (%s)" %
                              reason.strip())

    def add_namespace(self, name):
        run(["ip", "netns", "add", "%s-%s" % (self.prefix, name)])
        self.namespaces.append("%s-%s" % (self.prefix, name))

    def inside(self, name, command):
        return run(["ip", "netns", "exec", "%s-%s" % (self.prefix, name)] + command.split())

    def add_rank(self, rank):
        self.add_namespace(str(rank))
        self.inside("switch", "ip link add port%d type veth peer name eth0 netns %s-%d" %
                    (rank, self.prefix, rank))
        self.inside("switch", "ip link set port%d master bridge up" % rank)
        self.inside(str(rank), "ip address add 10.78.0.%d/24 dev eth0" % (rank + 1))
        self.inside(str(rank), "ip link set eth0 up")
        self.inside(str(rank), "ip link set lo up")

    def shape(self, mbit, delay_us):
        for rank in range(self.rank_count):
            self.inside(str(rank),
                        "tc qdisc replace dev eth0 root handle 1: tbf rate %dmbit burst %d latency 50ms" %
                        (mbit, BURST_BYTES))
            if delay_us > 0:
                try:
                    self.inside(str(rank), "tc qdisc add dev eth0 parent 1:1 netem limit 100000 delay %dus" %
                                delay_us)
                except subprocess.CalledProcessError as error:
                    self.delay_us = 0
                    note = "no delay: this kernel refuses netem (%s)" % error.stderr.strip().split("\n")[0]
                    self.notes += [note] if note not in self.notes else []

    def command(self, rank):
        return ["ip", "netns", "exec", "%s-%d" % (self.prefix, rank)] if self.is_shaped else []

    def address(self):
        return "10.78.0.1" if self.is_shaped else "127.0.0.1"

    def close(self):
        for name in self.namespaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self.namespaces = []


# ---- one configuration -------------------------------------------------------------------------------------


def write_tokens(folder, vocab_size):
    weights = [1 / (k + 2.7) for k in range(vocab_size)]
    tokens = random.Random(1).choices(range(vocab_size), weights, k=1 << 20)
    for name in ("train.bin", "val.bin"):
        with open(os.path.join(folder, name), "wb") as file:
            array.array("H", tokens).tofile(file)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Calm:
    """Which share of the cores others had during each step of a run, told from outside while it runs."""

    def __init__(self, log, ranks):
        self.log, self.ranks = log, ranks
        self.line_count = 0
        self.before = self.now()
        self.others = {}

    def now(self):
        ticks = 0
        for rank in self.ranks:
            try:
                with open("/proc/%d/stat" % rank.pid) as stat:
                    ticks += sum(int(word) for word in stat.read().rsplit(")", 1)[1].split()[11:13])
            except OSError:
                pass  # has ended
        with open("/proc/stat") as stat:
            everybody = sum(int(word) for word in stat.readline().split()[1:4])
        return time.monotonic(), (everybody - ticks) / os.sysconf("SC_CLK_TCK")

    def look(self):
        """Called often: a step ends where its line appears in the log."""
        try:
            with open(self.log) as log:
                lines = log.read().splitlines()
        except OSError:
            return
        for line in lines[self.line_count:]:
            if line.startswith('{"event":"step"') and line.endswith("}"):
                now = self.now()
                seconds, theirs = (after - before for after, before in zip(now, self.before))
                self.before = now
                self.others[json.loads(line)["iter"]] = max(0, theirs) / seconds / os.cpu_count()
        self.line_count = len(lines)

    def steps(self):
        """Those that nobody disturbed, or half of all if that is more: the calmest."""
        steps = sorted((iteration for iteration in self.others if iteration >= WARMUP_STEPS),
                       key=self.others.get)
        calm = sum(self.others[iteration] <= DISTURBED for iteration in steps)
        return steps[:max(calm, (len(steps) + 1) // 2)]


def train(program, folder, network, rank_count, options):
    """The folder of the run's log and trace, and its calm steps."""
    out = os.path.join(folder, "out")
    shutil.rmtree(out, ignore_errors=True)
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", WORLD_SIZE=str(rank_count),
                       MASTER_ADDR=network.address(), MASTER_PORT=str(free_port()))
    ranks = []
    try:
        for rank in range(rank_count):
            command = network.command(rank) + [program, "--out_dir=" + out] + options
            with open(os.path.join(folder, "output.%d" % rank), "w") as output:
                ranks.append(subprocess.Popen(command,
                                              env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)),
                                              stdout=output, stderr=output))
        calm = Calm(os.path.join(out, "log.jsonl"), ranks)
        while any(rank.poll() is None for rank in ranks):
            calm.look()
            time.sleep(0.02)
        statuses = [rank.wait() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(statuses):
        with open(os.path.join(folder, "output.%d" % statuses.index(max(statuses)))) as output:
            sys.exit("train_gpt2 ended with %s: %s" % (statuses, output.read()[-500:]))
    return out, calm


def read_steps(out, iterations):
    with open(os.path.join(out, "log.jsonl")) as log:
        steps = [line for line in map(json.loads, log)
                 if line["event"] == "step" and line["iter"] in iterations]
    names = ("ms", "compute_ms", "comm_ms", "exposed_ms")
    return {name: statistics.median(step[name] for step in steps) for name in names}


def read_trace(out, iterations):
    """Medians over steps of rank 0's spans: backward's parts, and each bucket's bytes and time."""
    with open(os.path.join(out, "trace.json")) as trace:
        events = [event for event in json.load(trace)["traceEvents"]
                  if event["ph"] == "X" and event["pid"] == 0 and
                  event["args"]["iter"] in iterations]
    spans, buckets = {}, {}
    for event in events:
        spans.setdefault(event["name"], []).append(event["dur"] / 1e3)
        if event["args"].get("bytes"):
            buckets.setdefault(event["name"], []).append((event["args"]["bytes"], event["dur"] / 1e3))
    parts = {name: statistics.median(values) for name, values in spans.items()}
    blocks = [parts["backward block %d" % l] for l in range(sum("backward block" in name for name in parts))]
    return {"slot_ms": parts["slot"],
            "head_ms": parts["forward, lm_head"],
            # Part of head_ms where lm_head's gradient is not sent first.
            "ln_f_ms": parts.get("backward ln_f", 0),
            "block_ms": statistics.mean(blocks),
            "embedding_ms": parts["backward positions"] + parts.get("backward tokens", 0),
            "update_ms": parts["update"],
            "buckets": [[name, statistics.median(b for b, _ in values),
                         statistics.median(ms for _, ms in values)]
                        for name, values in buckets.items()]}


def measure(program, folder, network, arguments, rank_count, overlap, reduce):
    options = OPTIONS + ["--train_data=%s/train.bin" % folder, "--val_data=%s/val.bin" % folder,
                         "--max_iters=%d" % (WARMUP_STEPS + arguments.steps),
                         "--trace=%d" % (WARMUP_STEPS + arguments.steps),
                         "--overlap=" + {"on": "true", "off": "false"}[overlap], "--reduce=" + reduce]
    out, calm = train(program, folder, network, rank_count, options + arguments.options)
    steps = calm.steps()
    row = {"ranks": rank_count, "overlap": overlap, "reduce": reduce,
           "mbit": arguments.mbit if network.is_shaped else 0,
           "delay_us": network.delay_us if network.is_shaped else 0, "cores": os.cpu_count(),
           "steps": len(steps), "others": max(calm.others[step] for step in steps)}
    row.update(read_steps(out, steps))
    row.update(read_trace(out, steps))
    row["hidden"] = 1 - row["exposed_ms"] / row["comm_ms"] if rank_count > 1 else None
    row["bytes"] = sum(size for _, size, _ in row["buckets"])
    row["bus_gb_per_s"] = None
    if rank_count > 1:
        row["bus_gb_per_s"] = 2 * (rank_count - 1) / rank_count * row["bytes"] / row["comm_ms"] / 1e6
    with open(os.path.join(out, "log.jsonl")) as log:
        options = json.loads(log.readline())["options"]
        row["options"] = {name: options[name] for name in KEPT_OPTIONS}
    if arguments.trace:
        shutil.copy(os.path.join(out, "trace.json"), arguments.trace)
    return row


# ---- what is printed ---------------------------------------------------------------------------------------


HEADER = ("\nranks  overlap reduce   step ms   compute      comm   exposed  hidden       MB  bus GB/s  steps"
          "  others")


def show(path):
    """What --json wrote, a table for each rate of the link."""
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    for mbit in sorted({row["mbit"] for row in rows}, reverse=True):
        print("\nlink: %s" % ("%d Mb/s each way" % mbit if mbit else "loopback"), end="")
        print(HEADER)
        for row in sorted(rows, key=lambda row: (row["ranks"], row["reduce"], row["overlap"])):
            if row["mbit"] == mbit:
                print_row(row)


def print_row(row):
    def number(value, form="%9.0f"):
        return form % value if value is not None else "-".rjust(len(form % 0))
    print("%5d  %-7s %-6s" % (row["ranks"], row["overlap"] if row["ranks"] > 1 else "-", row["reduce"]),
          number(row["ms"]), number(row["compute_ms"]), number(row["comm_ms"] if row["ranks"] > 1 else None),
          number(row["exposed_ms"] if row["ranks"] > 1 else None), number(row["hidden"], "%7.3f"),
          number(row["bytes"] / 1e6 if row["ranks"] > 1 else None, "%8.1f"),
          number(row["bus_gb_per_s"], "%8.3f"),
          number(row["steps"], "%6d"), number(row["others"] and 100 * row["others"], "%6.0f%%"), flush=True)


def machine():
    with open("/proc/cpuinfo") as info:
        model = re.search(r"^model name\s*: (.*)$", info.read(), re.M)
    return "%s, %d cores, load %.2f" % (model.group(1) if model else "unknown CPU", os.cpu_count(),
                                        os.getloadavg()[0])


def parse():
    parser = argparse.ArgumentParser(usage=__doc__, allow_abbrev=False)
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--overlap", default="on,off")
    parser.add_argument("--reduce", default="exact")
    parser.add_argument("--mbit", type=int, default=4000)
    parser.add_argument("--delay_us", type=int, default=0)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--trace", help="where the last run's trace.json goes")
    parser.add_argument("--show")
    parser.add_argument("options", nargs="*")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.show:
        return show(arguments.show)
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, frame: sys.exit(128 + number))
    program = os.path.abspath(os.path.join(os.environ.get("PROGRAMS", REPOSITORY), "train_gpt2"))
    rank_counts = [int(text) for text in arguments.ranks.split(",")]
    folder = tempfile.mkdtemp()
    network = None
    try:
        network = Network(max(rank_counts), arguments.mbit, arguments.delay_us)
        vocabularies = [int(option.split("=")[1]) for option in arguments.options
                        if option.startswith("--vocab_size=")]
        write_tokens(folder, (vocabularies or [50257])[-1])
        print("$ dev/bench/scaling.py", " ".join(sys.argv[1:]))
        print("machine:", machine())
        link = []
        if network.is_shaped:
            link = ["link: %d Mb/s each way, delay %d us" % (arguments.mbit, network.delay_us)]
        print(*link, *network.notes, sep="; ")
        print("options:", " ".join(OPTIONS[:5] + arguments.options))
        if max(rank_counts) > os.cpu_count():
            print("more ranks than %d cores share them: their compute times are not those of a machine each" %
                  os.cpu_count())
        print(HEADER)
        for rank_count in rank_counts:
            for reduce in arguments.reduce.split(","):
                for overlap in arguments.overlap.split(",") if rank_count > 1 else ["on"]:
                    row = measure(program, folder, network, arguments, rank_count, overlap, reduce)
                    print_row(row)
                    if arguments.json:
                        with open(arguments.json, "a") as file:
                            file.write(json.dumps(row) + "\n")
        print()
    finally:
        if network:
            network.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
