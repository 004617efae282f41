/* How new shards take the place of old ones: all at once, so that whoever reads the folder finds the old ones
 * or the new ones, at whatever moment the program is killed or the power fails.
 *
 * Two ways. A folder that holds nothing but shards is exchanged with the folder of new shards, by one call of
 * the system; the old one then has the temporary name beside it, and is removed. That needs a file system
 * that can exchange (ext4, xfs, btrfs, tmpfs), the right to write in the parent, and a folder that is no
 * mount point and not the present folder. Elsewhere the new shards move into the folder one by one under a
 * list of their names, which training follows meanwhile (llmc/data/shard_folder.h); the next run of tokenize
 * finishes what was killed on the way. If a step fails, the steps before it are undone, last first.
 */
#ifndef DATA_PREP_COMMIT_H
#define DATA_PREP_COMMIT_H

#include "data_prep/folder.h"

#define COMMIT_OLD "old" /* in the commit's folder: the shards that were replaced */

/* Put all files of the folder for new shards, `count` files that are synced, in place. *removed_count is the
 * number of old shards whose names are not used again. -1 with *error: then the old shards are there as they
 * were, unless the text says otherwise. Release the folder afterwards. */
int commit_shards(OutputFolder *folder, int count, int *removed_count, Error *error);

/* Finish what a killed run has begun. */
int commit_recover(OutputFolder *folder, Error *error);

/* The parent of a folder, and how names of folders for new shards begin there. -1 where it has none. */
int commit_find_parent(char parent[PATH_BYTES_MAX], char prefix[PATH_BYTES_MAX], const char *path);

#endif
