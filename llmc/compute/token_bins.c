#include "llmc/compute/token_bins.h"

#include <string.h>

void token_bins_fill(TokenBins *bins, const int32_t *tokens, int64_t BT, int V)
{
    int32_t *next = bins->counters; /* counts, then the place of each token's next position */
    memset(next, 0, ((size_t)V + 1) * sizeof(*next));
    for (int64_t position = 0; position < BT; position++) {
        next[tokens[position] + 1]++;
    }
    bins->count = 0;
    for (int token = 0; token < V; token++) {
        int32_t token_count = next[token + 1];
        next[token + 1] += next[token];
        if (token_count > 0) {
            bins->tokens[bins->count] = token;
            bins->starts[bins->count++] = next[token];
        }
    }
    bins->starts[bins->count] = (int32_t)BT;
    for (int64_t position = 0; position < BT; position++) {
        bins->positions[next[tokens[position]]++] = (int32_t)position;
    }
}
