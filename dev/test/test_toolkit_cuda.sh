#!/usr/bin/env bash
# The build finds its way in CUDA Toolkits as they are laid out by NVIDIA's installer, conda and Python's
# packages: headers, libraries, run paths, with nccl.h and without. The toolkits are empty files and an nvcc
# that only looks for headers; make prints what it would do. dev/test/build_cuda.sh builds with a real one.
#   dev/test/test_toolkit_cuda.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
unset NCCL NVCC WERROR MAKEFLAGS MAKELEVEL CPATH CPLUS_INCLUDE_PATH C_INCLUDE_PATH
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
work=$(readlink -f "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
told() {
    tail -n 8 "$work/out" | cut -c 1-300
}

# toolkit NVCC INCLUDE LIBRARY...: a compiler that looks for headers in INCLUDE and where it is told to, and
# empty libraries.
toolkit() {
    local nvcc=$work/$1 include=$work/$2 library
    shift 2
    mkdir -p "$(dirname "$nvcc")" "$include"
    touch "$include/cuda_runtime.h"
    printf '#!/bin/sh\nexec %s -nostdinc -x c++ "-I%s" "$@"\n' "${CC:-gcc}" "$include" >"$nvcc"
    chmod +x "$nvcc"
    for library; do
        mkdir -p "$(dirname "$work/$library")"
        touch "$work/$library"
    done
}

# links NAME NVCC WORD...: these are the options for the linker.
links() {
    local name=$1 nvcc=$2 found
    shift 2
    found=$(scripts/cuda_toolkit.sh link $nvcc | tr -s ' \n' '  ')
    echo "$found" >"$work/out"
    [ "$found" = "$* -lrt -ldl " ]
    result $? "$name"
}

toolkit cuda-12.4/bin/nvcc cuda-12.4/include cuda-12.4/lib64/{libcublasLt.so{,.12},libcudart_static.a}
at=$work/cuda-12.4/lib64
links "NVIDIA's installer" "$work/cuda-12.4/bin/nvcc" "-L$at" -lcudart_static "-L$at" -lcublasLt \
    "-Wl,-rpath,$at"
ln -s "$work/cuda-12.4" "$work/cuda"
PATH=$work/cuda/bin:$PATH links "by a link in PATH, with options behind" "nvcc -Xptxas -v" "-L$at" \
    -lcudart_static "-L$at" -lcublasLt "-Wl,-rpath,$at"

toolkit conda/bin/nvcc conda/targets/x86_64-linux/include conda/lib/libcublasLt.so{,.12} \
    conda/lib/libnccl.so.2 conda/targets/x86_64-linux/lib/libcudart_static.a
at=$work/conda/lib
links "conda" "$work/conda/bin/nvcc" "-L$work/conda/targets/x86_64-linux/lib" -lcudart_static "-L$at" \
    -lcublasLt "-Wl,-rpath,$at"

python=site-packages/nvidia
toolkit $python/cuda_nvcc/bin/nvcc $python/cuda_runtime/include $python/cublas/lib/libcublasLt.so.12 \
    $python/cuda_runtime/lib/libcudart.so.12 $python/nccl/lib/libnccl.so.2 $python/nccl/include/nccl.h
at=$work/$python
links "Python's packages for CUDA 12" "$at/cuda_nvcc/bin/nvcc" "$at/cuda_runtime/lib/libcudart.so.12" \
    "$at/cublas/lib/libcublasLt.so.12" "-Wl,-rpath,$at/cublas/lib" "-Wl,-rpath,$at/cuda_runtime/lib" \
    "-Wl,-rpath,$at/nccl/lib"
[ "$(scripts/cuda_toolkit.sh compile "$at/cuda_nvcc/bin/nvcc" | tr '\n' ' ')" = \
    "-isystem $at/cuda_runtime/include -isystem $at/nccl/include " ]
result $? "and their headers"
toolkit $python/cu13/bin/nvcc $python/cu13/include $python/cu13/lib/libcublasLt.so.13 \
    $python/cu13/lib/libcudart_static.a
links "Python's packages for CUDA 13" "$at/cu13/bin/nvcc" "-L$at/cu13/lib" -lcudart_static \
    "$at/cu13/lib/libcublasLt.so.13" "-Wl,-rpath,$at/cu13/lib" "-Wl,-rpath,$at/nccl/lib"

# plan ARGUMENTS...: what make would do for the CUDA program, in $work/out.
plan() {
    make -C "$root" -n MPI=0 "B=$work/build" "NVCC=$work/cuda-12.4/bin/nvcc" "$@" "$work/build/train_gpt2cu" \
        >"$work/out" 2>&1
}
with_nccl() {
    grep -q 'nccl_reducer.o' "$work/out" && grep -q 'nccl_library.o' "$work/out" &&
        ! grep -q 'nccl_missing.o' "$work/out"
}
without_nccl() {
    grep -q 'nccl_missing.o' "$work/out" && ! grep -qE 'nccl_(reducer|library).o' "$work/out"
}
said='nvcc finds no nccl.h: built for one GPU'
plan && without_nccl && [ "$(grep -c "$said" "$work/out")" -eq 1 ]
result $? "no nccl.h: the program is built for one GPU, and make says so"
grep -q -- "-Wl,-rpath,$work/cuda-12.4/lib64" "$work/out"
result $? "the program has the toolkit's run path"
! grep -q -e '-Werror' "$work/out" && plan WERROR=1 && grep -q -e '-Werror all-warnings' "$work/out"
result $? "warnings are errors where WERROR=1 asks for it alone"
plan NCCL=1 && with_nccl && ! grep -q "$said" "$work/out"
result $? "NCCL=1 asks for it: then the header is missed by the compiler"
touch "$work/cuda-12.4/include/nccl.h"
plan && with_nccl && ! grep -q "$said" "$work/out"
result $? "with nccl.h the program is built for many"
plan NCCL=0 && without_nccl && ! grep -q "$said" "$work/out"
result $? "but not with NCCL=0"
rm "$work/cuda-12.4/include/nccl.h"
make -n "B=$work/build" "NVCC=$work/cuda-12.4/bin/nvcc" "$work/build/train_gpt2cu_host" >"$work/out" 2>&1 &&
    grep -q 'nccl_reducer.o' "$work/out" && ! grep -q "$said" "$work/out"
result $? "the host build has an NCCL of its own"
make -n "B=$work/build" "NVCC=$work/nowhere/nvcc" "$work/build/train_gpt2cu" >"$work/out" 2>&1
[ "$(grep -c "$said" "$work/out")" -eq 0 ]
result $? "without an nvcc there is no word of NCCL"
end_of_tests
