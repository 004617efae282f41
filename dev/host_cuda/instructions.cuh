/* The functions of llmc/compute/cuda/device/instructions.cuh, which describes them, for the CPU. */
#ifndef HOST_CUDA_INSTRUCTIONS_CUH
#define HOST_CUDA_INSTRUCTIONS_CUH

#include "cuda_bf16.h"

void *dynamic_shared(void);
uint32_t shared_address(const void *shared);

static inline int block_again(void)
{
    return (int)blockIdx.x;
}

/* The copy is made as late as it may be: by the wait that waits for it. */
void copy_async_16(void *shared, const void *global, bool is_valid);
void copy_async_commit(void);
void host_cuda_copy_async_wait(int groups);

template <int groups>
static inline void copy_async_wait(void)
{
    host_cuda_copy_async_wait(groups);
}

void load_matrix_x4(uint32_t (&out)[4], const void *row);
void load_matrix_x4_transposed(uint32_t (&out)[4], const void *row);
void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

static inline float exp2_fast(float x)
{
    float result = exp2f(x);
    return result < 0x1p-126f ? 0.0f : result;
}

static inline uint32_t pack_bf16(float low, float high)
{
    return __float2bfloat16_rn(low).bits | (uint32_t)__float2bfloat16_rn(high).bits << 16;
}

#endif
