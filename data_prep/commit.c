#define _GNU_SOURCE
#include "data_prep/commit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "data_prep/partial.h"

/* ---- exchange the folders -------------------------------------------------------------------------------*/

int commit_find_parent(char parent[PATH_BYTES_MAX], char prefix[PATH_BYTES_MAX], const char *path)
{
    char *real = realpath(path, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;
    int has_name = slash && slash[1];
    if (has_name) {
        snprintf(prefix, PATH_BYTES_MAX, "%s.", slash + 1);
        slash[slash == real] = '\0';
        has_name = snprintf(parent, PATH_BYTES_MAX, "%s", real) < PATH_BYTES_MAX;
    }
    free(real);
    return has_name ? 0 : -1;
}

/* Is there something in the folder that would have to move along? */
static int is_foreign(void *context, int descriptor, const char *name, Error *error)
{
    (void)context;
    (void)descriptor;
    (void)error;
    return !shard_folder_name_is_ours(name) && !folder_is_staging_name(name, "") &&
           strcmp(name, FOLDER_LOCK) != 0 && strcmp(name, PARTIAL_FOLDER) != 0;
}

/* Access lists and whatever else somebody gave to the folder. A security label comes from the parent. */
static int has_attributes(int descriptor)
{
    char names[4096];
    ssize_t bytes = flistxattr(descriptor, names, sizeof(names));
    if (bytes < 0) {
        return errno != ENOTSUP;
    }
    for (const char *name = names; name < names + bytes; name += strlen(name) + 1) {
        if (strncmp(name, "security.", 9) != 0) {
            return 1;
        }
    }
    return 0;
}

/* Can the new folder stand for the old one? Its mode becomes that of the old one in any case. */
static int is_exchangeable(const OutputFolder *folder)
{
    struct stat old, new, present;
    if (fstat(folder->descriptor, &old) != 0 || fstat(folder->staging_descriptor, &new) != 0 ||
        fchmod(folder->staging_descriptor, old.st_mode & 07777) != 0) {
        return 0;
    }
    if (new.st_uid != old.st_uid || new.st_gid != old.st_gid) {
        if (fchown(folder->staging_descriptor, old.st_uid, old.st_gid) != 0) {
            return 0;
        }
        fchmod(folder->staging_descriptor, old.st_mode & 07777); /* a change of owner may clear bits */
    }
    int is_present =
        stat(".", &present) != 0 || (present.st_dev == old.st_dev && present.st_ino == old.st_ino);
    return !is_present && !has_attributes(folder->descriptor) &&
           folder_visit(folder->descriptor, folder->path, is_foreign, NULL, NULL) == 0;
}

/* Sync a folder by its descriptor. Some file systems cannot: then there is nothing to do. */
static int sync_folder(int descriptor)
{
    return fsync(descriptor) != 0 && errno != EINVAL ? -1 : 0;
}

/* Both are names in the same parent. */
static int exchange(const char *beside, const char *path, int parent)
{
    if (renameat2(AT_FDCWD, beside, AT_FDCWD, path, RENAME_EXCHANGE) != 0) {
        return -1;
    }
    if (sync_folder(parent) == 0) {
        return 0;
    }
    int reason = errno;
    int is_undone = renameat2(AT_FDCWD, beside, AT_FDCWD, path, RENAME_EXCHANGE) == 0;
    errno = reason;
    return is_undone ? -1 : -2;
}

/* Returns 1 when the new folder is in place, 0 when this way is not open and nothing has changed, or -1 with
 * *error. The shards to remove, new or old, are in folder->staging in any case. */
static int exchange_folders(OutputFolder *folder, Error *error)
{
    char parent[PATH_BYTES_MAX], prefix[PATH_BYTES_MAX], beside[PATH_BYTES_MAX];
    const char *name = strrchr(folder->staging, '/') + 1;
    if (!is_exchangeable(folder) || commit_find_parent(parent, prefix, folder->path) != 0 ||
        snprintf(beside, sizeof(beside), "%s/%s%s", strcmp(parent, "/") == 0 ? "" : parent, prefix, name) >=
            (int)sizeof(beside)) {
        return 0;
    }
    char *real = realpath(folder->path, NULL);
    int parent_descriptor = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int is_moved = real && parent_descriptor >= 0 && rename(folder->staging, beside) == 0;
    int result = 0;
    if (is_moved) {
        int failed = exchange(beside, real, parent_descriptor);
        result = failed ? 0 : 1;
        if (failed == -2) {
            result = error_set(error, "%s: the new shards are in place, but cannot be synced: %s",
                               folder->path, strerror(errno));
            folder->staging[0] = '\0'; /* the old ones stay beside them until the next run */
        } else if (failed && rename(beside, folder->staging) != 0) {
            result = error_set(error, "%s: cannot rename: %s", beside, strerror(errno));
            strcpy(folder->staging, beside);
        } else if (!failed) {
            strcpy(folder->staging, beside);
        }
    }
    if (parent_descriptor >= 0) {
        close(parent_descriptor);
    }
    free(real);
    return result;
}

/* ---- one by one, under a list ---------------------------------------------------------------------------*/

/* A move inside the folder: what moves, the commit's folder, and the one for old shards in it or -1. */
typedef struct Move {
    OutputFolder *folder;
    const ShardNames *new;
    const ShardNames *replaced;
    size_t new_moved; /* the first so many are in the folder */
    size_t replaced_moved;
    int commit;
    int old;
} Move;

static int has(int descriptor, const char *name)
{
    struct stat status;
    return fstatat(descriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static int fail_move(const Move *move, const char *what, Error *error)
{
    return error_set(error, "%s: cannot put the new shards in place: %s: %s", move->folder->path, what,
                     strerror(errno));
}

/* The list of names, durable, in the folder for new shards. */
static int write_list(const Move *move, Error *error)
{
    int directory = move->folder->staging_descriptor;
    int descriptor = openat(directory, SHARD_COMMIT_LIST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        return fail_move(move, "cannot create their list", error);
    }
    FILE *file = fdopen(descriptor, "w");
    if (!file) {
        close(descriptor);
        return fail_move(move, "cannot create their list", error);
    }
    for (size_t i = 0; i < move->new->count; i++) {
        fprintf(file, "%s\n", move->new->items[i]);
    }
    fprintf(file, "end\n");
    int failed = fflush(file) != 0 || ferror(file) || fsync(descriptor) != 0;
    failed = fclose(file) != 0 || failed;
    if (failed || sync_folder(directory) != 0) {
        return fail_move(move, "cannot write their list", error);
    }
    return 0;
}

/* Rename each of these from one folder to the other, and count. */
static int rename_all(const Move *move, size_t *moved, const ShardNames *names, int from, int to,
                      Error *error)
{
    for (; *moved < names->count; ++*moved) {
        const char *name = names->items[*moved];
        if (renameat(from, name, to, name) != 0) {
            return fail_move(move, name, error);
        }
    }
    return 0;
}

/* Rename back the first so many, the last of them first. */
static int rename_back(size_t moved, const ShardNames *names, int from, int to)
{
    for (; moved > 0; moved--) {
        if (renameat(from, names->items[moved - 1], to, names->items[moved - 1]) != 0) {
            return -1;
        }
    }
    return 0;
}

/* From the point at which the list counts: old shards out, new ones in, the list gone. */
static int move_all(Move *move, Error *error)
{
    const OutputFolder *folder = move->folder;
    if (sync_folder(folder->descriptor) != 0) {
        return fail_move(move, "cannot sync the folder", error);
    }
    if (mkdirat(move->commit, COMMIT_OLD, 0777) != 0 ||
        (move->old = openat(move->commit, COMMIT_OLD, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        return fail_move(move, "cannot create a folder for the old ones", error);
    }
    if (rename_all(move, &move->replaced_moved, move->replaced, folder->descriptor, move->old, error) != 0 ||
        rename_all(move, &move->new_moved, move->new, move->commit, folder->descriptor, error) != 0) {
        return -1;
    }
    if (sync_folder(folder->descriptor) != 0) {
        return fail_move(move, "cannot sync the folder", error);
    }
    if (unlinkat(move->commit, SHARD_COMMIT_LIST, 0) != 0) {
        return fail_move(move, "cannot remove their list", error);
    }
    return 0;
}

/* The steps of move_all backwards, then of its caller. Where that fails too, the list and what it names stay.
 */
static void undo(Move *move, const char *commit_path, Error *error)
{
    OutputFolder *folder = move->folder;
    if (rename_back(move->new_moved, move->new, folder->descriptor, move->commit) != 0 ||
        rename_back(move->replaced_moved, move->replaced, move->old, folder->descriptor) != 0 ||
        rename(commit_path, folder->staging) != 0) {
        size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof(error->text) - used,
                 "; this could not be undone: the new shards count, training finds them in %s, and the next "
                 "run of tokenize puts them in place",
                 commit_path);
        folder->staging[0] = '\0';
    } else {
        sync_folder(folder->descriptor);
    }
}

static int move_shards(OutputFolder *folder, Move *move, Error *error)
{
    char commit_path[PATH_BYTES_MAX];
    if (path_join(commit_path, folder->path, SHARD_COMMIT_FOLDER, error) != 0 ||
        write_list(move, error) != 0) {
        return -1;
    }
    move->commit = folder->staging_descriptor;
    if (rename(folder->staging, commit_path) != 0) {
        return fail_move(move, "cannot rename their folder", error);
    }
    int result = move_all(move, error);
    if (result != 0) {
        undo(move, commit_path, error);
    } else {
        if (rename(commit_path, folder->staging) !=
            0) { /* else what cannot be removed yet keeps no run off */
            strcpy(folder->staging, commit_path);
        }
        sync_folder(folder->descriptor);
    }
    if (move->old >= 0) {
        close(move->old);
    }
    return result;
}

/* ---- both -----------------------------------------------------------------------------------------------*/

static int is_named(const ShardNames *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i], name) == 0) {
            return 1;
        }
    }
    return 0;
}

int commit_shards(OutputFolder *folder, int count, int *removed_count, Error *error)
{
    ShardNames new = {0}, replaced = {0};
    int result = -1;
    *removed_count = 0;
    if (shard_names_init(&replaced, folder->descriptor, folder->path, error) == 0 &&
        shard_names_init(&new, folder->staging_descriptor, folder->staging, error) == 0) {
        result = 0;
    }
    if (result == 0 && new.count != (size_t)count) {
        result = error_set(error, "%s: expected %d new shards, found %zu; does something else remove them?",
                           folder->staging, count, new.count);
    }
    if (result == 0 && sync_folder(folder->staging_descriptor) != 0) {
        result = error_set(error, "%s: cannot sync folder: %s", folder->path, strerror(errno));
    }
    if (result == 0) {
        int stale_count = 0;
        for (size_t i = 0; i < replaced.count; i++) {
            stale_count +=
                shard_name_is_ours(replaced.items[i]) && !has(folder->staging_descriptor, replaced.items[i]);
        }
        folder->is_committing = 1;
        Move move = {.folder = folder, .new = &new, .replaced = &replaced, .old = -1};
        int is_done = exchange_folders(folder, error);
        result = is_done != 0 ? -(is_done < 0) : move_shards(folder, &move, error);
        *removed_count = result == 0 ? stale_count : 0;
    }
    shard_names_release(&new);
    shard_names_release(&replaced);
    return result;
}

/* Go on with a move whose list is there: new shards in, then old ones that the list does not name out. */
static int finish_move(Move *move, Error *error)
{
    OutputFolder *folder = move->folder;
    ShardNames present;
    for (size_t i = 0; i < move->new->count; i++) {
        const char *name = move->new->items[i];
        int is_moved = renameat(move->commit, name, folder->descriptor, name) == 0;
        if (!is_moved && (errno != ENOENT || !has(folder->descriptor, name))) { /* nor was it before */
            return fail_move(move, name, error);
        }
    }
    int result = shard_names_init(&present, folder->descriptor, folder->path, error);
    for (size_t i = 0; result == 0 && i < present.count; i++) {
        if (!is_named(move->new, present.items[i]) &&
            unlinkat(folder->descriptor, present.items[i], 0) != 0) {
            result = fail_move(move, present.items[i], error);
        }
    }
    shard_names_release(&present);
    if (result == 0 &&
        (sync_folder(folder->descriptor) != 0 || unlinkat(move->commit, SHARD_COMMIT_LIST, 0) != 0)) {
        result = fail_move(move, "cannot remove their list", error);
    }
    return result;
}

int commit_recover(OutputFolder *folder, Error *error)
{
    ShardNames listed = {0};
    Move move = {.folder = folder, .new = &listed, .old = -1};
    move.commit =
        openat(folder->descriptor, SHARD_COMMIT_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (move.commit < 0) {
        return errno == ENOENT ? 0
                               : error_set(error, "%s/%s: cannot open folder: %s", folder->path,
                                           SHARD_COMMIT_FOLDER, strerror(errno));
    }
    int result = shard_commit_list(&listed.items, &listed.count, folder->path, error);
    if (result == 0 && listed.items) {
        result = finish_move(&move, error);
    }
    close(move.commit);
    shard_names_release(&listed);
    if (result == 0) {
        folder_remove_shards(folder->descriptor, SHARD_COMMIT_FOLDER);
    }
    if (result == 0 && has(folder->descriptor, SHARD_COMMIT_FOLDER)) {
        result = error_set(error, "%s/%s: cannot remove what a killed run left there", folder->path,
                           SHARD_COMMIT_FOLDER);
    }
    return result;
}
