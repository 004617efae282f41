/* A register of fp32 values and its fused multiply-add: AVX2 with FMA. See lanes/soft/lanes.h for the
 * contract. */
#ifndef LLMC_COMPUTE_CPU_LANES_H
#define LLMC_COMPUTE_CPU_LANES_H

#include <immintrin.h>
#include <stdint.h>

enum { LANES = 8, LANE_REGISTERS = 16 };

typedef float Lanes __attribute__((vector_size(32), aligned(4)));
typedef uint32_t LaneBits __attribute__((vector_size(32), aligned(4)));

static inline Lanes lanes_fma(Lanes a, Lanes b, Lanes c)
{
    return (Lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline Lanes lanes_of(float value)
{
    return (Lanes)_mm256_set1_ps(value);
}

/* Exchange rows and columns of LANES x LANES values: pairs, fours, then 128-bit halves. */
static inline void lanes_transpose(Lanes rows[LANES])
{
    __m256 pairs[LANES], fours[LANES];
    for (int i = 0; i < LANES; i += 2) {
        pairs[i] = _mm256_unpacklo_ps((__m256)rows[i], (__m256)rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps((__m256)rows[i], (__m256)rows[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        for (int j = 0; j < 2; j++) {
            __m256d low = (__m256d)pairs[i + j], high = (__m256d)pairs[i + j + 2];
            fours[i + 2 * j] = (__m256)_mm256_unpacklo_pd(low, high);
            fours[i + 2 * j + 1] = (__m256)_mm256_unpackhi_pd(low, high);
        }
    }
    for (int j = 0; j < 4; j++) {
        rows[j] = (Lanes)_mm256_permute2f128_ps(fours[j], fours[j + 4], 0x20);
        rows[j + 4] = (Lanes)_mm256_permute2f128_ps(fours[j], fours[j + 4], 0x31);
    }
}

static inline LaneBits lanes_load_halves(const uint16_t *in)
{
    return (LaneBits)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)in));
}

#endif
