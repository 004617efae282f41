/* fma_of: a * b + c, rounded once, for loops that the compiler vectorises. Here in portable C, without libm,
 * whose fmaf is a call for each value; the Makefile picks the folder of lanes/ for each level.
 */
#ifndef LLMC_COMPUTE_CPU_FMA_H
#define LLMC_COMPUTE_CPU_FMA_H

#include <stdint.h>
#include <string.h>

/* The product of two fp32 values is exact in double. Its sum with c is rounded to odd: if it is not exact,
 * the neighbour whose last bit is 1 is taken. Rounding that to fp32 is then the same as rounding the exact
 * sum.  Source: Boldo and Melquiond, doi:10.1109/TC.2007.70819 */
static inline float fma_of(float a, float b, float c)
{
    double product = (double)a * (double)b;
    double sum = product + (double)c;
    double addend_seen = sum - product;
    double error = (product - (sum - addend_seen)) + ((double)c - addend_seen); /* exact: Knuth's two-sum */
    int64_t bits, error_bits;
    memcpy(&bits, &sum, sizeof(bits));
    memcpy(&error_bits, &error, sizeof(error_bits));
    int64_t away = ((bits ^ error_bits) >> 63) | 1; /* 1 towards larger magnitude, else -1 */
    int64_t is_to_move = (error != 0.0) & (error == error) & ~bits & 1; /* error is NaN if sum is infinite */
    bits += is_to_move ? away : 0;
    memcpy(&sum, &bits, sizeof(sum));
    return (float)sum;
}

#endif
