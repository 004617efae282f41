/* What bench_matmul measures beside the kernels of its level; the Makefile picks the sources. */
#ifndef DEV_OPS_BENCH_PEER_H
#define DEV_OPS_BENCH_PEER_H

#include "llmc/compute/cpu/matmul.h"

/* bench_kernels_*.c: the kernel of this name for bf16, the best for NULL; NULL if it cannot run here. */
const MatmulKernel *bench_kernel(const char *name);

/* bench_peer_*.c: another library, or NULL; and its product of the same inputs, on all threads. */
const char *peer_name(void);
void peer_multiply(const Matmul *product);

#endif
