#include "llmc/compute/arena_chunks.h"

#include <stddef.h>

int64_t arena_chunks_cut(ArenaChunk *chunks, const ParamTable *table)
{
    int64_t count = 0;
    for (int i = 0; i < table->count; i++) {
        const ParamSpec *spec = &table->specs[i];
        int64_t own_count = (spec->arena_count + ARENA_CHUNK - 1) / ARENA_CHUNK;
        for (int64_t c = 0; chunks && c < own_count; c++) {
            int64_t first = c * ARENA_CHUNK;
            int64_t rest = spec->arena_count - first;
            chunks[count + c] = (ArenaChunk){
                spec->offset + first, (int)(rest < ARENA_CHUNK ? rest : ARENA_CHUNK), param_decays(spec)};
        }
        count += own_count;
    }
    return count;
}
