#include "llmc/compute/token_bins.h"

#include <string.h>

/* Append the bins of a token that has `count` positions from `start` on; returns where the next begin. */
static int32_t append(TokenBins *bins, int token, int32_t start, int32_t count, int32_t bin_max)
{
    for (int64_t done = 0; done < count; done += bin_max) {
        bins->tokens[bins->count] = token;
        bins->starts[bins->count++] = start + (int32_t)done;
    }
    return start + count;
}

void token_bins_fill(TokenBins *bins, const int32_t *tokens, int64_t BT, int V, int bin_max)
{
    int32_t *next = bins->counters; /* counts, then the place of each token's next position */
    int32_t start = 0, limit = bin_max > 0 ? bin_max : INT32_MAX;
    memset(next, 0, ((size_t)V + 1) * sizeof(*next));
    for (int64_t position = 0; position < BT; position++) {
        next[tokens[position]]++;
    }
    bins->count = 0;
    for (int token = 0; token < V; token++) {
        start = next[token] > limit ? append(bins, token, start, next[token], limit) : start;
    }
    bins->split_count = bins->count;
    for (int token = 0; token < V; token++) {
        int32_t count = next[token];
        if (count > 0 && count <= limit) {
            next[token] = start;
            start = append(bins, token, start, count, limit);
        }
    }
    bins->starts[bins->count] = (int32_t)BT;
    for (int bin = bins->split_count - 1; bin >= 0; bin--) { /* down to the first of each token */
        next[bins->tokens[bin]] = bins->starts[bin];
    }
    for (int64_t position = 0; position < BT; position++) {
        bins->positions[next[tokens[position]]++] = (int32_t)position;
    }
}

/* A token of n > bin_max positions has at most 2 n / (bin_max + 1) bins. */
int64_t token_bins_split_max(int64_t BT, int bin_max)
{
    return 2 * BT / (bin_max + 1);
}

int64_t token_bins_count_max(int64_t BT, int V, int bin_max)
{
    int64_t count = (BT < V ? BT : V) + token_bins_split_max(BT, bin_max);
    return count < BT ? count : BT;
}
