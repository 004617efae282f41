/* One token shard as bytes: which of the two formats it is, and where its tokens lie. */
#ifndef LLMC_DATA_SHARD_H
#define LLMC_DATA_SHARD_H

#include <stdint.h>

#include "llmc/base/error.h"

enum {
    SHARD_MAGIC = 20240520,
    SHARD_VERSION = 1,
    SHARD_HEADER_BYTES = 1024, /* 256 int32: magic, version, token count, zeros */
    SHARD_TOKEN_BYTES = 2
};

typedef struct Shard {
    int64_t first_byte; /* of the tokens, which are little-endian uint16, in the file */
    int64_t token_count;
} Shard;

enum { SHARD_OPENING_BYTES = 12 }; /* what tells the format and the count */

/* llm.c's shard opens with its magic, which no GPT-2 token pair can spell; everything else is headerless.
 * `opening` holds the first SHARD_OPENING_BYTES of the file's `bytes`, or all of a smaller one. `path` is for
 * messages. */
int shard_parse(Shard *shard, const unsigned char *opening, uint64_t bytes, const char *path, Error *error);

#endif
