/* The positions of a batch sorted by token, so that the gradient of wte needs no atomics: each row is summed
 * by one thread or block, in the order of its positions.
 */
#ifndef LLMC_COMPUTE_TOKEN_BINS_H
#define LLMC_COMPUTE_TOKEN_BINS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bin i holds positions[starts[i]] .. positions[starts[i+1]-1], in order. Kernels read count in memory of the
 * device: a launch that depends on no batch can be recorded once and repeated. */
typedef struct TokenBins {
    int32_t *tokens;    /* (count) distinct tokens, rising */
    int32_t *starts;    /* (count + 1) */
    int32_t *positions; /* (B*T) */
    int32_t *counters;  /* (V + 1) scratch */
    int count;
    int32_t *device_count; /* (1) count again, of bins that lie on a device */
    int count_max;         /* that no batch exceeds, of the same: min(B*T, V) */
} TokenBins;

/* Fills the arrays, which hold B*T + 1 elements each, counters V + 1, and count; the caller owns them. */
void token_bins_fill(TokenBins *bins, const int32_t *tokens, int64_t BT, int V);

#ifdef __cplusplus
}
#endif
#endif
