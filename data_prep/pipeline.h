/* Reading, encoding and writing at once. Each thread takes the next chunk, encodes it, and writes it if its
 * turn has come; a chunk that is ready too early waits for whoever finishes the one before. So the output
 * does not depend on the number of threads.
 */
#ifndef DATA_PREP_PIPELINE_H
#define DATA_PREP_PIPELINE_H

#include <stdint.h>

#include "data_prep/options.h"
#include "llmc/base/error.h"

typedef struct TokenizeTotals {
    int64_t documents;
    int64_t tokens; /* train and val */
    int64_t val_tokens;
    int64_t text_bytes;
    int removed_shards; /* of an earlier run */
    int characters;     /* in the vocabulary; 0: GPT-2's */
    double ms;
} TokenizeTotals;

/* The whole run: either the shards are in place and it returns 0, or it leaves nothing behind and returns -1
 * with *error set. SIGINT, SIGTERM and SIGHUP end the program, and leave nothing behind either. */
int pipeline_run(TokenizeTotals *totals, const TokenizeOptions *options, Error *error);

#endif
