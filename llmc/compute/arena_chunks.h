/* The arena cut into chunks, none across tensors. Gradients are checked and normed chunk by chunk: a fixed
 * order of sums, whatever the number of threads or blocks.
 */
#ifndef LLMC_COMPUTE_ARENA_CHUNKS_H
#define LLMC_COMPUTE_ARENA_CHUNKS_H

#include "llmc/model/params.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ARENA_CHUNK = 1 << 14 }; /* elements at most */
typedef struct ArenaChunk {
    int64_t offset;
    int count;
    int decays;
} ArenaChunk;

/* Returns how many there are, in the order of the arena; chunks is filled, or NULL to count them only. */
int64_t arena_chunks_cut(ArenaChunk *chunks, const ParamTable *table);

#ifdef __cplusplus
}
#endif
#endif
