#!/usr/bin/env bash
# dev/host_cuda, which runs the CUDA sources on the CPU: it does what a GPU does, and finds the mistakes that
# it promises to find. Needs a C and a C++ compiler and nothing else.
#   dev/test/test_host_cuda.sh        prints TAP
set -u
export LC_ALL=C GOMP_SPINCOUNT=1000 OMP_NUM_THREADS=2
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

warnings=(-Wall -Wextra)
[ "${WERROR:-0}" != 1 ] || warnings+=(-Werror)
compile() {
    "${CXX:-g++}" -std=c++17 -O1 -g "${warnings[@]}" -Wno-unknown-pragmas -fopenmp -Idev/host_cuda -I. \
        -c "$@"
}

for source in dev/host_cuda/*.cpp dev/host_cuda/switch/*.cpp; do
    [ "$(uname -m)" = x86_64 ] || [ "$(basename "$source")" != x86_64.cpp ] || continue
    compile -o "$work/$(basename "$source").o" "$source" || exit 1
done
# What its NCCL takes from the program: sockets and the ring.
for source in llmc/comm/{net,ring}.c llmc/base/{memory,clock,error,format,work}.c; do
    "${CC:-gcc}" -std=c11 -O1 -g "${warnings[@]}" -Wno-unknown-warning-option \
        -Wno-format-truncation -I. -c -o "$work/$(basename "$source").o" "$source" || exit 1
done
mkdir "$work/portable" && mv "$work/portable.cpp.o" "$work/portable" || exit 1
switch=$work/x86_64.cpp.o
[ -f "$switch" ] || switch=$work/portable/portable.cpp.o
rest=()
for object in "$work"/*.o; do
    [ "$object" = "$switch" ] || rest+=("$object")
done

# try NAME SWITCH FLAGS...: build dev/host_cuda/NAME.cu with that way of switching fibers, and run it.
try() {
    local name=$1 switch=$2
    shift 2
    compile -x c++ "$@" -o "$work/test.o.$name" "dev/host_cuda/$name.cu" &&
        "${CXX:-g++}" -fopenmp -o "$work/$name" "$work/test.o.$name" "${rest[@]}" "$switch" &&
        (cd "$work" && "./$name") || echo "not ok 0 - $name $*"
}

{
    try test_kernels "$switch" -fsanitize=thread
    try test_kernels "$work/portable/portable.cpp.o"
    try test_faults "$switch" -fsanitize=thread
    try test_streams "$switch"
    try test_products "$switch"
    try test_graphs "$switch"
    try test_nccl "$switch"
} | awk '/^1\.\./ { next }
    /^(not )?ok / { sub(/ok [0-9]+/, "ok " ++count) }
    { print }
    END { print "1.." count }'
