/* The positions of a batch sorted by token, so that the gradient of wte needs no atomics: each row is summed
 * by one thread or block, in the order of its positions.
 */
#ifndef LLMC_COMPUTE_TOKEN_BINS_H
#define LLMC_COMPUTE_TOKEN_BINS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bin i holds positions[starts[i]] .. positions[starts[i+1]-1], in
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

#ifdef __cplusplus
}
#endif
#endif
