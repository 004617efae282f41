/* AdamW with decoupled weight decay, as torch.optim.AdamW computes it, on one range of the arena.
 * arXiv:1711.05101 */
#ifndef LLMC_COMPUTE_CPU_ADAMW_H
#define LLMC_COMPUTE_CPU_ADAMW_H

#include "llmc/model/dtype.h"

typedef struct AdamwFactors {
    float keep; /* 1 - lr * weight decay */
    float beta1, beta2;
    float step;         /* lr / (1 - beta1^t) */
    float inverse_root; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
} AdamwFactors;

/* weights, moment1, moment2 (count) are updated from gradients (count); weights_low (count) bf16 = weights,
 * or NULL. Serial; bound by memory: 28 bytes an element, 30 with weights_low. */
void adamw_update(float *weights, float *moment1, float *moment2, bf16 *weights_low, const float *gradients,
                  int64_t count, const AdamwFactors *factors);

#endif
