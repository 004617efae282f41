#include "llmc/compute/cpu/adamw.h"

#include <math.h>
#include <stddef.h>

void adamw_update(float *restrict weights, float *restrict moment1, float *restrict moment2,
                  bf16 *restrict weights_low, const float *restrict gradients, int64_t count,
                  const AdamwFactors *factors)
{
    AdamwFactors f = *factors;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float gradient = gradients[i];
        float m = f.beta1 * moment1[i] + (1.0f - f.beta1) * gradient;
        float v = f.beta2 * moment2[i] + (1.0f - f.beta2) * gradient * gradient;
        moment1[i] = m;
        moment2[i] = v;
        weights[i] = weights[i] * f.keep - f.step * m / (sqrtf(v) * f.inverse_root + f.epsilon);
    }
    if (weights_low) {
        for (int64_t i = 0; i < count; i++) {
            weights_low[i] = bf16_from_float(weights[i]);
        }
    }
}
