#define _GNU_SOURCE
#include "llmc/data/shard_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"

enum { LIST_BYTES_MAX = 64 << 20, SHARD_DIGITS = 6 };

int shard_name_is_ours(const char *name)
{
    static const char *const splits[] = {"train", "val"};
    for (int i = 0; i < 2; i++) {
        size_t bytes = strlen(splits[i]);
        if (strncmp(name, splits[i], bytes) != 0) {
            continue;
        }
        const char *rest = name + bytes;
        if (strcmp(rest, ".bin") == 0) {
            return 1;
        }
        if (rest[0] == '_' && strspn(rest + 1, "0123456789") == SHARD_DIGITS &&
            strcmp(rest + 1 + SHARD_DIGITS, ".bin") == 0) {
            return 1;
        }
    }
    return 0;
}

int shard_folder_name_is_ours(const char *name)
{
    return shard_name_is_ours(name) || strcmp(name, CHARACTERS_FILE) == 0;
}

/* ---- the list of a commit -------------------------------------------------------------------------------*/

/* Cut the text of a list into names. */
static int parse_list(char (*names)[SHARD_NAME_BYTES], size_t *count, char *text, const char *path,
                      Error *error)
{
    char *rest = text;
    *count = 0;
    for (char *line; (line = strsep(&rest, "\n")) && rest;) {
        if (strcmp(line, "end") == 0 && *rest == '\0') {
            return 0;
        }
        if (!shard_folder_name_is_ours(line)) {
            return error_set(error, "%s: expected names of shards, found '%.40s'; is it a file of tokenize?",
                             path, line);
        }
        strcpy(names[(*count)++], line);
    }
    return error_set(error, "%s: expected 'end' as the last line; the file is cut", path);
}

int shard_commit_list(char (**names)[SHARD_NAME_BYTES], size_t *count, const char *folder, Error *error)
{
    char commit[PATH_BYTES_MAX], path[PATH_BYTES_MAX];
    struct stat status;
    *names = NULL;
    *count = 0;
    if (path_join(commit, folder, SHARD_COMMIT_FOLDER, error) != 0 ||
        path_join(path, commit, SHARD_COMMIT_LIST, error) != 0) {
        return -1;
    }
    if (lstat(path, &status) != 0) {
        return errno == ENOENT || errno == ENOTDIR ? 0
                                                   : error_set_system(error, errno, "%s: cannot open", path);
    }
    size_t bytes;
    char *text = file_read(path, LIST_BYTES_MAX, &bytes, error);
    if (!text) {
        return lstat(path, &status) != 0 && errno == ENOENT ? 0 : -1; /* removed just now: the end of it */
    }
    size_t lines = 0;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
    }
    *names = memory_alloc(lines + 1, sizeof(**names), "names of shards");
    int failed = parse_list(*names, count, text, path, error) != 0;
    memory_free(text);
    if (failed) {
        memory_free(*names);
        *names = NULL;
    }
    return failed ? -1 : 0;
}

/* ---- finding --------------------------------------------------------------------------------------------*/

static char *join(const char *prefix, const char *middle, const char *name)
{
    size_t bytes = strlen(prefix) + strlen(middle) + strlen(name) + 1;
    char *path = memory_alloc(bytes, 1, "path");
    stpcpy(stpcpy(stpcpy(path, prefix), middle), name);
    return path;
}

/* prefix: the folder with its slash, or "". */
static void add_path(ShardPaths *paths, const char *prefix, const char *name, int is_in_commit)
{
    if (paths->count == paths->capacity) {
        size_t capacity = paths->capacity * 2 + 16;
        paths->items = memory_grow(paths->items, paths->count, capacity, sizeof(*paths->items), "paths");
        paths->capacity = capacity;
    }
    ShardPath *item = &paths->items[paths->count++];
    item->path = join(prefix, "", name);
    item->place = join(prefix, is_in_commit ? SHARD_COMMIT_FOLDER "/" : "", name);
}

/* The files of a folder that match. */
static int list_folder(ShardPaths *paths, const char *prefix, const char *base, int has_commit, Error *error)
{
    const char *folder = prefix[0] ? prefix : ".";
    DIR *entries = opendir(folder);
    if (!entries) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return 0;
        }
        return error_set_system(error, errno, "%s: cannot search the folder", folder);
    }
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(entries);
        if (!entry) {
            break;
        }
        if (fnmatch(base, entry->d_name, FNM_PERIOD) == 0 &&
            !(has_commit && shard_folder_name_is_ours(entry->d_name))) {
            add_path(paths, prefix, entry->d_name, 0);
        }
    }
    int reason = errno; /* a folder that was not read to its end would be a smaller set */
    closedir(entries);
    return reason ? error_set_system(error, reason, "%s: cannot search the folder", folder) : 0;
}

static int find_in_folder(ShardPaths *paths, const char *prefix, const char *base, int is_literal,
                          Error *error)
{
    char(*names)[SHARD_NAME_BYTES];
    size_t count;
    if (shard_commit_list(&names, &count, prefix[0] ? prefix : ".", error) != 0) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_literal ? strcmp(base, names[i]) == 0 : fnmatch(base, names[i], FNM_PERIOD) == 0) {
            char *place = join(prefix, SHARD_COMMIT_FOLDER "/", names[i]);
            struct stat status;
            add_path(paths, prefix, names[i], lstat(place, &status) == 0);
            memory_free(place);
        }
    }
    int has_commit = names != NULL;
    memory_free(names);
    if (!is_literal) {
        return list_folder(paths, prefix, base, has_commit, error);
    }
    if (!(has_commit && shard_folder_name_is_ours(base))) {
        add_path(paths, prefix, base, 0);
    }
    return 0;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const ShardPath *)a)->path, ((const ShardPath *)b)->path);
}

/* The folders that the pattern's folder names, which may itself hold a glob's characters. */
static int find_in_folders(ShardPaths *paths, const char *folder, const char *base, Error *error)
{
    glob_t found;
    int status = glob(folder, GLOB_NOSORT | GLOB_ONLYDIR | GLOB_MARK | GLOB_ERR, NULL, &found);
    if (status == GLOB_NOMATCH) {
        return 0;
    }
    if (status != 0) {
        return error_set(error, "%s: cannot search the folder; check its permissions", folder);
    }
    int result = 0;
    for (size_t i = 0; result == 0 && i < found.gl_pathc; i++) {
        result = find_in_folder(paths, found.gl_pathv[i], base, 0, error);
    }
    globfree(&found);
    return result;
}

int shard_paths_find(ShardPaths *paths, const char *pattern, Error *error)
{
    *paths = (ShardPaths){0};
    char folder[PATH_BYTES_MAX];
    const char *slash = strrchr(pattern, '/');
    size_t folder_bytes = slash ? (size_t)(slash - pattern) + 1 : 0;
    if (folder_bytes >= sizeof(folder)) {
        return error_set(error, "%.200s...: the path is longer than %d bytes", pattern, PATH_BYTES_MAX);
    }
    memcpy(folder, pattern, folder_bytes);
    folder[folder_bytes] = '\0';
    const char *base = pattern + folder_bytes;
    int is_literal = path_exists(pattern);
    int result = is_literal || !folder[0] || path_exists(folder)
                     ? find_in_folder(paths, folder, base, is_literal, error)
                     : find_in_folders(paths, folder, base, error);
    if (paths->count > 0) {
        qsort(paths->items, paths->count, sizeof(*paths->items), compare_paths);
    }
    return result;
}

void shard_paths_release(ShardPaths *paths)
{
    for (size_t i = 0; i < paths->count; i++) {
        memory_free(paths->items[i].path);
        memory_free(paths->items[i].place);
    }
    memory_free(paths->items);
    *paths = (ShardPaths){0};
}
