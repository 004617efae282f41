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

enum { LANES = 4, LANE_REGISTERS = 16 };

typedef float Lanes __attribute__((vector_size(16), aligned(4)));
typedef uint32_t LaneBits __attribute__((vector_size(16), aligned(4)));

/* The product of two fp32 values is exact in double. Its sum with c is rounded to odd: if it is not exact,
 * the neighbour whose last bit is 1 is taken. Rounding that to fp32 is then the same as rounding the exact
 * sum.  Source: Boldo and Melquiond, doi:10.1109/TC.2007.70819 */
static inline Lanes lanes_fma(Lanes a, Lanes b, Lanes c)
{
    typedef double Wide __attribute__((vector_size(32)));
    typedef int64_t Bits __attribute__((vector_size(32)));
    Wide product = __builtin_convertvector(a, Wide) * __builtin_convertvector(b, Wide);
    Wide addend = __builtin_convertvector(c, Wide);
    Wide sum = product + addend;
    Wide addend_seen = sum - product;
    Wide error = (product - (sum - addend_seen)) + (addend - addend_seen); /* exact: Knuth's two-sum */
    Bits bits = (Bits)sum;
    Bits is_inexact = (error != 0.0) & (error == error); /* false where the sum is infinite or no number */
    Bits is_even = (bits & 1) == 0;
    Bits is_same_sign = (bits ^ (Bits)error) >= 0;
    Bits away = (is_same_sign & 1) | (~is_same_sign & -1);
    bits += is_inexact & is_even & away;
    return __builtin_convertvector((Wide)bits, Lanes);
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
