/* From the reduced gradients to new weights: norm, clipping, AdamW with decoupled weight decay, as
 * torch.optim.AdamW computes it. Everything stays on the device; a step whose gradients are bad changes
 * nothing. arXiv:1711.05101 */
#ifndef LLMC_COMPUTE_CUDA_ADAMW_CUH
#define LLMC_COMPUTE_CUDA_ADAMW_CUH

#include "llmc/compute/arena_chunks.h"
#include "llmc/compute/backend.h"
#include "llmc/compute/cuda/values.cuh"

/* How the gradients lie: as exact sums, or in fp32, then rounded as exact sums would be if is_rounded. */
typedef struct Gradients {
    const int64_t *sums; /* or NULL */
    const float *values;
    int is_rounded;
    float limit; /* of a good fp32 element */
} Gradients;

/* What the host reads after a step. */
typedef struct StepOutcome {
    double norm;
    int64_t loss; /* the tail's */
    int64_t bad;
    int64_t not_finite; /* of the bad ones */
} StepOutcome;

typedef struct AdamwUpdate {
    float *weights, *moment1, *moment2;
    __nv_bfloat16 *weights_low; /* = weights, or NULL */
    Gradients gradients;
    const ArenaChunk *chunks; /* (chunk_count) */
    int chunk_count;
    double *norm_partial; /* (chunk_count) scratch */
    int64_t *bad_partial; /* (chunk_count) scratch */
    const int64_t *tail;  /* (GRADIENT_TAIL) */
    StepOutcome *outcome; /* = */
    float grad_clip;      /* 0: none */
    float decay;          /* what a weight that decays is multiplied with */
    float beta1, beta2;
    float step;         /* lr / (1 - beta1^t) */
    float inverse_root; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
} AdamwUpdate;

/* Asynchronous. Bound by memory: 8 bytes an element for the norm, 34 + 2 for the update. */
void adamw_update(const AdamwUpdate *args, cudaStream_t stream);

/* out (count) = gradients [offset, offset + count) as the update sees them. */
void gradients_read(float *out, const Gradients *gradients, int64_t offset, int64_t count,
                    cudaStream_t stream);

#endif
