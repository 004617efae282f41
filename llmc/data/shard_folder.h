/* Which files are the shards of a folder, also while tokenize puts new ones in the place of old ones.
 *
 * tokenize writes new shards into a folder of their own, and puts them in place when all are on disk. Where
 * it can, it exchanges the two folders. Where it cannot (data_prep/commit.h), it renames the folder of new
 * shards to FOLDER/tokenize.commit, whose file `shards` lists their names, and moves them to FOLDER one by
 * one. While that list exists, the shards of FOLDER are those that it names, each of which lies in
 * tokenize.commit or, once moved, in FOLDER; whatever else in FOLDER has a shard's name is an old one.
 */
#ifndef LLMC_DATA_SHARD_FOLDER_H
#define LLMC_DATA_SHARD_FOLDER_H

#include <stddef.h>

#include "llmc/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHARD_COMMIT_FOLDER "tokenize.commit"
#define SHARD_COMMIT_LIST "shards"        /* in that folder: a name a line, the last line is "end" */
#define CHARACTERS_FILE "characters.json" /* the vocabulary of shards of characters */

enum { SHARD_NAME_BYTES = 32 };

/* Is this a name that tokenize gives to a shard: train.bin, val.bin, train_000001.bin ..? */
int shard_name_is_ours(const char *name);

/* Or of the vocabulary, which is put in place and replaced as the shards are? */
int shard_folder_name_is_ours(const char *name);

/* A shard under the name that users know, and where it lies at the moment. Both owned by the list. */
typedef struct ShardPath {
    char *path;
    char *place;
} ShardPath;

/* Owned by the caller, who releases it. */
typedef struct ShardPaths {
    ShardPath *items; /* in the order of their paths */
    size_t count;
    size_t capacity;
} ShardPaths;

/* The shards that a path or a glob names (or the vocabulary, by its name); a file of just this name comes
 * before a pattern. None is no error. -1 with *error when a folder cannot be read to its end. Release in any
 * case. */
int shard_paths_find(ShardPaths *paths, const char *pattern, Error *error);
void shard_paths_release(ShardPaths *paths);

/* The names in FOLDER/tokenize.commit's list: *names is a block of *count times SHARD_NAME_BYTES that the
 * caller frees with memory_free, or NULL where there is no list. -1 with *error where it is damaged. */
int shard_commit_list(char (**names)[SHARD_NAME_BYTES], size_t *count, const char *folder, Error *error);

#ifdef __cplusplus
}
#endif
#endif
