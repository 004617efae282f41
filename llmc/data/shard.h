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

/* Points into bytes that the caller owns. */
typedef struct Shard {
    const unsigned char *tokens; /* little-endian uint16 */
    int64_t token_count;
} Shard;

/* llm.c's shard opens with its magic, which no GPT-2 token pair can spell; everything else is headerless.
 * Reads at most the first 12 bytes. `path` is for messages. */
int shard_parse(Shard *shard, const unsigned char *data, uint64_t bytes, const char *path, Error *error);

#endif
