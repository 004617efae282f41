/* AdamW with decoupled weight decay, as torch.optim.AdamW computes it, on one range of the arena.
 * arXiv:1711.05101 */
#ifndef LLMC_COMPUTE_CPU_ADAMW_H
#define LLMC_COMPUTE_CPU_ADAMW_H

#include <stdint.h>

#include "llmc/model/dtype.h"

typedef struct AdamwFactors {
    float clip; /* what the gradient is multiplied by first */
    float keep; /* 1 - lr * weight decay */
    float beta1, beta2;
    float step;         /* lr / (1 - beta1^t) */
    float inverse_root; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
} AdamwFactors;

/* Where the elements of one range lie; all arrays have `count` of them. */
typedef struct AdamwRange {
    float *weights, *moment1, *moment2; /* updated */
    bf16 *weights_low;                  /* = weights, or NULL */
    const int64_t *sums;                /* exact sums (exact.h) of the gradient; or NULL: it is .. */
    const float *gradients;
    int is_rounded; /* gradients go through exact_round first */
    int64_t count;
} AdamwRange;

/* One pass: everything is read once, and all but the gradient written once. Serial; bound by memory: 28 bytes
 * an element, 32 from sums; 2 more with weights_low. */
void adamw_update(const AdamwRange *range, const AdamwFactors *factors);

#endif
