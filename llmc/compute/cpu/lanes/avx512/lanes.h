/* A register of fp32 values and its fused multiply-add: AVX-512. See lanes/soft/lanes.h for the contract. */
#ifndef LLMC_COMPUTE_CPU_LANES_H
#define LLMC_COMPUTE_CPU_LANES_H

#include <immintrin.h>

enum { LANES = 16, LANE_REGISTERS = 32 };

typedef float Lanes __attribute__((vector_size(64), aligned(4)));

static inline Lanes lanes_fma(Lanes a, Lanes b, Lanes c)
{
    return (Lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline Lanes lanes_of(float value)
{
    return value - (Lanes){0};
}

#endif
