/* Token and position embedding, and their gradients without atomics: positions are binned by token in their
 * own order. */
#ifndef LLMC_COMPUTE_CPU_EMBEDDING_H
#define LLMC_COMPUTE_CPU_EMBEDDING_H

#include "llmc/compute/cpu/dropout.h"
#include "llmc/compute/cpu/vector.h"

/* out (B,T,C) fp32 = wte[token] + wpe[t], then dropout.  tokens (B,T), wte (Vp,C), wpe (at least T,C). */
void embedding_forward(float *out, const int32_t *tokens, const float *wte, const float *wpe, int B, int T,
                       int C, const Dropout *dropout);

/* The positions of a batch, sorted by token: bin i holds positions[starts[i]] .. positions[starts[i+1]-1], in
 * order. */
typedef struct TokenBins {
    int32_t *tokens;    /* (count) distinct tokens, rising */
    int32_t *starts;    /* (count + 1) */
    int32_t *positions; /* (B*T) */
    int32_t *counters;  /* (V + 1) scratch */
    int count;
} TokenBins;

/* The arrays hold B*T + 1 elements each, counters V + 1; the caller owns them. */
void token_bins_fill(TokenBins *bins, const int32_t *tokens, int64_t BT, int V);

/* d_row (C) = sum over one bin's positions of d_out (B*T,C). */
void embedding_backward_token(float *d_row, const TokenBins *bins, int bin, const float *d_out, int C);

/* d_wpe (T,C) = or += sum over b of d_out (B,T,C). */
void embedding_backward_positions(float *d_wpe, const float *d_out, int B, int T, int C, int accumulates);

#endif
