/* The positions of a batch sorted by token, so that the gradient of wte needs no atomics: each row is summed
 * by one thread or block, in the order of its positions.
 */
#ifndef LLMC_COMPUTE_TOKEN_BINS_H
#define LLMC_COMPUTE_TOKEN_BINS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bin i holds positions[starts[i]] .. positions[starts[i+1]-1], in order. A token with more positions than a
 * bin may have gets several, one after the other, all full but the last. Such bins come first; within them,
 * and within the others, tokens rise. Kernels read the counts in memory of the device: a launch that depends
 * on no batch can be recorded once and repeated. */
typedef struct TokenBins {
    int32_t *tokens;    /* (count) */
    int32_t *starts;    /* (count + 1) */
    int32_t *positions; /* (B*T) */
    int32_t *counters;  /* (V + 1) scratch */
    int count;
    int split_count;        /* the first so many bins are parts of a token's positions */
    int32_t *device_counts; /* (2) both again, of bins that lie on a device */
    int count_max;          /* that no batch exceeds, of the same */
    int split_max;          /* nor this split_count */
} TokenBins;

/* Fills the arrays, which hold B*T + 1 elements each, counters V + 1, and the counts; the caller owns them.
 * bin_max: how many positions a bin may have; 0: any number, so that there is one bin for each token. */
void token_bins_fill(TokenBins *bins, const int32_t *tokens, int64_t BT, int V, int bin_max);

/* No B*T tokens give more bins, or more of them that are parts, for bin_max > 0. */
int64_t token_bins_count_max(int64_t BT, int V, int bin_max);
int64_t token_bins_split_max(int64_t BT, int bin_max);

#ifdef __cplusplus
}
#endif
#endif
