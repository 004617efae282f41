/* Exact sums: values become 64-bit integers, llrint(x * 2^52), whose sum does not depend on its order. */
#ifndef LLMC_COMPUTE_CPU_EXACT_H
#define LLMC_COMPUTE_CPU_EXACT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "llmc/compute/backend.h"

/* llrint(x * 2^52) for |x| <= 2^10, in steps that vectorise without AVX-512: the upper 32 bits are cut off by
 * rounding to a multiple of 2^32, which leaves a rest that rounds to nearest even as the whole would. */
static inline int64_t exact_from_float(float x)
{
    const double round_to_integer = 0x1.8p52;
    double scaled = (double)x * EXACT_SCALE;
    double shifted_high = scaled * 0x1p-32 + round_to_integer;
    double high = shifted_high - round_to_integer;
    double shifted_low = (scaled - high * 0x1p32) + round_to_integer;
    int64_t high_bits, low_bits, round_bits;
    memcpy(&high_bits, &shifted_high, sizeof(high_bits));
    memcpy(&low_bits, &shifted_low, sizeof(low_bits));
    memcpy(&round_bits, &round_to_integer, sizeof(round_bits));
    return (int64_t)((uint64_t)(high_bits - round_bits) << 32) + (low_bits - round_bits);
}

/* (float)((double)sum * 2^-52), in steps that vectorise without AVX-512: each half of the sum is put into the
 * fraction of a double whose exponent says what it stands for. Both are exact, and their sum is rounded once,
 * as (double)sum is. */
static inline float exact_to_float(int64_t sum)
{
    const double two84_and_63 = 0x1p84 + 0x1p63;
    const double two52 = 0x1p52;
    uint64_t high_bits = (uint64_t)sum >> 32 ^ 0x4530000080000000u; /* 2^84 + 2^63 + the upper half */
    uint64_t low_bits = ((uint64_t)sum & 0xffffffffu) | 0x4330000000000000u; /* 2^52 + the lower half */
    double high, low;
    memcpy(&high, &high_bits, sizeof(high));
    memcpy(&low, &low_bits, sizeof(low));
    return (float)(((high - two84_and_63) + (low - two52)) * (1.0 / EXACT_SCALE));
}

/* What an fp32 value is after one trip through the integers: exact_to_float(exact_from_float(x)), without
 * leaving fp32. From 2^-29 on a value is a multiple of 2^-52 already. Below, adding 2^-29 of the same sign
 * rounds it to one, to nearest even, and taking that away is exact. */
static inline float exact_round(float x)
{
    float offset = copysignf(0x1p-29f, x);
    float rounded = (x + offset) - offset;
    return fabsf(x) < 0x1p-29f ? rounded : x;
}

/* sums[i] += llrint(values[i] * 2^52). Returns how many values were not finite or beyond limit; those count
 * as 0. Serial. */
int64_t exact_add(int64_t *sums, const float *values, int64_t count, float limit);
/* The same, but = instead of += */
int64_t exact_set(int64_t *sums, const float *values, int64_t count, float limit);

/* How many of those were not finite. For the few ranges that have bad values. Serial. */
int64_t exact_count_not_finite(const float *values, int64_t count);

typedef struct ExactFold {
    int64_t *sums;
    const float *values;
    int64_t count;
    float limit;
    int is_first; /* sums are set, not added to */
} ExactFold;

/* A whole range on all threads. Returns the number of bad values. Bound by memory: 20 bytes an element, 12 if
 * first. */
int64_t exact_fold(const ExactFold *fold);

#endif
