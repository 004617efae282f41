/* Token and position embedding, and their gradients. */
#ifndef LLMC_COMPUTE_CPU_EMBEDDING_H
#define LLMC_COMPUTE_CPU_EMBEDDING_H

#include "llmc/compute/cpu/dropout.h"
#include "llmc/compute/cpu/vector.h"
#include "llmc/compute/token_bins.h"

/* out (B,T,C) fp32 = wte[token] + wpe[t], then dropout.  tokens (B,T), wte (Vp,C), wpe (at least T,C). */
void embedding_forward(float *out, const int32_t *tokens, const float *wte, const float *wpe, int B, int T,
                       int C, const Dropout *dropout);

/* d_row (C) = sum over one bin's positions of d_out (B*T,C). */
void embedding_backward_token(float *d_row, const TokenBins *bins, int bin, const float *d_out, int C);

/* d_wpe (T,C) = or += sum over b of d_out (B,T,C). */
void embedding_backward_positions(float *d_wpe, const float *d_out, int B, int T, int C, int accumulates);

#endif
