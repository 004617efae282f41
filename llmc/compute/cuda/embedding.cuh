/* Token and position embedding, and their gradients without atomics. */
#ifndef LLMC_COMPUTE_CUDA_EMBEDDING_CUH
#define LLMC_COMPUTE_CUDA_EMBEDDING_CUH

#include "llmc/compute/cuda/values.cuh"
#include "llmc/compute/dropout.h"
#include "llmc/compute/token_bins.h"

typedef struct EmbeddingForward {
    float *out;            /* (rows,C) = wte[token] + wpe[first_position + row % T], then dropout */
    const int32_t *tokens; /* (rows) */
    const float *wte;      /* (Vp,C) */
    const float *wpe;      /* (at least first_position + T, C) */
    int64_t rows;          /* a multiple of T */
    int T, C, first_position;
    Dropout dropout;
} EmbeddingForward;

/* Asynchronous. Bound by memory: 8 bytes an element of out, and 4 of each row of wpe. */
void embedding_forward(const EmbeddingForward *args, cudaStream_t stream);

/* d (count) *= dropout, in place: backward of the embedding's dropout. Nothing when it is off. */
void dropout_backward(float *d, int64_t count, const Dropout *dropout, cudaStream_t stream);

/* d_wpe (T,C) = or += sum over b of d_out (B,T,C). */
void embedding_backward_positions(float *d_wpe, const float *d_out, int B, int T, int C, int accumulates,
                                  cudaStream_t stream);

/* Where the rows of wte go: into the exact sums, or into an fp32 arena. */
typedef struct TokenGradients {
    int64_t *sums;    /* (Vp,C) += exact, or NULL */
    float *gradients; /* (Vp,C) += */
    int64_t *bad;     /* += elements that are not finite or beyond limit; those count as 0 */
    float limit;
    int64_t *not_finite; /* += how many of the bad ones were not finite; or NULL */
} TokenGradients;

/* Each bin's row gets the sum of d_out (B*T,C) over the bin's positions, in their order. `bins` lies on the
 * device, and the launch is the same for every batch: a block for each of count_max bins. */
void embedding_backward_tokens(const TokenGradients *out, const TokenBins *bins, const float *d_out, int C,
                               cudaStream_t stream);

#endif
