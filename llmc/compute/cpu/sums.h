/* Sums and maxima over a row of fp32 values in one order, whatever the register's width: element i belongs to
 * lane i % SUM_LANES; each lane adds its elements from first to last, beginning with 0; then the upper half
 * of the lanes is added to the lower half, until one is left.
 */
#ifndef LLMC_COMPUTE_CPU_SUMS_H
#define LLMC_COMPUTE_CPU_SUMS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lanes.h"

enum { SUM_LANES = 32, SUM_PARTS = SUM_LANES / LANES };

/* All lanes of a sum, in registers. */
typedef struct Sum {
    Lanes part[SUM_PARTS];
} Sum;

/* What the lanes come to; `rest` holds the terms, fewer than SUM_LANES, that come after those in the lanes.
 */
static inline float sum_fold(const Sum *sum, const float *rest, int64_t rest_count)
{
    float lanes[SUM_LANES];
    memcpy(lanes, sum->part, sizeof(lanes));
    for (int64_t i = 0; i < rest_count; i++) {
        lanes[i] += rest[i];
    }
    for (int half = SUM_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[half + i];
        }
    }
    return lanes[0];
}

/* Adds as many values as fill all lanes the same number of times. Returns how many these are. */
static inline int64_t sum_add(Sum *sum, const float *values, int64_t count)
{
    Sum sums = *sum;
    int64_t i = 0;
    for (; i + SUM_LANES <= count; i += SUM_LANES) {
        for (int p = 0; p < SUM_PARTS; p++) {
            sums.part[p] += *(const Lanes *)(values + i + p * LANES);
        }
    }
    *sum = sums;
    return i;
}

static inline float sum_of(const float *values, int64_t count)
{
    Sum sum = {0};
    int64_t added = sum_add(&sum, values, count);
    return sum_fold(&sum, values + added, count - added);
}

/* The sum of a[i] * b[i]; products are rounded before they are added. */
static inline float dot_of(const float *a, const float *b, int64_t count)
{
    Sum sum = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= count; i += SUM_LANES) {
        for (int p = 0; p < SUM_PARTS; p++) {
            sum.part[p] += *(const Lanes *)(a + i + p * LANES) * *(const Lanes *)(b + i + p * LANES);
        }
    }
    float rest[SUM_LANES];
    for (int64_t r = 0; r < count - i; r++) {
        rest[r] = a[i + r] * b[i + r];
    }
    return sum_fold(&sum, rest, count - i);
}

/* The sum of (values[i] - mean)^2. */
static inline float squares_of(const float *values, float mean, int64_t count)
{
    Sum sum = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= count; i += SUM_LANES) {
        for (int p = 0; p < SUM_PARTS; p++) {
            Lanes distance = *(const Lanes *)(values + i + p * LANES) - lanes_of(mean);
            sum.part[p] += distance * distance;
        }
    }
    float rest[SUM_LANES];
    for (int64_t r = 0; r < count - i; r++) {
        rest[r] = (values[i + r] - mean) * (values[i + r] - mean);
    }
    return sum_fold(&sum, rest, count - i);
}

/* The largest value, at least `least`, which is a number. A value that is no number counts as none: only such
 * a one and the sign of zero could depend on the order of comparisons, and adding +0 makes that sign +. */
static inline float max_of(const float *values, int64_t count, float least)
{
    float maximum = least;
#pragma omp simd reduction(max : maximum)
    for (int64_t i = 0; i < count; i++) {
        maximum = values[i] > maximum ? values[i] : maximum;
    }
    return maximum + 0.0f;
}

#endif
