/* All inputs as one row of chunks, each a piece of text that can be encoded by itself: it ends where a
 * document ends, or where the pattern ends a word for certain.
 */
#ifndef DATA_PREP_DOCUMENTS_H
#define DATA_PREP_DOCUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "data_prep/options.h"
#include "llmc/text/tokenizer.h"

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
    int has_place;
    ChunkPlace place; /* the last in this chunk */
} Chunk;

void chunk_release(Chunk *chunk);

/* Remove the first *count documents and what is there of the next of them; *count is what is left to drop. */
void chunk_drop_documents(Chunk *chunk, int64_t *count);

typedef struct Documents Documents;

/* Nothing is opened yet. The caller frees. */
Documents *documents_create(const TokenizeOptions *options, const Tokenizer *tokenizer);
void documents_free(Documents *documents);

/* Begin at this place, before anything is read. */
void documents_begin_at(Documents *documents, int64_t input, int64_t entry);

/* Fill the next chunk. Returns 1, 0 when there is no more, -1 with *error set. */
int documents_next(Documents *documents, Chunk *chunk, Error *error);

/* Bytes read of the inputs so far. Any thread may ask. */
int64_t documents_bytes_read(const Documents *documents);

#endif
