#define _GNU_SOURCE
#include "data_prep/input_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_prep/magic.h"
#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/data/shard_folder.h"

enum { SKIPS_TOLD_MAX = 20 };

/* The folder that is written to, if it is there. */
typedef struct OutputPlace {
    int is_there;
    struct stat status;
} OutputPlace;

static void add_path(InputFiles *files, const char *path)
{
    if (files->count == files->capacity) {
        size_t capacity = files->capacity * 2 + 64;
        files->paths = memory_grow(files->paths, files->count, capacity, sizeof(*files->paths), "inputs");
        files->capacity = capacity;
    }
    files->paths[files->count++] = memory_copy_text(path, "inputs");
}

static void tell_skipped(InputFiles *files, const char *path, const char *why)
{
    if (++files->skipped_count <= SKIPS_TOLD_MAX) {
        fprintf(stderr, "tokenize: %s: skipped: %s\n", path, why);
    }
}

/* ---- the entries of a folder --------------------------------------------------------------------------- */

typedef struct Names {
    char **items;
    size_t count;
    size_t capacity;
} Names;

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All but . and .., sorted. -1 with *error; release them in any case. */
static int read_names(Names *names, const char *folder, Error *error)
{
    *names = (Names){0};
    DIR *entries = opendir(folder);
    if (!entries) {
        return error_set(error, "%s: cannot open folder: %s", folder, strerror(errno));
    }
    struct dirent *entry;
    while (errno = 0, entry = readdir(entries)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (names->count == names->capacity) {
            size_t capacity = names->capacity * 2 + 64;
            names->items = memory_grow(names->items, names->count, capacity, sizeof(*names->items), "names");
            names->capacity = capacity;
        }
        names->items[names->count++] = memory_copy_text(entry->d_name, "names");
    }
    int reason = errno;
    closedir(entries);
    if (names->count > 0) {
        qsort(names->items, names->count, sizeof(*names->items), compare_names);
    }
    return reason ? error_set(error, "%s: cannot read the folder: %s", folder, strerror(reason)) : 0;
}

static void release_names(Names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        memory_free(names->items[i]);
    }
    memory_free(names->items);
}

/* What a file of a folder is, if its beginning says that it is no text: `why`, in a buffer of why_bytes, else
 * "". -1 with *error when it cannot be read. */
static int look_into(char *why, size_t why_bytes, const char *path, Error *error)
{
    char beginning[MAGIC_BYTES];
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return error_set(error, "%s: cannot open: %s", path, strerror(errno));
    }
    ssize_t got = read(descriptor, beginning, sizeof(beginning));
    int reason = errno;
    close(descriptor);
    if (got < 0) {
        return error_set(error, "%s: cannot read: %s", path, strerror(reason));
    }
    const char *what =
        magic_of(beginning, (size_t)got) == MAGIC_NONE ? magic_foreign(beginning, (size_t)got) : NULL;
    snprintf(why, why_bytes, "%s", what ? what : "");
    return 0;
}

static int add_folder(InputFiles *files, const OutputPlace *output, const char *folder, Error *error);

/* Is this a file that tokenize has in its output folder? */
static int is_output_name(const char *name)
{
    return shard_folder_name_is_ours(name) || strncmp(name, "tokenize.", 9) == 0;
}

static int is_output(const OutputPlace *output, const struct stat *status)
{
    return output->is_there && status->st_dev == output->status.st_dev &&
           status->st_ino == output->status.st_ino;
}

static int add_entry(InputFiles *files, const OutputPlace *output, const char *path, const char *name,
                     int is_in_output, Error *error)
{
    struct stat own, status;
    char why[512] = "";
    if (lstat(path, &own) != 0) {
        return error_set(error, "%s: cannot look at it: %s", path, strerror(errno));
    }
    if (name[0] == '.') {
        snprintf(why, sizeof(why), "hidden");
    } else if (stat(path, &status) != 0) {
        snprintf(why, sizeof(why), "a link that leads nowhere");
    } else if (S_ISDIR(status.st_mode) && S_ISLNK(own.st_mode)) {
        snprintf(why, sizeof(why), "a link to a folder");
    } else if ((S_ISDIR(status.st_mode) && is_output(output, &status)) ||
               (is_in_output && is_output_name(name))) {
        snprintf(why, sizeof(why), "what tokenize writes");
    } else if (S_ISDIR(status.st_mode)) {
        return add_folder(files, output, path, error);
    } else if (!S_ISREG(status.st_mode)) {
        snprintf(why, sizeof(why), "no regular file");
    } else if (look_into(why, sizeof(why), path, error) != 0) {
        return -1;
    }
    if (why[0]) {
        tell_skipped(files, path, why);
        return 0;
    }
    add_path(files, path);
    files->bytes += files->bytes >= 0 ? status.st_size : 0;
    return 0;
}

static int add_folder(InputFiles *files, const OutputPlace *output, const char *folder, Error *error)
{
    Names names;
    struct stat status;
    int is_in_output = stat(folder, &status) == 0 && is_output(output, &status);
    int result = read_names(&names, folder, error);
    for (size_t i = 0; result == 0 && i < names.count; i++) {
        char path[PATH_BYTES_MAX];
        result = path_join(path, folder, names.items[i], error);
        if (result == 0) {
            result = add_entry(files, output, path, names.items[i], is_in_output, error);
        }
    }
    release_names(&names);
    return result;
}

/* ---- what was named ------------------------------------------------------------------------------------ */

static int add_input(InputFiles *files, const OutputPlace *output, const char *path, Error *error)
{
    struct stat status;
    if (strcmp(path, "-") == 0) {
        files->bytes = -1;
        add_path(files, path);
        return 0;
    }
    if (stat(path, &status) != 0 || access(path, R_OK) != 0) {
        return error_set(error, "%s: cannot open: %s", path, strerror(errno));
    }
    if (!S_ISDIR(status.st_mode)) {
        files->bytes = files->bytes < 0 || !S_ISREG(status.st_mode) ? -1 : files->bytes + status.st_size;
        add_path(files, path);
        return 0;
    }
    size_t count = files->count;
    int64_t skipped = files->skipped_count;
    if (add_folder(files, output, path, error) != 0) {
        return -1;
    }
    if (files->skipped_count > skipped && files->skipped_count > SKIPS_TOLD_MAX) {
        fprintf(stderr, "tokenize: %s: %" PRId64 " skipped in all\n", path, files->skipped_count - skipped);
    }
    return files->count > count ? 0 : error_set(error, "%s: expected text in this folder, found none", path);
}

int input_files_init(InputFiles *files, const TokenizeOptions *options, Error *error)
{
    *files = (InputFiles){0};
    OutputPlace output;
    output.is_there = stat(options->output, &output.status) == 0;
    int result = 0;
    for (int i = 0; i < options->inputs_count && result == 0; i++) {
        result = add_input(files, &output, options->inputs[i], error);
    }
    files->val_first = files->count;
    for (int i = 0; i < options->val_inputs_count && result == 0; i++) {
        result = add_input(files, &output, options->val_inputs[i], error);
    }
    return result;
}

void input_files_release(InputFiles *files)
{
    for (size_t i = 0; i < files->count; i++) {
        memory_free((void *)files->paths[i]);
    }
    memory_free(files->paths);
    *files = (InputFiles){0};
}
