#include "llmc/compute/cpu/adamw.h"

#include <math.h>
#include <stddef.h>

#include "llmc/compute/cpu/exact.h"

/* How an element of the gradient is read. */
typedef enum Source { SOURCE_PLAIN, SOURCE_ROUNDED, SOURCE_SUMS } Source;

/* Inlined with constants for source and has_low, so that each of the loops has no branch. */
static inline __attribute__((always_inline)) void update(const AdamwRange *range, const AdamwFactors *factors,
                                                         Source source, int has_low)
{
    AdamwFactors f = *factors;
    float *restrict weights = range->weights;
    float *restrict moment1 = range->moment1;
    float *restrict moment2 = range->moment2;
    bf16 *restrict weights_low = range->weights_low;
    const float *restrict gradients = range->gradients;
    const int64_t *restrict sums = range->sums;
#pragma omp simd
    for (int64_t i = 0; i < range->count; i++) {
        float gradient = source == SOURCE_SUMS      ? exact_to_float(sums[i])
                         : source == SOURCE_ROUNDED ? exact_round(gradients[i])
                                                    : gradients[i];
        gradient *= f.clip;
        float m = f.beta1 * moment1[i] + (1.0f - f.beta1) * gradient;
        float v = f.beta2 * moment2[i] + (1.0f - f.beta2) * gradient * gradient;
        float weight = weights[i] * f.keep - f.step * m / (sqrtf(v) * f.inverse_root + f.epsilon);
        moment1[i] = m;
        moment2[i] = v;
        weights[i] = weight;
        if (has_low) {
            weights_low[i] = bf16_from_float(weight);
        }
    }
}

static inline __attribute__((always_inline)) void update_from(const AdamwRange *range,
                                                              const AdamwFactors *factors, Source source)
{
    if (range->weights_low) {
        update(range, factors, source, 1);
    } else {
        update(range, factors, source, 0);
    }
}

void adamw_update(const AdamwRange *range, const AdamwFactors *factors)
{
    if (range->sums) {
        update_from(range, factors, SOURCE_SUMS);
    } else if (range->is_rounded) {
        update_from(range, factors, SOURCE_ROUNDED);
    } else {
        update_from(range, factors, SOURCE_PLAIN);
    }
}
