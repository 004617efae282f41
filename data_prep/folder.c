#define _GNU_SOURCE
#include "data_prep/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_prep/commit.h"
#include "data_prep/partial.h"
#include "llmc/base/memory.h"
#include "llmc/data/characters_file.h"

enum { LOCK_TRIES_MAX = 100 };

/* ---- entries --------------------------------------------------------------------------------------------*/

int folder_visit(int descriptor, const char *path, FolderVisit visit, void *context, Error *error)
{
    int own = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own >= 0 ? fdopendir(own) : NULL;
    if (!entries) {
        int reason = errno;
        if (own >= 0) {
            close(own);
        }
        return error_set(error, "%s: cannot open folder: %s", path, strerror(reason));
    }
    int result = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(entries);
        if (!entry) {
            if (errno != 0) {
                result = error_set(error, "%s: cannot read the folder: %s", path, strerror(errno));
            }
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            (result = visit(context, own, entry->d_name, error)) != 0) {
            break;
        }
    }
    closedir(entries);
    return result;
}

static int collect_name(void *context, int descriptor, const char *name, Error *error)
{
    ShardNames *names = context;
    (void)descriptor;
    (void)error;
    if (shard_folder_name_is_ours(name)) {
        if (names->count == names->capacity) {
            size_t capacity = names->capacity * 2 + 64;
            names->items =
                memory_grow(names->items, names->count, capacity, sizeof(*names->items), "names of shards");
            names->capacity = capacity;
        }
        strcpy(names->items[names->count++], name);
    }
    return 0;
}

int shard_names_init(ShardNames *names, int descriptor, const char *path, Error *error)
{
    *names = (ShardNames){0};
    return folder_visit(descriptor, path, collect_name, names, error);
}

void shard_names_release(ShardNames *names)
{
    memory_free(names->items);
    *names = (ShardNames){0};
}

int folder_is_staging_name(const char *name, const char *prefix)
{
    size_t prefix_bytes = strlen(prefix);
    if (strncmp(name, prefix, prefix_bytes) != 0) {
        return 0;
    }
    const char *pattern = FOLDER_STAGING;
    name += prefix_bytes;
    for (; *pattern && *name; pattern++, name++) {
        if (*pattern == 'X' ? !isalnum((unsigned char)*name) : *pattern != *name) {
            return 0;
        }
    }
    return *pattern == *name;
}

static int remove_entry(void *context, int descriptor, const char *name, Error *error)
{
    (void)context;
    (void)error;
    if (strcmp(name, COMMIT_OLD) == 0) {
        folder_remove_shards(descriptor, name);
    } else if (strcmp(name, PARTIAL_FOLDER) == 0) {
        partial_remove(descriptor);
    } else if (shard_folder_name_is_ours(name) || strcmp(name, SHARD_COMMIT_LIST) == 0 ||
               strcmp(name, FOLDER_LOCK) == 0) {
        unlinkat(descriptor, name, 0);
    }
    return 0;
}

void folder_remove_shards(int parent_descriptor, const char *name)
{
    int own = openat(parent_descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (own >= 0) {
        folder_visit(own, name, remove_entry, NULL, NULL);
        close(own);
        unlinkat(parent_descriptor, name, AT_REMOVEDIR);
    }
}

void folder_shard_name(char name[SHARD_NAME_BYTES], const char *split, int number)
{
    if (number > 0) {
        snprintf(name, SHARD_NAME_BYTES, "%s_%06d.bin", split, number);
    } else {
        snprintf(name, SHARD_NAME_BYTES, "%s.bin", split);
    }
}

/* ---- the lock -------------------------------------------------------------------------------------------*/

static int error_in_use(const OutputFolder *folder, int lock, Error *error)
{
    char holder[128] = "";
    ssize_t bytes = pread(lock, holder, sizeof(holder) - 1, 0);
    holder[bytes > 0 ? bytes : 0] = '\0';
    for (char *c = holder; *c; c++) {
        *c = isprint((unsigned char)*c) ? *c : ' ';
    }
    return error_set(error,
                     "%s: expected a folder that nothing else writes to, found another tokenize at work "
                     "(%s); wait until it ends, or use another folder",
                     folder->path, holder[0] ? holder : "it tells no name");
}

static void tell_holder(int lock)
{
    char host[65] = "", text[128];
    gethostname(host, sizeof(host) - 1);
    int bytes = snprintf(text, sizeof(text), "process %d on %s", (int)getpid(), host);
    if (ftruncate(lock, 0) == 0) {
        (void)!pwrite(lock, text, (size_t)bytes, 0); /* only for the other's message */
    }
}

/* Open the folder and its lock file, and lock that. The path may lead to another folder in the end, as a run
 * that ends puts a new one there, and the file may be gone: then all again. */
static int lock_folder(OutputFolder *folder, Error *error)
{
    char path[PATH_BYTES_MAX];
    if (path_join(path, folder->path, FOLDER_LOCK, error) != 0) {
        return -1;
    }
    for (int tries = 0; tries < LOCK_TRIES_MAX; tries++) {
        struct stat held, there;
        folder->descriptor = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder->descriptor < 0) {
            return error_set(error, "%s: cannot open folder: %s", folder->path, strerror(errno));
        }
        int lock = openat(folder->descriptor, FOLDER_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (lock < 0) {
            int reason = errno;
            close(folder->descriptor);
            return error_set(error, "%s: cannot create %s: %s", folder->path, FOLDER_LOCK, strerror(reason));
        }
        int failed;
        while ((failed = flock(lock, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
        }
        if (failed && errno == EWOULDBLOCK) {
            error_in_use(folder, lock, error);
            close(lock);
            close(folder->descriptor);
            return -1;
        }
        if (fstat(lock, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino &&
            held.st_dev == there.st_dev) {
            folder->lock_descriptor = lock;
            tell_holder(lock);
            return 0;
        }
        close(lock);
        close(folder->descriptor);
    }
    folder->descriptor = -1;
    return error_set(error, "%s: cannot lock: the file is not where it was made", path);
}

/* ---- what is in the folder ------------------------------------------------------------------------------*/

/* Would training read this file of the folder, as a shard or as a vocabulary? */
static int is_read_by_training(const char *name)
{
    size_t bytes = strlen(name);
    if (strcmp(name, CHARACTERS_FILE) == 0 || strcmp(name, CHARACTERS_PICKLE) == 0) {
        return 1;
    }
    return (strncmp(name, "train", 5) == 0 || strncmp(name, "val", 3) == 0) && bytes > 4 &&
           strcmp(name + bytes - 4, ".bin") == 0;
}

/* Versions before this one wrote train.bin.tmp.PID. */
static int is_old_temporary(const char *name)
{
    char shard[SHARD_NAME_BYTES];
    const char *suffix = strstr(name, ".tmp.");
    if (!suffix || (size_t)(suffix - name) >= sizeof(shard) || !isdigit((unsigned char)suffix[5])) {
        return 0;
    }
    memcpy(shard, name, (size_t)(suffix - name));
    shard[suffix - name] = '\0';
    return shard_name_is_ours(shard);
}

static int remove_leftover(void *context, int descriptor, const char *name, Error *error)
{
    (void)error;
    const char *prefix = context;
    if (folder_is_staging_name(name, prefix)) {
        folder_remove_shards(descriptor, name);
    } else if (!prefix[0] && is_old_temporary(name)) {
        unlinkat(descriptor, name, 0);
    }
    return 0;
}

/* What killed runs left in the folder, and beside it. */
static void remove_leftovers(const OutputFolder *folder)
{
    char parent[PATH_BYTES_MAX], prefix[PATH_BYTES_MAX];
    folder_visit(folder->descriptor, folder->path, remove_leftover, "", NULL);
    if (commit_find_parent(parent, prefix, folder->path) == 0) {
        int descriptor = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (descriptor >= 0) {
            folder_visit(descriptor, parent, remove_leftover, prefix, NULL);
            close(descriptor);
        }
    }
}

typedef struct EntryCheck {
    const OutputFolder *folder;
    const TokenizeOptions *options;
} EntryCheck;

/* A shard that will be replaced must not be read meanwhile. */
static int check_inputs(const EntryCheck *check, const char *name, const struct stat *shard, Error *error)
{
    for (int i = 0; i < check->options->inputs_count; i++) {
        const char *input = check->options->inputs[i];
        struct stat status;
        int failed = strcmp(input, "-") == 0 ? fstat(STDIN_FILENO, &status) : stat(input, &status);
        if (!failed && status.st_dev == shard->st_dev && status.st_ino == shard->st_ino) {
            return error_set(error,
                             "%s: expected an input that the output does not replace, found %s/%s; write to "
                             "another folder",
                             strcmp(input, "-") == 0 ? "stdin" : input, check->folder->path, name);
        }
    }
    return 0;
}

/* A vocabulary that is not ours belongs to somebody. */
static int check_vocabulary(const EntryCheck *check, const char *name, Error *error)
{
    char path[PATH_BYTES_MAX];
    size_t bytes;
    if (path_join(path, check->folder->path, name, error) != 0) {
        return -1;
    }
    char *text =
        strcmp(name, CHARACTERS_FILE) == 0 ? file_read(path, CHARACTERS_FILE_BYTES_MAX, &bytes, NULL) : NULL;
    Characters *characters = text ? characters_parse_json(text, bytes, NULL) : NULL;
    int is_ours = characters != NULL;
    characters_free(characters);
    memory_free(text);
    return is_ours ? 0
                   : error_set(error,
                               "%s: expected no vocabulary of other programs, which training would use for "
                               "these shards; move it away or use another folder",
                               path);
}

static int check_entry(void *context, int descriptor, const char *name, Error *error)
{
    const EntryCheck *check = context;
    struct stat status;
    if (!is_read_by_training(name)) {
        return 0;
    }
    int is_shard = shard_name_is_ours(name);
    if (strcmp(name, CHARACTERS_PICKLE) == 0) {
        return check_vocabulary(check, name, error);
    }
    if (!is_shard && strcmp(name, CHARACTERS_FILE) != 0) {
        return error_set(error,
                         "%s/%s: expected no shards of other programs, which training would mix with these; "
                         "move it away or use another folder",
                         check->folder->path, name);
    }
    if (fstatat(descriptor, name, &status, 0) != 0) {
        return 0; /* a link that leads nowhere: replaced like a shard */
    }
    if (!S_ISREG(status.st_mode)) {
        return error_set(error, "%s/%s: expected a shard to replace, found something else",
                         check->folder->path, name);
    }
    if (check_inputs(check, name, &status, error) != 0) {
        return -1;
    }
    return is_shard ? 0 : check_vocabulary(check, name, error);
}

/* ---- begin and end --------------------------------------------------------------------------------------*/

static int make_staging(OutputFolder *folder, Error *error)
{
    char path[PATH_BYTES_MAX];
    if (path_join(path, folder->path, FOLDER_STAGING, error) != 0) {
        return -1;
    }
    if (!mkdtemp(path)) {
        return error_set(error, "%s: cannot create a folder in it: %s", folder->path, strerror(errno));
    }
    folder->staging_descriptor = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->staging_descriptor < 0) {
        error_set(error, "%s: cannot open folder: %s", path, strerror(errno));
        rmdir(path);
        return -1;
    }
    strcpy(folder->staging, path);
    return 0;
}

int output_folder_init(OutputFolder *folder, const TokenizeOptions *options, Error *error)
{
    *folder = (OutputFolder){.staging_descriptor = -1, .descriptor = -1, .lock_descriptor = -1};
    if (folder_create(options->output, error) != 0) {
        return -1;
    }
    if (strlen(options->output) >= sizeof(folder->path)) {
        return error_set(error, "%.200s...: the path is longer than %d bytes", options->output,
                         PATH_BYTES_MAX);
    }
    strcpy(folder->path, options->output);
    if (lock_folder(folder, error) != 0) {
        return -1;
    }
    EntryCheck check = {.folder = folder, .options = options};
    if (folder_visit(folder->descriptor, folder->path, check_entry, &check, error) != 0 ||
        commit_recover(folder, error) != 0) {
        output_folder_release(folder);
        return -1;
    }
    remove_leftovers(folder);
    if (make_staging(folder, error) != 0) {
        output_folder_release(folder);
        return -1;
    }
    return 0;
}

void output_folder_release(OutputFolder *folder)
{
    if (folder->descriptor < 0) {
        return;
    }
    if (folder->staging[0]) {
        folder_remove_shards(AT_FDCWD, folder->staging);
        folder->staging[0] = '\0';
    }
    if (folder->staging_descriptor >= 0) {
        close(folder->staging_descriptor);
    }
    unlinkat(folder->descriptor, FOLDER_LOCK, 0); /* while it is held: who waits for it looks again */
    close(folder->lock_descriptor);
    close(folder->descriptor);
    folder->descriptor = -1;
}

void output_folder_abandon(OutputFolder *folder, int train_count, int val_count)
{
    if (folder->descriptor < 0 || folder->is_committing) {
        return;
    }
    for (int i = 0; i <= train_count || i <= val_count; i++) { /* 0: one that is not numbered */
        char name[SHARD_NAME_BYTES];
        folder_shard_name(name, "train", i);
        unlinkat(folder->staging_descriptor, name, 0);
        folder_shard_name(name, "val", i);
        unlinkat(folder->staging_descriptor, name, 0);
    }
    unlinkat(folder->staging_descriptor, CHARACTERS_FILE, 0);
    rmdir(folder->staging);
    unlinkat(folder->descriptor, FOLDER_LOCK, 0);
}
