/* The shards that tokenize writes. Tokens go into one long row of temporary shards; which of them are kept
 * for validation is known only at the end: then the tail moves into val, and all files appear under their
 * names.
 */
#ifndef DATA_PREP_SHARDS_H
#define DATA_PREP_SHARDS_H

#include <stdint.h>

#include "data_prep/options.h"
#include "llmc/base/file.h"

typedef struct ShardWriter {
    const TokenizeOptions *options;
    AtomicFile file;      /* the train shard that is written now */
    int shards_count;     /* of train so far, with the one that is written now */
    int val_shards_count; /* nonzero only while finishing */
    int64_t shard_used;   /* tokens in `file` */
    int64_t tokens;       /* in all */
    int64_t flushed;      /* bytes of `file` that the system was asked to write */
    int64_t val_tokens;   /* known after finish */
    int removed_count;    /* shards of an earlier run that finish removed */
} ShardWriter;

/* Makes the folder, and checks that nothing in it would be mixed up with what will be written. */
int shard_writer_init(ShardWriter *writer, const TokenizeOptions *options, Error *error);
int shard_writer_append(ShardWriter *writer, const uint16_t *tokens, int64_t count, Error *error);
/* Split, sync, rename, remove the shards of an earlier run that have not been replaced. */
int shard_writer_finish(ShardWriter *writer, Error *error);
/* Remove all temporary files. Does nothing after finish. */
void shard_writer_discard(ShardWriter *writer);

#endif
