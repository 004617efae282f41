/* The folder that shards are written to. One run at a time has it: it holds FOLDER/tokenize.lock, and writes
 * into FOLDER/tokenize.tmp.XXXXXX, from where the shards are put in place as one (commit.h). Whatever a run
 * that was killed has left there, the next run finishes or removes.
 */
#ifndef DATA_PREP_FOLDER_H
#define DATA_PREP_FOLDER_H

#include "data_prep/options.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/data/shard_folder.h"

#define FOLDER_LOCK "tokenize.lock"
#define FOLDER_STAGING "tokenize.tmp.XXXXXX" /* what mkdtemp takes */

typedef struct OutputFolder {
    char path[PATH_BYTES_MAX];
    char staging[PATH_BYTES_MAX]; /* what is removed at the end, with the shards in it; "" for nothing */
    int descriptor;               /* of the folder */
    int staging_descriptor;       /* of the folder for new shards */
    int lock_descriptor;          /* locked, where the file system can */
    int is_committing;            /* the shards are being put in place: they are no longer scratch */
} OutputFolder;

/* Make the folder, lock it, end what a killed run had begun there, check that nothing in it would be mixed
 * up with what will be written and that no input is a shard that will be replaced, and make the folder for
 * the new shards. -1 with *error, and then there is nothing to release. */
int output_folder_init(OutputFolder *folder, const TokenizeOptions *options, Error *error);

/* Remove the new shards, unless they are in place, and the lock. Does nothing the second time. */
void output_folder_release(OutputFolder *folder);

/* The same in a program that ends because something is broken: it takes no memory. Shards are removed by
 * name, up to these numbers; in the middle of a commit nothing is. */
void output_folder_abandon(OutputFolder *folder, int train_count, int val_count);

/* The name of shard `number` (from 1) of "train" or "val", or of the only one, if number is 0. */
void folder_shard_name(char name[SHARD_NAME_BYTES], const char *split, int number);

/* Call visit for each entry but . and .. until it returns other than 0, which is then returned. -1 with
 * *error when the folder cannot be read to its end. */
typedef int (*FolderVisit)(void *context, int descriptor, const char *name, Error *error);
int folder_visit(int descriptor, const char *path, FolderVisit visit, void *context, Error *error);

/* The names of the shards that a folder holds, and of their vocabulary. Release it in any case. */
typedef struct ShardNames {
    char (*items)[SHARD_NAME_BYTES];
    size_t count;
    size_t capacity;
} ShardNames;

int shard_names_init(ShardNames *names, int descriptor, const char *path, Error *error);
void shard_names_release(ShardNames *names);

/* Remove a folder that a run has made, with the shards in it; other files stay, and then the folder too. */
void folder_remove_shards(int parent_descriptor, const char *name);

/* Is this the name of a folder for new shards, beside `prefix`? The folder itself has prefix "". */
int folder_is_staging_name(const char *name, const char *prefix);

#endif
