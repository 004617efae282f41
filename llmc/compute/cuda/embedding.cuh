/* Token and position embedding, and their gradients without atomics. */
#ifndef LLMC_COMPUTE_CUDA_EMBEDDING_CUH
#define LLMC_COMPUTE_CUDA_EMBEDDING_CUH

#include "llmc/compute/cuda/values.cuh"
#include "llmc/compute/dropout.h"
#include "llmc/compute/token_bins.h"

/* T at most: eight positions a block, and the blocks that a grid may have in y. */
enum { EMBEDDING_ROWS = 8, EMBEDDING_T_MAX = EMBEDDING_ROWS * GRID_Y_MAX };

typedef struct EmbeddingForward {
    Tensor out;               /* (rows,C) = wte[token] + wpe[first_position + row % T], then dropout */
    const int32_t *tokens;    /* (rows) */
    const float *wte;         /* (Vp,C) */
    const float *wpe;         /* (at least first_position + T, C) */
    int64_t rows;             /* a multiple of T */
    int T, C, first_position; /* T at most EMBEDDING_T_MAX */
    Dropout dropout;
} EmbeddingForward;

/* Asynchronous. Bound by memory: 8 bytes an element of out in fp32, 6 in bf16, and 4 of each row of wpe. */
void embedding_forward(const EmbeddingForward *args, cudaStream_t stream);

/* d (count) *= dropout, in place: backward of the embedding's dropout. Nothing when it is off. */
void dropout_backward(Tensor d, int64_t count, const Dropout *dropout, cudaStream_t stream);

/* d_wpe (T,C) = or += sum over b of d_out (B,T,C). */
void embedding_backward_positions(float *d_wpe, Tensor d_out, int B, int T, int C, int accumulates,
                                  cudaStream_t stream);

/* Where the rows of wte go: into the exact sums, or into an fp32 arena. */
typedef struct TokenGradients {
    int64_t *sums;    /* (Vp,C) += exact, or NULL */
    float *gradients; /* (Vp,C) += */
    int64_t *bad;     /* += elements that are not finite or beyond limit; those count as 0 */
    float limit;
    int64_t *not_finite; /* += how many of the bad ones were not finite; or NULL */
} TokenGradients;

/* How many positions a bin may have: so many rows are summed by one block. */
enum { EMBEDDING_BIN_MAX = 256 };

/* Each token's row gets the sum of d_out (B*T,C) over its positions: of each bin in their order, then, where
 * it has several bins, of those in theirs.
 *   bins      on the device, of at most EMBEDDING_BIN_MAX positions each
 *   partial   embedding_partial_count(B*T, C) fp32 of scratch
 * The launches are the same for every batch: a block for each of count_max bins. */
void embedding_backward_tokens(const TokenGradients *out, const TokenBins *bins, Tensor d_out, int C,
                               float *partial, cudaStream_t stream);
int64_t embedding_partial_count(int64_t rows, int C);

#endif
