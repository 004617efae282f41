/* A register of fp32 values and its fused multiply-add: AVX-512. See lanes/soft/lanes.h for the contract. */
#ifndef LLMC_COMPUTE_CPU_LANES_H
#define LLMC_COMPUTE_CPU_LANES_H

#include <immintrin.h>
#include <stdint.h>

enum { LANES = 16, LANE_REGISTERS = 32 };

typedef float Lanes __attribute__((vector_size(64), aligned(4)));
typedef uint32_t LaneBits __attribute__((vector_size(64), aligned(4)));

static inline Lanes lanes_fma(Lanes a, Lanes b, Lanes c)
{
    return (Lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline Lanes lanes_of(float value)
{
    return (Lanes)_mm512_set1_ps(value);
}

/* Exchange rows and columns of LANES x LANES values: pairs, fours, then 128-bit quarters twice. */
static inline void lanes_transpose(Lanes rows[LANES])
{
    __m512 pairs[LANES], fours[LANES], half[LANES];
    for (int i = 0; i < LANES; i += 2) {
        pairs[i] = _mm512_unpacklo_ps((__m512)rows[i], (__m512)rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps((__m512)rows[i], (__m512)rows[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        for (int j = 0; j < 2; j++) {
            __m512d low = (__m512d)pairs[i + j], high = (__m512d)pairs[i + j + 2];
            fours[i + 2 * j] = (__m512)_mm512_unpacklo_pd(low, high);
            fours[i + 2 * j + 1] = (__m512)_mm512_unpackhi_pd(low, high);
        }
    }
    for (int i = 0; i < LANES; i += 8) {
        for (int j = 0; j < 4; j++) {
            half[i + j] = _mm512_shuffle_f32x4(fours[i + j], fours[i + j + 4], 0x88);
            half[i + j + 4] = _mm512_shuffle_f32x4(fours[i + j], fours[i + j + 4], 0xdd);
        }
    }
    for (int j = 0; j < 8; j++) {
        rows[j] = (Lanes)_mm512_shuffle_f32x4(half[j], half[j + 8], 0x88);
        rows[j + 8] = (Lanes)_mm512_shuffle_f32x4(half[j], half[j + 8], 0xdd);
    }
}

static inline LaneBits lanes_load_halves(const uint16_t *in)
{
    return (LaneBits)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)in));
}

#endif
