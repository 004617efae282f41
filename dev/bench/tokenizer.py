#!/usr/bin/env python3
"""The tokenizer and tiktoken side by side: one core each, in turns, on the same text.

    make build/mpi1/bench/tokenizer data_prep/tokenize
    python3 dev/bench/tokenizer.py FILE [PROGRAMS=build/mpi1]

Prints both speeds of each turn and their ratio, and then data_prep/tokenize as a whole with one and two
threads on at least 600 MB, into a new folder each time. Turns show how quiet the machine is: only ratios of
one turn mean something.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "dev"))
from tokenizer_sample import gpt2  # noqa: E402

TURNS = 5
TIKTOKEN_BYTES = 16_000_000
COMMAND_BYTES = 600_000_000


def tiktoken_speed(encoding, text):
    begin = time.perf_counter()
    encoding.encode_ordinary(text)
    return len(text.encode()) / 1e6 / (time.perf_counter() - begin)


def our_speed(program, path):
    out = subprocess.run([program, path, "1"], check=True, capture_output=True, text=True).stdout
    return float(out.split("median ")[1].split()[0])


def command_seconds(program, path, threads, folder):
    """The time to replace an old file is the disk's, and the time in which earlier writes end is not ours."""
    shutil.rmtree(f"{folder}/out", ignore_errors=True)
    os.sync()
    begin = time.perf_counter()
    subprocess.run([program, "-o", f"{folder}/out", f"--threads={threads}", path], check=True,
                   capture_output=True)
    return time.perf_counter() - begin


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    data = pathlib.Path(sys.argv[1]).read_bytes()
    programs = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build/mpi1")
    encoding = gpt2()
    with tempfile.TemporaryDirectory() as folder:
        short = pathlib.Path(folder, "short.txt")
        text = data[:TIKTOKEN_BYTES].decode("utf-8", "ignore")
        short.write_text(text, encoding="utf-8", newline="")
        for _ in range(TURNS):
            theirs = tiktoken_speed(encoding, text)
            ours = our_speed(programs / "bench/tokenizer", short)
            print(f"tiktoken {theirs:6.1f} MB/s   encoder_encode {ours:6.1f} MB/s   {ours / theirs:5.1f}x",
                  flush=True)
        long = pathlib.Path(folder, "long.txt")
        long.write_bytes(data * -(-COMMAND_BYTES // len(data)))
        megabytes = long.stat().st_size / 1e6
        for _ in range(TURNS):
            one, two = (command_seconds(programs / "data_prep/tokenize", long, n, folder) for n in (1, 2))
            print(f"data_prep/tokenize: 1 thread {megabytes / one:6.1f} MB/s   "
                  f"2 threads {megabytes / two:6.1f} MB/s"
                  f"   {one / two:4.2f}x", flush=True)


if __name__ == "__main__":
    main()
