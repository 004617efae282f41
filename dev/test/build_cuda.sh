#!/usr/bin/env bash
# The CUDA programs build for sm_80, sm_90a, as PTX and, where nvcc knows it, from that PTX for sm_120, as its
# driver does, without a warning; no kernel spills registers to memory, and each fits on these GPUs in every
# shape in which it is launched (cuda_limits.py, with python3); attention multiplies on tensor cores. Needs
# nvcc, no GPU.
# It also finds NCCL where the machine has one, is built without nccl.h, and starts without
# LD_LIBRARY_PATH and without a driver.
#   dev/test/build_cuda.sh        exit 0 if all that holds; prints what does not
set -u
cd "$(dirname "$0")/../.." || exit 1
command -v nvcc >/dev/null || {
    echo "build_cuda.sh: nvcc not found: install the CUDA Toolkit (12.4 or newer)"
    exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/kept"
gpus="-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a"
gpus+=" -gencode arch=compute_90,code=compute_90"
if nvcc --list-gpu-code | grep -qx sm_120; then
    gpus+=" -gencode arch=compute_90,code=sm_120"
fi
make WERROR=1 B="$folder" NVCC="nvcc -Xptxas -v --keep --keep-dir $folder/kept" GPUS="$gpus" \
    "$folder/train_gpt2cu" "$folder/test_gpt2cu" >"$folder/log" 2>&1 || {
    tail -n 30 "$folder/log"
    exit 1
}

# Of each kernel: architecture, bytes spilled, name.
awk '/Compiling entry function/ { split($0, part, "\047"); name = part[2]; gpu = part[4] }
     /bytes spill stores/ {
         for (i = 1; i <= NF; i++) if ($i == "spill" && $(i + 1) == "stores,") print gpu, $(i - 2), name
     }' \
    "$folder/log" >"$folder/spills"
status=0
for gpu in sm_80 sm_90a sm_120; do
    [[ $gpus == *"$gpu"* ]] || continue
    kernels=$(grep -c "^$gpu " "$folder/spills")
    spilling=$(awk -v gpu=$gpu '$1 == gpu && $2 > 0' "$folder/spills" | wc -l)
    echo "$gpu: $kernels kernels, $spilling of them spill"
    [ "$kernels" -ge 30 ] || status=1
done
if awk '$2 > 0 { print "spills " $2 " bytes: " $3 " on " $1; bad = 1 }
    END { exit !bad }' "$folder/spills"; then
    status=1
fi

# starts NAME: the program finds its libraries, and without a driver ends with one line.
starts() {
    env -u LD_LIBRARY_PATH "$folder/train_gpt2cu" --help >/dev/null || {
        echo "$1: the program does not start"
        status=1
    }
    ldconfig -p | grep -q libcuda.so.1 && return
    env -u LD_LIBRARY_PATH "$folder/train_gpt2cu" --max_iters=1 >"$folder/out" 2>&1
    if [ $? -ne 1 ] || [ "$(wc -l <"$folder/out")" -ne 1 ] ||
        ! grep -q '^train_gpt2cu: expected an NVIDIA driver, found no libcuda.so.1' "$folder/out"; then
        echo "$1: without a driver:" && cat "$folder/out"
        status=1
    fi
}

# has_nccl: whether the program is linked with what loads NCCL.
has_nccl() {
    nm -C "$folder/train_gpt2cu" | grep -q ' nccl_library'
}

starts "the program"
nccl=0
has_nccl && nccl=1
# An nvcc that misses the header, as on a plain toolkit.
printf '#!/bin/sh\nfor word; do case $word in */probe.cu) exit 1 ;; esac; done\nexec nvcc "$@"\n' \
    >"$folder/nvcc_without"
chmod +x "$folder/nvcc_without"
make WERROR=1 B="$folder" NVCC="$folder/nvcc_without" "$folder/train_gpt2cu" \
    >"$folder/log-without" 2>&1 &&
    grep -q 'nvcc finds no nccl.h: built for one GPU' "$folder/log-without" && ! has_nccl || {
    echo "without nccl.h:" && tail -n 5 "$folder/log-without"
    status=1
}
starts "without nccl.h"
make WERROR=1 B="$folder" "$folder/train_gpt2cu" >"$folder/log-again" 2>&1
has_nccl || [ $nccl -eq 0 ] || {
    echo "nccl.h is there again, the program is not built anew:" && tail -n 5 "$folder/log-again"
    status=1
}
if command -v python3 >/dev/null; then
    shapes=build/mpi1/ops/host/launch_shapes # beside what the tests have built already
    make "$shapes" >"$folder/make" 2>&1 || tail -n 30 "$folder/make"
    dev/test/cuda_limits.py "$folder/log" "$folder/kept" "$shapes" || status=1
else
    echo "no python3: whether kernels fit in each shape is not tried"
fi

# The machine code where there is a disassembler, else what ptxas was given.
if command -v cuobjdump >/dev/null; then
    for name in attention_forward attention_d_keys attention_d_queries; do
        cuobjdump -sass -arch sm_90a "$folder/cuda/llmc/compute/cuda/$name.o" >"$folder/sass"
        products=$(grep -cE 'HMMA|HGMMA' "$folder/sass")
        echo "$name: $products tensor core instructions, $(grep -c LDGSTS "$folder/sass") asynchronous copies"
        [ "$products" -gt 0 ] && grep -q LDGSTS "$folder/sass" || status=1
    done
else
    for name in attention_forward attention_d_keys attention_d_queries; do
        nvcc -std=c++20 -O3 -arch=compute_90 -ptx -I. -Illmc/compute/cuda/device -o "$folder/ptx" \
            "llmc/compute/cuda/$name.cu" || status=1
        products=$(grep -c 'mma.sync.aligned.m16n8k16' "$folder/ptx")
        echo "$name: $products mma.sync in PTX (no cuobjdump here to look at the machine code)"
        [ "$products" -gt 0 ] && grep -q 'cp.async.cg' "$folder/ptx" || status=1
    done
fi

make B="$folder" "$folder/cuda/dev/test/load_nccl.o" >/dev/null &&
    nvcc -o "$folder/load_nccl" "$folder/cuda/dev/test/load_nccl.o" \
        "$folder/cuda/llmc/comm/nccl/nccl_library.o" "$folder/libllmc.a" -ldl -lpthread || status=1
library=$(find -L "$(dirname "$(command -v nvcc)")/.." /usr/lib -name libnccl.so.2 -print -quit 2>/dev/null)
if [ -n "$library" ]; then
    LD_LIBRARY_PATH=$(dirname "$library") "$folder/load_nccl" | tee "$folder/nccl" || status=1
    grep -q '^NCCL 2' "$folder/nccl" || status=1
else
    echo "no libnccl.so.2 on this machine: its loading is not tried"
fi
exit $status
