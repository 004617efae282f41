/* Dropout on the GPU: the same elements as on the CPU, and the random numbers that decide it.
 * Source: Philox4x32-10, Salmon et al., SC 2011. */
#ifndef LLMC_COMPUTE_CUDA_DROPOUT_CUH
#define LLMC_COMPUTE_CUDA_DROPOUT_CUH

#include "llmc/compute/dropout.h"

/* random_block() of llmc/base/random.h. */
static __device__ __forceinline__ uint4 random_block_cuda(const RandomKey &key, uint64_t block)
{
    uint32_t c0 = (uint32_t)block;
    uint32_t c1 = (uint32_t)(block >> 32);
    uint32_t c2 = key.step;
    uint32_t c3 = ((uint32_t)key.purpose << 24) ^ key.slot;
    uint32_t k0 = (uint32_t)key.seed;
    uint32_t k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * c0;
        uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

static __device__ __forceinline__ float dropout_factor_from(uint32_t number, float probability)
{
    float uniform = (float)(number >> 8) * 0x1p-24f;
    return uniform >= probability ? 1.0f / (1.0f - probability) : 0.0f;
}

/* 0 or 1 / (1 - probability) for elements 4*i .. 4*i+3 of a site, where first = 4*i. */
static __device__ __forceinline__ float4 dropout_factors(const Dropout &dropout, uint64_t first)
{
    uint4 numbers = random_block_cuda(dropout.key, (dropout.site << 40) + first / 4); /* dropout_block() */
    return make_float4(dropout_factor_from(numbers.x, dropout.probability),
                       dropout_factor_from(numbers.y, dropout.probability),
                       dropout_factor_from(numbers.z, dropout.probability),
                       dropout_factor_from(numbers.w, dropout.probability));
}

/* The same for one element; 1 where dropout is off. */
static __device__ __forceinline__ float dropout_factor(const Dropout &dropout, uint64_t element)
{
    if (dropout.probability == 0) {
        return 1.0f;
    }
    float4 factors = dropout_factors(dropout, element & ~(uint64_t)3);
    int place = (int)(element & 3);
    return place == 0 ? factors.x : place == 1 ? factors.y : place == 2 ? factors.z : factors.w;
}

/* values *= what dropout does to elements first .. first + W - 1. W is 1, or 4 and first a multiple of 4. */
template <int W>
static __device__ __forceinline__ void drop(float (&values)[W], const Dropout &dropout, int64_t first)
{
    if (dropout.probability == 0) {
        return;
    }
    if constexpr (W == 4) {
        float4 factors = dropout_factors(dropout, (uint64_t)first);
        values[0] *= factors.x;
        values[1] *= factors.y;
        values[2] *= factors.z;
        values[3] *= factors.w;
    } else {
        values[0] *= dropout_factor(dropout, (uint64_t)first);
    }
}

#endif
