#include "llmc/compute/cpu/exact.h"

#include <math.h>

int64_t exact_add(int64_t *restrict sums, const float *restrict values, int64_t count, float limit)
{
    int64_t bad = 0;
#pragma omp simd reduction(+ : bad)
    for (int64_t i = 0; i < count; i++) {
        int is_good = fabsf(values[i]) <= limit; /* false for a NaN */
        sums[i] += exact_from_float(is_good ? values[i] : 0.0f);
        bad += !is_good;
    }
    return bad;
}

int64_t exact_set(int64_t *restrict sums, const float *restrict values, int64_t count, float limit)
{
    int64_t bad = 0;
#pragma omp simd reduction(+ : bad)
    for (int64_t i = 0; i < count; i++) {
        int is_good = fabsf(values[i]) <= limit;
        sums[i] = exact_from_float(is_good ? values[i] : 0.0f);
        bad += !is_good;
    }
    return bad;
}

int64_t exact_count_not_finite(const float *values, int64_t count)
{
    int64_t not_finite = 0;
    for (int64_t i = 0; i < count; i++) {
        not_finite += !isfinite(values[i]);
    }
    return not_finite;
}

int64_t exact_fold(const ExactFold *fold)
{
    enum { CHUNK = 1 << 14 };
    int64_t bad = 0;
#pragma omp parallel for schedule(static) reduction(+ : bad)
    for (int64_t first = 0; first < fold->count; first += CHUNK) {
        int64_t count = fold->count - first < CHUNK ? fold->count - first : CHUNK;
        bad += fold->is_first ? exact_set(fold->sums + first, fold->values + first, count, fold->limit)
                              : exact_add(fold->sums + first, fold->values + first, count, fold->limit);
    }
    return bad;
}
