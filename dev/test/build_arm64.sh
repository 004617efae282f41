#!/usr/bin/env bash
# Compiles the library and the portable CPU level with a cross compiler for arm64; nothing is run. The headers
# of the libraries are this machine's: they are the same on every architecture.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
headers=$(mktemp -d)
trap 'rm -rf "$headers"' EXIT
for name in zstd jansson; do
    ln -s /usr/include/$name* "$headers"/
done
make -j2 MPI=0 MACHINE=aarch64 CC=aarch64-linux-gnu-gcc OBJCOPY=aarch64-linux-gnu-objcopy B=build/arm64 \
    CPPFLAGS="-I. -I$headers" build/arm64/cpu/portable.o build/arm64/libllmc.a build/arm64/train_gpt2.o
