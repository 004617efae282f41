/* The CUDA backend: the first GPU that this process sees. */
#ifndef LLMC_COMPUTE_CUDA_CUDA_BACKEND_H
#define LLMC_COMPUTE_CUDA_CUDA_BACKEND_H

#include "llmc/compute/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NULL with *error set where there is no GPU that it can use: none at all, a driver too old, a GPU older than
 * sm_80. */
const Backend *cuda_backend(Error *error);

#ifdef __cplusplus
}
#endif
#endif
