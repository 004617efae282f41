/* Errors of the CUDA libraries. A failed call ends the run with exit code 76: the fault may not come
 * again. */
#ifndef LLMC_BASE_CUDA_CUDA_CHECK_H
#define LLMC_BASE_CUDA_CUDA_CHECK_H

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "llmc/base/error.h"

#define CUDA_CHECK(call)                                                                                     \
    do {                                                                                                     \
        cudaError_t status_ = (call);                                                                        \
        if (status_ != cudaSuccess) {                                                                        \
            cuda_fault(__FILE__, __LINE__, #call, cudaGetErrorString(status_));                              \
        }                                                                                                    \
    } while (0)

#define CUBLASLT_CHECK(call)                                                                                 \
    do {                                                                                                     \
        cublasStatus_t status_ = (call);                                                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                                                              \
            cuda_fault(__FILE__, __LINE__, #call, cublasLtGetStatusString(status_));                         \
        }                                                                                                    \
    } while (0)

/* Print one line and end the program with EXIT_FAULT. What a kernel does wrong is told by a later call, so
 * the line also says how to find the right one. */
[[noreturn]] void cuda_fault(const char *file, int line, const char *call, const char *what);

#endif
