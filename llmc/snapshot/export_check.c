/* What is looked at before an export, and before the run that it ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/data/shard_folder.h"
#include "llmc/snapshot/export.h"
#include "llmc/snapshot/export_files.h"
#include "llmc/snapshot/export_mark.h"
#include "llmc/snapshot/import_source.h"
#include "llmc/snapshot/safetensors.h"

enum { CARD_BYTES_MAX = 1 << 20 }; /* a longer one is not ours */

static int error_foreign(const char *path, Error *error)
{
    return error_set(
        error,
        "%s: expected no file, or one that this program exported, found another; move it away or "
        "choose another place",
        path);
}

/* 1 if there is a regular file, 0 if there is nothing; -1 with *error for anything else. */
static int has_file(const char *path, Error *error)
{
    struct stat status;
    if (lstat(path, &status) != 0) {
        return errno == ENOENT ? 0 : error_set(error, "%s: cannot look at it: %s", path, strerror(errno));
    }
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) {
        return error_foreign(path, error);
    }
    return 1;
}

/* Whether a file can be made beside this one. */
static int try_writing(const char *path, Error *error)
{
    AtomicFile file;
    if (atomic_file_init(&file, path, error) != 0) {
        return -1;
    }
    atomic_file_discard(&file);
    return 0;
}

static int has_text(const char *path, const char *text, size_t text_bytes)
{
    size_t bytes;
    char *found = file_read(path, text_bytes, &bytes, NULL);
    int is_same = found && bytes == text_bytes && memcmp(found, text, bytes) == 0;
    memory_free(found);
    return is_same;
}

static int is_marked(const char *path)
{
    SafeFile file;
    if (safe_file_init(&file, path, NULL) != 0) {
        return 0;
    }
    const char *mark = safe_header_metadata(&file.header, EXPORT_MARK_KEY);
    int is_ours = mark && strcmp(mark, EXPORT_MARK) == 0;
    safe_file_release(&file);
    return is_ours;
}

/* A small file of the folder. It is ours where the weights beside it are (is_free), or where it has the text
 * that it would get: an export that was killed has written it before the weights. */
static int check_text(const char *folder, const char *name, const char *text, size_t bytes, int is_free,
                      Error *error)
{
    char path[PATH_BYTES_MAX];
    if (path_join(path, folder, name, error) != 0) {
        return -1;
    }
    int found = has_file(path, error);
    return found <= 0 || is_free || has_text(path, text, bytes) ? (found < 0 ? -1 : 0)
                                                                : error_foreign(path, error);
}

int export_card_stays(const char *folder, const char *name)
{
    char path[PATH_BYTES_MAX];
    size_t bytes;
    if (strcmp(name, EXPORT_CARD_NAME) != 0 || path_join(path, folder, name, NULL) != 0 ||
        !path_exists(path)) {
        return 0;
    }
    char *text = file_read(path, CARD_BYTES_MAX, &bytes, NULL);
    int is_ours = text && strstr(text, EXPORT_CARD_MARK) != NULL;
    memory_free(text);
    return !is_ours;
}

static int is_listed(const ExportFiles *files, const char *name)
{
    for (int i = 0; i < files->count; i++) {
        if (strcmp(files->items[i].name, name) == 0) {
            return 1;
        }
    }
    return 0;
}

void export_remove_stale(const char *folder, const ExportFiles *files)
{
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json",
                                        CHARACTERS_FILE};
    char path[PATH_BYTES_MAX];
    if (path_join(path, folder, "model.safetensors", NULL) != 0 || !is_marked(path)) {
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!is_listed(files, names[i]) && path_join(path, folder, names[i], NULL) == 0) {
            unlink(path);
        }
    }
}

int export_check_files(const char *folder, const ExportFiles *files, Error *error)
{
    char path[PATH_BYTES_MAX];
    if (folder_create(folder, error) != 0 || path_join(path, folder, "model.safetensors", error) != 0) {
        return -1;
    }
    int found = has_file(path, error);
    int is_ours = found == 1 && is_marked(path);
    if (found < 0 || (found && !is_ours)) {
        return found < 0 ? -1 : error_foreign(path, error);
    }
    int status = 0;
    for (int i = 0; i < files->count && status == 0; i++) {
        const ExportFile *file = &files->items[i];
        int is_free = is_ours || strcmp(file->name, EXPORT_CARD_NAME) == 0;
        status = check_text(folder, file->name, file->text, file->bytes, is_free, error);
    }
    return status == 0 ? try_writing(path, error) : -1;
}

int export_check_hugging_face(const char *folder, const ModelShape *shape, const Characters *characters,
                              Error *error)
{
    ExportFiles files;
    export_files_init(&files, shape, characters, NULL);
    int status = export_check_files(folder, &files, error);
    export_files_release(&files);
    return status;
}

int export_check_llmc(const char *path, Error *error)
{
    int found = has_file(path, error);
    if (found < 0) {
        return -1;
    }
    if (found) {
        int32_t header[LLMC_MODEL_HEADER_BYTES / 4] = {0};
        OpenFile file;
        if (open_file_init(&file, path, error) != 0) {
            return -1;
        }
        int is_read = file.bytes >= sizeof(header) &&
                      open_file_read_at(&file, header, 0, sizeof(header), path, error) == 0;
        open_file_release(&file);
        if (!is_read || header[0] != LLMC_MODEL_MAGIC || header[EXPORT_MARK_LLMC_INDEX] != EXPORT_MARK_LLMC) {
            return error_foreign(path, error);
        }
    }
    return try_writing(path, error);
}
