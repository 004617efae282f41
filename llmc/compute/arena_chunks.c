#include "llmc/compute/arena_chunks.h"

#include <stddef.h>

int arena_chunks_cut(ArenaChunk *chunks, const ParamTable *table)
{
    int count = 0;
    for (int i = 0; i < table->count; i++) {
        const ParamSpec *spec = &table->specs[i];
        for (int64_t first = 0; first < spec->arena_count; first += ARENA_CHUNK) {
            int64_t rest = spec->arena_count - first;
            if (chunks) {
                chunks[count] = (ArenaChunk){
                    spec->offset + first, (int)(rest < ARENA_CHUNK ? rest : ARENA_CHUNK), param_decays(spec)};
            }
            count++;
        }
    }
    return count;
}
