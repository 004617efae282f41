/* Launching kernels: grid and block, bytes of shared memory, stream, arguments. */
#ifndef LLMC_BASE_CUDA_LAUNCH_CUH
#define LLMC_BASE_CUDA_LAUNCH_CUH

#include "llmc/base/cuda/cuda_check.h"

/* Blocks that a grid may have in y; in x there is room for all that fit into memory. */
enum { GRID_Y_MAX = 65535 };

template <typename T>
struct Same {
    typedef T Type;
};

/* Asynchronous. Arguments convert as in a call of the kernel. */
template <typename... Params>
static inline void launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                          cudaStream_t stream, typename Same<Params>::Type... arguments)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

/* Once for each kernel that takes more than 48 KB of shared memory, before its first launch. */
template <typename... Params>
static inline void allow_shared_bytes(void (*kernel)(Params...), size_t shared_bytes)
{
    CUDA_CHECK(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)shared_bytes));
}

#endif
