/* A register of fp32 values and its fused multiply-add: AVX2 with FMA. See lanes/soft/lanes.h for the
 * contract. */
#ifndef LLMC_COMPUTE_CPU_LANES_H
#define LLMC_COMPUTE_CPU_LANES_H

#include <immintrin.h>

enum { LANES = 8, LANE_REGISTERS = 16 };

typedef float Lanes __attribute__((vector_size(32), aligned(4)));

static inline Lanes lanes_fma(Lanes a, Lanes b, Lanes c)
{
    return (Lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline Lanes lanes_of(float value)
{
    return value - (Lanes){0};
}

#endif
