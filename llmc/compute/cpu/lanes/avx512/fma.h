/* A fused multiply-add of single values: AVX-512. See lanes/soft/fma.h for the contract. */
#ifndef LLMC_COMPUTE_CPU_FMA_H
#define LLMC_COMPUTE_CPU_FMA_H

static inline float fma_of(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}

#endif
