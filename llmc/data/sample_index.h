/* Which window is sample n: a keyed permutation of 0 .. W-1 for each epoch n / W, so that no state but n
 * exists. A Feistel network over the next even power of two, walked until it lands below W.
 */
#ifndef LLMC_DATA_SAMPLE_INDEX_H
#define LLMC_DATA_SAMPLE_INDEX_H

#include <stdint.h>

/* Sample n of a set of `windows` windows; without shuffle n % windows. */
int64_t sample_index(uint64_t n, int64_t windows, uint64_t seed, int is_shuffled);

#endif
