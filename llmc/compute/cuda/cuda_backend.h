/* The CUDA backend: one GPU a rank. */
#ifndef LLMC_COMPUTE_CUDA_CUDA_BACKEND_H
#define LLMC_COMPUTE_CUDA_CUDA_BACKEND_H

#include <stdio.h>

#include "llmc/compute/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the GPU of this rank: of those that the process sees, the one at its place among the ranks of its
 * machine. Collective. NULL with *error where there is none that it can use (none at all, a driver too old, a
 * GPU older than sm_80), or where two ranks would share one. */
const Backend *cuda_backend(Error *error);

/* The same, but ranks may share GPUs: for tests. */
const Backend *cuda_backend_shared(Error *error);

/* For --version: lines about CUDA, cuBLASLt, the GPUs that kernels were built for, and NCCL. Needs no GPU. */
void cuda_print_build(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
