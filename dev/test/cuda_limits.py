#!/usr/bin/env python3
"""Does every kernel fit on every GPU in every shape in which it is launched? Threads against
__launch_bounds__, registers against a multiprocessor's, shared memory against what a block may have.

    cuda_limits.py LOG PTX_FOLDER PROGRAM

LOG: of nvcc -Xptxas -v; PTX_FOLDER: of nvcc --keep; PROGRAM: dev/ops/launch_shapes built for dev/host_cuda.
Exit 0 if all fit and every kernel of the build was launched; prints what does not.
"""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

# Registers of a multiprocessor, threads of a block, bytes of shared memory that a block may ask for: CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability".
REGISTERS, THREADS = 65536, 1024
SHARED_BYTES = {"sm_80": 163 << 10, "sm_90a": 227 << 10, "sm_120": 99 << 10}
# Between ranks only: one thread, or 256 with bounds that say so.
NOT_LAUNCHED = re.compile(r"\b(count|to_wire|from_wire)_kernel\b")

Kernel = collections.namedtuple("Kernel", "registers static_bytes")


def readable(names):
    """Demangled, without the words that a definition in C++ has besides."""
    lines = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return {name: line.removeprefix("void ").replace("(anonymous namespace)::", "") for name, line in
            zip(names, lines)}


def built_kernels(log):
    """{gpu: {mangled name: Kernel}}"""
    found = collections.defaultdict(dict)
    for line in open(log, encoding="utf-8", errors="replace"):
        entry = re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line)
        if entry:
            name, gpu = entry.groups()
        used = re.search(r"Used (\d+) registers", line)
        if used:
            static = re.search(r"(\d+) bytes smem", line)
            found[gpu][name] = Kernel(int(used[1]), int(static[1]) if static else 0)
    return found


def bounds_of(folder):
    """{mangled name: threads that __launch_bounds__ allows}"""
    bounds = {}
    for path in glob.glob(os.path.join(folder, "*.ptx")):
        with open(path, encoding="utf-8") as file:
            for entry in re.finditer(r"\.entry\s+(\w+)\s*\([^)]*\)\s*((?:\.\w+[^{.]*)*)", file.read()):
                limit = re.search(r"\.maxntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", entry[2])
                if limit:
                    bounds[entry[1]] = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1)
    return bounds


def launches_of(program, shared_bytes):
    """{readable name: {(threads, shared bytes, grid y, grid z)}}"""
    symbols = subprocess.run(["nm", "-C", "--defined-only", program], stdout=subprocess.PIPE, text=True,
                             check=True).stdout
    offsets = {}
    for line in symbols.splitlines():
        offset, _, name = line.split(" ", 2)
        offsets[int(offset, 16)] = name.removeprefix("void ")
    launches = collections.defaultdict(set)
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "launches")
        environment = dict(os.environ, HOST_CUDA_LAUNCHES=record, HOST_CUDA_DRY="1", HOST_CUDA_EPILOGUES="0")
        subprocess.run([program, str(shared_bytes)], env=environment, check=True)
        for line in open(record, encoding="utf-8"):
            offset, *numbers = line.split()
            threads, shared, _, y, z = map(int, numbers)
            launches[offsets[int(offset, 16)]].add((threads, shared, y, z))
    return launches


def faults_of(kernel, bound, launch, shared_limit):
    threads, shared, y, z = launch
    registers = (kernel.registers + 7) // 8 * 8 * ((threads + 31) // 32 * 32)
    if threads > min(bound, THREADS):
        yield "%d threads, at most %d" % (threads, min(bound, THREADS))
    if registers > REGISTERS:
        yield "%d registers in a block of %d threads, at most %d" % (registers, threads, REGISTERS)
    if shared + kernel.static_bytes > shared_limit:
        yield "%d bytes of shared memory, at most %d" % (shared + kernel.static_bytes, shared_limit)
    if max(y, z) > 65535:
        yield "a grid of %d in y and %d in z, at most 65,535" % (y, z)


def main():
    log, folder, program = sys.argv[1:]
    built, bounds = built_kernels(log), bounds_of(folder)
    bad = checked = 0
    for gpu, limit in SHARED_BYTES.items():
        names = readable(sorted(built.get(gpu, {})))
        launches = launches_of(program, limit)
        for mangled, name in names.items():
            if NOT_LAUNCHED.search(name):
                continue
            if name not in launches:
                print("%s: %s is launched by nobody" % (gpu, name))
                bad += 1
            if mangled not in bounds:
                print("%s: %s has no __launch_bounds__ in the PTX" % (gpu, name))
                bad += 1
            for launch in launches.get(name, ()):
                checked += 1
                for fault in faults_of(built[gpu][mangled], bounds.get(mangled, 0), launch, limit):
                    print("%s: %s: %s" % (gpu, name, fault))
                    bad += 1
        print("%s: %d kernels in %d shapes fit" % (gpu, len(names), sum(map(len, launches.values())))
              if names else "%s: not built by this nvcc" % gpu)
    return 1 if bad or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
