/* The functions of llmc/compute/cuda/device/instructions.cuh, which describes them, for the CPU. */
#ifndef HOST_CUDA_INSTRUCTIONS_CUH
#define HOST_CUDA_INSTRUCTIONS_CUH

#include "cuda_bf16.h"

void *host_cuda_shared(void);
void host_cuda_copy_async_16(void *shared, const void *global, bool is_valid);
void host_cuda_copy_async_commit(void);
void host_cuda_copy_async_wait(int groups);
void host_cuda_load_matrix_x4(uint32_t *out, const void *row, bool is_transposed);
void host_cuda_mma_bf16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1);

static inline void *dynamic_shared(void)
{
    return host_cuda_shared();
}

static inline uint32_t shared_address(const void *shared)
{
    return (uint32_t)((const unsigned char *)shared - (const unsigned char *)host_cuda_shared());
}

/* The copy is made as late as it may be: by the wait that waits for it. */
static inline void copy_async_16(void *shared, const void *global, bool is_valid)
{
    host_cuda_copy_async_16(shared, global, is_valid);
}

static inline void copy_async_commit(void)
{
    host_cuda_copy_async_commit();
}

template <int groups>
static inline void copy_async_wait(void)
{
    host_cuda_copy_async_wait(groups);
}

static inline void load_matrix_x4(uint32_t (&out)[4], const void *row)
{
    host_cuda_load_matrix_x4(out, row, false);
}

static inline void load_matrix_x4_transposed(uint32_t (&out)[4], const void *row)
{
    host_cuda_load_matrix_x4(out, row, true);
}

static inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    host_cuda_mma_bf16(d, a, b0, b1);
}

static inline float exp2_fast(float x)
{
    float result = exp2f(x);
    return result < 0x1p-126f ? 0.0f : result;
}

static inline uint32_t pack_bf16(float low, float high)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(low)) |
           (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16;
}

#endif
