#!/usr/bin/env bash
# Where the parts of the CUDA Toolkit lie that an nvcc belongs to, as options for compiler and linker. The
# Makefile asks.
#   scripts/cuda_toolkit.sh compile|link|nccl NVCC...     NVCC may have options behind it, or ccache before
#
# compile  -isystem options for headers that this nvcc does not look for itself
# link     libraries, and run paths: where the program finds libcublasLt.so (and libnccl.so.2) at its start
# nccl     1 if this nvcc finds nccl.h, else 0
#
# It knows NVIDIA's installer and packages (/usr/local/cuda-12.4, Debian's), conda (lib, targets/*/lib), the
# HPC SDK (math_libs beside cuda), and Python's packages (nvidia/cuda_nvcc, nvidia/cublas, nvidia/nccl ..
# side by side, nvidia/cu13), whose libraries have no name without a version.
set -u
what=${1:-}
shift
nvcc=
for word in "$@"; do
    case $(basename -- "$word") in
    *nvcc*) nvcc=$(command -v -- "$word") && break ;;
    esac
done
[ -n "$nvcc" ] || exit 0 # make says that there is none
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
beside=$(dirname "$toolkit")

# first FILE-PATTERN FOLDER...: the first of the folders that has such a file.
first() {
    local pattern=$1 folder
    shift
    for folder; do
        if compgen -G "$folder/$pattern" >/dev/null; then
            readlink -f "$folder"
            return
        fi
    done
}

headers() {
    local folder
    if [ -z "$(first cuda_runtime.h "$toolkit"/include "$toolkit"/targets/*/include /usr/include)" ]; then
        for folder in "$beside"/cuda_runtime/include "$beside"/cublas/include "$beside"/cuda_cccl/include; do
            [ ! -d "$folder" ] || echo "-isystem $folder"
        done
    fi
    [ ! -f "$beside/nccl/include/nccl.h" ] || echo "-isystem $beside/nccl/include"
}

# A folder that the system's loader searches anyway needs no run path.
run_path() {
    case ${1:-/usr/lib} in
    /lib | /lib/* | /lib64 | /usr/lib | /usr/lib/* | /usr/lib64) ;;
    *) echo "-Wl,-rpath,$1" ;;
    esac
}

# shared NAME FOLDER: by its name where that is there, else by its file.
shared() {
    if [ -z "$2" ] || [ -e "$2/lib$1.so" ]; then
        echo "${2:+-L$2} -l$1"
    else
        compgen -G "$2/lib$1.so.*" | head -n 1
    fi
}

libraries() {
    local own=("$toolkit"/lib64 "$toolkit"/lib "$toolkit"/targets/*/lib) system=/usr/lib/*-linux-gnu
    local math cudart nccl
    math=$(first 'libcublasLt.so*' "${own[@]}" "$beside"/cublas/lib \
        "$beside/../math_libs/$(basename "$toolkit")"/lib64 $system)
    cudart=$(first libcudart_static.a "${own[@]}" "$beside"/cuda_runtime/lib $system)
    nccl=$(first libnccl.so.2 "${own[@]}" "$beside"/nccl/lib)
    if [ -n "$cudart" ]; then
        echo "-L$cudart -lcudart_static"
        cudart=
    else # Python's packages have the shared one alone
        cudart=$(first 'libcudart.so*' "${own[@]}" "$beside"/cuda_runtime/lib $system)
        shared cudart "$cudart"
    fi
    shared cublasLt "$math"
    printf '%s\n' $math $cudart $nccl | sort -u | while read -r folder; do
        run_path "$folder"
    done
    echo "-lrt -ldl"
}

finds_nccl() {
    local folder
    folder=$(mktemp -d)
    echo '#include <nccl.h>' >"$folder/probe.cu"
    # shellcheck disable=SC2046
    if "$@" $(headers) -E -o "$folder/out" "$folder/probe.cu" >/dev/null 2>&1; then
        echo 1
    else
        echo 0
    fi
    rm -r "$folder"
}

case $what in
compile) headers ;;
link) libraries ;;
nccl) finds_nccl "$@" ;;
*) echo "cuda_toolkit.sh: ${what:-nothing}: expected compile, link or nccl, and an nvcc" >&2 && exit 1 ;;
esac
