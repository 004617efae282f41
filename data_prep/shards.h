/* The shards that tokenize writes. Tokens go into one long row of train shards in a folder of their own;
 * which of them are kept for validation is known only at the end: then the tail moves into val, and all
 * shards are put in place as one (commit.h).
 */
#ifndef DATA_PREP_SHARDS_H
#define DATA_PREP_SHARDS_H

#include <stdint.h>

#include "data_prep/folder.h"
#include "data_prep/options.h"
#include "llmc/text/characters.h"

typedef struct ShardFile {
    int descriptor; /* -1: not open */
    char name[SHARD_NAME_BYTES];
} ShardFile;

typedef struct ShardWriter {
    const TokenizeOptions *options;
    OutputFolder folder;
    ShardFile file;       /* the train shard that is written now */
    int shards_count;     /* of train so far, with the one that is written now */
    int val_shards_count; /* nonzero only while finishing, or from the first input for validation on */
    int is_val;           /* what is appended is for validation */
    int64_t shard_used;   /* tokens in `file` */
    int64_t tokens;       /* in all */
    int64_t train_tokens; /* known when validation begins */
    int64_t flushed;      /* bytes of `file` that the system was asked to write */
    int64_t val_tokens;   /* known after finish */
    int64_t val_exact;    /* how many they are to be; negative: what the options say */
    int removed_count;    /* shards of an earlier run that finish removed */
    const Characters *characters; /* NULL: GPT-2's tokens */
    const uint16_t *new_tokens;   /* what tokens become */
} ShardWriter;

/* Takes the folder (folder.h). -1 with *error, and then there is nothing to release. */
int shard_writer_init(ShardWriter *writer, const TokenizeOptions *options, Error *error);
int shard_writer_append(ShardWriter *writer, const uint16_t *tokens, int64_t count, Error *error);
/* The last `tokens` of all will be for validation, whatever the options say. Before the first append. */
void shard_writer_set_val(ShardWriter *writer, int64_t tokens);
/* What is appended from here on is for validation. Does nothing the second time. */
int shard_writer_begin_val(ShardWriter *writer, Error *error);
/* Before finish: each token t becomes tokens[t] (CHARACTERS_MAX), and the vocabulary is put beside the
 * shards. Both are borrowed. */
void shard_writer_set_characters(ShardWriter *writer, const Characters *characters, const uint16_t *tokens);
/* Split, sync, put in place. Release the writer afterwards, whatever it returns. */
int shard_writer_finish(ShardWriter *writer, Error *error);
/* Remove what is temporary: all new shards, unless finish has put them in place; then the old ones. */
void shard_writer_release(ShardWriter *writer);
/* The same in a program that ends because something is broken (folder.h). */
void shard_writer_abandon(ShardWriter *writer);

#endif
