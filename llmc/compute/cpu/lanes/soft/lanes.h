/* A register of fp32 values and its fused multiply-add, in portable C: slow, and exactly what the
 * instructions of other levels compute. The Makefile picks the folder of lanes/ for each level.
 *
 * Each folder defines
 *   LANES            values in a register
 *   LANE_REGISTERS   how many registers there are
 *   Lanes            the register, of GCC's vector extension, loaded from any address
 *   lanes_fma        a * b + c, rounded once
 *   lanes_of         one value in every place
 *   lanes_transpose  rows of a square of values become columns
 *   lanes_load_halves  LANES 16-bit numbers as 32-bit ones, LaneBits
 */
#ifndef LLMC_COMPUTE_CPU_LANES_H
#define LLMC_COMPUTE_CPU_LANES_H

#include <stdint.h>

#include "fma.h"

enum { LANES = 4, LANE_REGISTERS = 16 };

typedef float Lanes __attribute__((vector_size(16), aligned(4)));
typedef uint32_t LaneBits __attribute__((vector_size(16), aligned(4)));

static inline Lanes lanes_fma(Lanes a, Lanes b, Lanes c)
{
    Lanes result;
    for (int i = 0; i < LANES; i++) {
        result[i] = fma_of(a[i], b[i], c[i]);
    }
    return result;
}

static inline Lanes lanes_of(float value)
{
    return (Lanes){value, value, value, value};
}

static inline void lanes_transpose(Lanes rows[LANES])
{
    Lanes in[LANES];
    for (int i = 0; i < LANES; i++) {
        in[i] = rows[i];
    }
    for (int i = 0; i < LANES; i++) {
        for (int j = 0; j < LANES; j++) {
            rows[i][j] = in[j][i];
        }
    }
}

static inline LaneBits lanes_load_halves(const uint16_t *in)
{
    return (LaneBits){in[0], in[1], in[2], in[3]};
}

#endif
