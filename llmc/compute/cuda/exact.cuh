/* Exact sums: values become 64-bit integers, llrint(x * 2^52), whose sum does not depend on its order. */
#ifndef LLMC_COMPUTE_CUDA_EXACT_CUH
#define LLMC_COMPUTE_CUDA_EXACT_CUH

#include "llmc/compute/backend.h"
#include "llmc/compute/cuda/values.cuh"

static __device__ __forceinline__ int64_t exact_from_float(float x)
{
    return (int64_t)__double2ll_rn((double)x * EXACT_SCALE);
}

static __device__ __forceinline__ float exact_to_float(int64_t sum)
{
    return (float)((double)sum * (1.0 / EXACT_SCALE));
}

/* A value that no exact sum takes. Rare: so it may be slow. */
static __device__ __forceinline__ void count_bad(int64_t *bad, int64_t *not_finite, float value)
{
    atomicAdd((unsigned long long *)bad, 1ull);
    if (not_finite && !isfinite(value)) {
        atomicAdd((unsigned long long *)not_finite, 1ull);
    }
}

typedef struct ExactFold {
    int64_t *sums;       /* (count) += */
    const float *values; /* (count) */
    int64_t count;
    float limit;
    int64_t *bad;        /* += how many were not finite or beyond limit; those count as 0 */
    int is_first;        /* sums are set, not added to */
    int64_t *not_finite; /* += how many of the bad ones were not finite; or NULL */
} ExactFold;

/* Asynchronous. Bound by memory: 20 bytes an element, 12 if first. */
void exact_fold(const ExactFold *fold, cudaStream_t stream);

typedef struct LossFold {
    int64_t
        *tail; /* TAIL_LOSS += the mean of losses / slots, TAIL_BAD += 1 if that is not finite or too large */
    const float *losses;
    int64_t count;
    int slots;
} LossFold;

/* One block, in double precision. */
void exact_fold_loss(const LossFold *fold, cudaStream_t stream);

/* *mean = the mean of losses (count), in double precision. */
void mean_loss(double *mean, const float *losses, int64_t count, cudaStream_t stream);

#endif
