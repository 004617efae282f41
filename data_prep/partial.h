/* What a run that shuffles documents has read so far: tokens in the order of arrival and the length of each
 * document, in FOLDER/tokenize.partial. It can be gone on with after a kill: a state, written now and then
 * after the tokens that it speaks of are synced, says how many documents are complete and where reading
 * begins again. Files may change between runs only after that place.
 */
#ifndef DATA_PREP_PARTIAL_H
#define DATA_PREP_PARTIAL_H

#include <stddef.h>
#include <stdint.h>

#include "data_prep/options.h"
#include "llmc/base/error.h"

#define PARTIAL_FOLDER "tokenize.partial"

/* Reading can begin before entry `entry` of the outermost archive of input `input`: by then `documents` had
 * ended. Entry 0 is the input's beginning. */
typedef struct Place {
    int64_t input;
    int64_t entry;
    int64_t documents;
} Place;

typedef struct PartialState {
    int64_t documents;   /* complete */
    int64_t tokens;      /* of these */
    int64_t text_tokens; /* without <|endoftext|>; with what followed them when the state was written */
    int64_t text_bytes;  /* the same */
    Place place;
} PartialState;

typedef struct Partial {
    const TokenizeOptions *options;
    int folder;     /* descriptor of the output folder; the caller's */
    int descriptor; /* of the partial folder; -1: none */
    int tokens_file;
    int lengths_file;
    int is_resumable;     /* every input can be read again */
    int has_notice;       /* an earlier run's state did not fit */
    PartialState state;   /* of what was appended */
    int64_t open_tokens;  /* of the document that has not ended */
    int64_t saved_tokens; /* of the last state that was written */
    int64_t flushed_bytes;
    uint32_t *lengths; /* of the last documents, not written yet; owned */
    size_t lengths_count;
} Partial;

/* Tokens of a chunk, and where documents end in them. */
typedef struct PartialChunk {
    const uint16_t *tokens;
    size_t tokens_count;
    const size_t *ends; /* ascending, each at most tokens_count */
    size_t ends_count;
    int64_t text_tokens;
    int64_t text_bytes;
    const Place *place; /* documents from the chunk's first on, which may be negative; or NULL */
} PartialChunk;

/* Open what an earlier run with these inputs and options left: then state.documents is not 0. Else remove
 * what is there and begin anew. -1 with *error, and then there is nothing to release. */
int partial_init(Partial *partial, const TokenizeOptions *options, int folder, Error *error);
int partial_append(Partial *partial, const PartialChunk *chunk, Error *error);
/* Write what is still in memory, and a state. Done by append too, whenever as many tokens have come as
 * --shuffle-memory holds, or 64 MB of them. */
int partial_save(Partial *partial, Error *error);
/* Close it; it stays in the folder where a later run can go on with it, and else is removed. */
void partial_release(Partial *partial);
/* Remove it. Also right where there is none. */
void partial_remove(int folder);

#endif
