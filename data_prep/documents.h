/* All inputs as one row of chunks, each a piece of text that can be encoded by itself: it ends where a
 * document ends, or where the pattern ends a word for certain.
 */
#ifndef DATA_PREP_DOCUMENTS_H
#define DATA_PREP_DOCUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "data_prep/chunk.h"
#include "data_prep/options.h"
#include "llmc/text/tokenizer.h"

typedef struct Documents Documents;

/* Nothing is opened yet. tokenizer NULL: text may be cut between any two characters, and has to be UTF-8. The
 * caller frees. */
Documents *documents_create(const TokenizeOptions *options, const Tokenizer *tokenizer);
void documents_free(Documents *documents);

/* Begin at this place, before anything is read. */
void documents_begin_at(Documents *documents, int64_t input, int64_t entry);

/* Fill the next chunk. Returns 1, 0 when there is no more, -1 with *error set. */
int documents_next(Documents *documents, Chunk *chunk, Error *error);

/* Bytes read of the inputs so far. Any thread may ask. */
int64_t documents_bytes_read(const Documents *documents);

#endif
