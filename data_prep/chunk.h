/* A piece of text that can be encoded by itself, with the places where documents begin and end in it.
 */
#ifndef DATA_PREP_CHUNK_H
#define DATA_PREP_CHUNK_H

#include <stddef.h>
#include <stdint.h>

enum { CHUNK_BYTES = 1 << 18, WORD_BYTES_MAX = 1 << 28 };

typedef enum MarkKind { MARK_BEGIN, MARK_END } MarkKind;

/* A document begins or ends before byte `offset` of its chunk. */
typedef struct DocumentMark {
    size_t offset;
    MarkKind kind;
} DocumentMark;

/* Before the chunk's document `document` (which may be negative, or one of the next chunk), entry `entry` of
 * the outermost archive of input `input` begins: so reading can begin there again. */
typedef struct ChunkPlace {
    int64_t input;
    int64_t entry;
    int64_t document;
} ChunkPlace;

/* Zero it to begin; release when done. */
typedef struct Chunk {
    char *text;
    size_t bytes;
    size_t capacity;
    DocumentMark *marks;
    size_t marks_count;
    size_t marks_capacity;
    int is_val; /* of the inputs for validation */
    int has_place;
    ChunkPlace place; /* the last in this chunk */
} Chunk;

void chunk_release(Chunk *chunk);
void chunk_reserve(Chunk *chunk, size_t capacity);
/* A document begins or ends at the end of what is there. */
void chunk_mark(Chunk *chunk, MarkKind kind);
/* How many documents end among the first marks. */
int64_t chunk_ended_count(const Chunk *chunk, size_t marks);

/* Remove the first *count documents and what is there of the next of them; *count is what is left to drop. */
void chunk_drop_documents(Chunk *chunk, int64_t *count);

#endif
