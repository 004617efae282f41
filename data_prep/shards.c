#define _GNU_SOURCE
#include "data_prep/shards.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llmc/base/memory.h"
#include "llmc/data/shard.h"

enum {
    SHARDS_MAX = 999999, /* names have six digits, so that their order is the order of the shards */
    DEFAULT_VAL_PART = 10,
    DEFAULT_VAL_TOKENS_MAX = 1 << 22,
    COPY_TOKENS = 1 << 20,
    FLUSH_BYTES = 8 << 20
};

static_assert(sizeof(int) == 4, "the header is of 32-bit integers");

static int64_t header_bytes(const ShardWriter *writer)
{
    return writer->options->header == HEADER_LLMC ? SHARD_HEADER_BYTES : 0;
}

/* Tokens of a full shard. */
static int64_t shard_capacity(const ShardWriter *writer)
{
    return writer->options->shard_tokens > 0 ? writer->options->shard_tokens : INT64_MAX;
}

/* The name of shard `number` (from 1) of "train" or "val". */
static void shard_name(char name[32], const ShardWriter *writer, const char *split, int number)
{
    if (writer->options->shard_tokens > 0) {
        snprintf(name, 32, "%s_%06d.bin", split, number);
    } else {
        snprintf(name, 32, "%s.bin", split);
    }
}

/* How many of `tokens` tokens are for validation. */
static int64_t val_tokens_of(const TokenizeOptions *options, int64_t tokens)
{
    if (options->val_tokens >= 0) {
        return options->val_tokens;
    }
    if (options->val_fraction >= 0) {
        return llrint(options->val_fraction * (double)tokens);
    }
    int64_t part = tokens / DEFAULT_VAL_PART;
    return part < DEFAULT_VAL_TOKENS_MAX ? part : DEFAULT_VAL_TOKENS_MAX;
}

/* Is this a name that shard_name gives, with either option? */
static int is_shard_name(const char *name)
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
        if (rest[0] == '_' && strspn(rest + 1, "0123456789") == 6 && strcmp(rest + 7, ".bin") == 0) {
            return 1;
        }
    }
    return 0;
}

/* Would training read this file of the folder as a shard? */
static int is_read_by_training(const char *name)
{
    size_t bytes = strlen(name);
    return (strncmp(name, "train", 5) == 0 || strncmp(name, "val", 3) == 0) && bytes > 4 &&
           strcmp(name + bytes - 4, ".bin") == 0;
}

static int check_folder(const char *folder, Error *error)
{
    DIR *entries = opendir(folder);
    if (!entries) {
        return error_set(error, "%s: cannot open folder: %s", folder, strerror(errno));
    }
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(entries));) {
        if (!is_read_by_training(entry->d_name)) {
            continue;
        }
        if (!is_shard_name(entry->d_name)) {
            result =
                error_set(error,
                          "%s/%s: expected no shards of other programs, which training would mix with these; "
                          "move it away or use another folder",
                          folder, entry->d_name);
        }
        struct stat status;
        if (result == 0 && fstatat(dirfd(entries), entry->d_name, &status, 0) == 0 &&
            !S_ISREG(status.st_mode)) {
            result = error_set(error, "%s/%s: expected a shard to replace, found something else", folder,
                               entry->d_name);
        }
    }
    closedir(entries);
    return result;
}

static int begin_file(AtomicFile *file, const ShardWriter *writer, const char *split, int number,
                      Error *error)
{
    char name[32];
    char path[PATH_BYTES_MAX];
    if (number > SHARDS_MAX) {
        return error_set(error,
                         "--shard-tokens=%lld: expected at most %d shards, found more; use larger ones",
                         (long long)writer->options->shard_tokens, SHARDS_MAX);
    }
    shard_name(name, writer, split, number);
    if (path_join(path, writer->options->output, name, error) != 0 ||
        atomic_file_init(file, path, error) != 0) {
        return -1;
    }
    static const char blank[SHARD_HEADER_BYTES];
    if (atomic_file_write(file, blank, (size_t)header_bytes(writer), error) != 0) {
        atomic_file_discard(file);
        return -1;
    }
    return 0;
}

/* Open again a shard that end_file has closed. `like` is a file of the same folder, begun by this process. */
static int reopen_file(AtomicFile *file, const ShardWriter *writer, const char *split, int number,
                       Error *error)
{
    char name[32];
    const AtomicFile *like = &writer->file;
    const char *suffix = like->temporary_path + strlen(like->path);
    shard_name(name, writer, split, number);
    if (path_join(file->path, writer->options->output, name, error) != 0) {
        return -1;
    }
    size_t used = strlen(file->path);
    memcpy(file->temporary_path, file->path, used);
    snprintf(file->temporary_path + used, sizeof(file->temporary_path) - used, "%s", suffix);
    file->descriptor = open(file->temporary_path, O_RDWR | O_CLOEXEC);
    return file->descriptor < 0
               ? error_set(error, "%s: cannot open: %s", file->temporary_path, strerror(errno))
               : 0;
}

/* Write the header, and close the temporary file without giving it its name. */
static int end_file(AtomicFile *file, const ShardWriter *writer, int64_t tokens, Error *error)
{
    if (writer->options->header == HEADER_LLMC) {
        int32_t header[3] = {SHARD_MAGIC, SHARD_VERSION, (int32_t)tokens};
        if (atomic_file_write_at(file, 0, header, sizeof(header), error) != 0) {
            return -1;
        }
    }
    int failed = close(file->descriptor) != 0;
    file->descriptor = -1;
    return failed ? error_set(error, "%s: cannot write: %s", file->path, strerror(errno)) : 0;
}

int shard_writer_init(ShardWriter *writer, const TokenizeOptions *options, Error *error)
{
    *writer = (ShardWriter){.options = options};
    writer->file.descriptor = -1;
    if (folder_create(options->output, error) != 0 || check_folder(options->output, error) != 0) {
        return -1;
    }
    if (begin_file(&writer->file, writer, "train", 1, error) != 0) {
        return -1;
    }
    writer->shards_count = 1;
    return 0;
}

/* Ask the system to begin writing what it holds, so that the fsync at the end has little left to do. */
static void begin_flush(ShardWriter *writer)
{
    int64_t written = header_bytes(writer) + writer->shard_used * SHARD_TOKEN_BYTES;
    if (written - writer->flushed >= FLUSH_BYTES) {
        sync_file_range(writer->file.descriptor, writer->flushed, written - writer->flushed,
                        SYNC_FILE_RANGE_WRITE);
        writer->flushed = written;
    }
}

static int check_countable(const ShardWriter *writer, Error *error)
{
    const TokenizeOptions *options = writer->options;
    int64_t train_tokens = writer->tokens - val_tokens_of(options, writer->tokens);
    if (options->header == HEADER_LLMC && options->shard_tokens == 0 && train_tokens > INT32_MAX) {
        return error_set(error,
                         "%s: more than %d tokens for one shard, which is what llm.c's header can count; use "
                         "--shard-tokens=100000000, or --header=none",
                         writer->file.path, INT32_MAX);
    }
    return 0;
}

int shard_writer_append(ShardWriter *writer, const uint16_t *tokens, int64_t count, Error *error)
{
    while (count > 0) {
        int64_t room = shard_capacity(writer) - writer->shard_used;
        if (room == 0) {
            if (end_file(&writer->file, writer, writer->shard_used, error) != 0 ||
                begin_file(&writer->file, writer, "train", writer->shards_count + 1, error) != 0) {
                return -1;
            }
            writer->shards_count++;
            writer->shard_used = 0;
            writer->flushed = 0;
            continue;
        }
        int64_t now = count < room ? count : room;
        if (atomic_file_write(&writer->file, tokens, (size_t)now * sizeof(*tokens), error) != 0) {
            return -1;
        }
        tokens += now;
        count -= now;
        writer->shard_used += now;
        writer->tokens += now;
        begin_flush(writer);
    }
    return check_countable(writer, error);
}

/* Read tokens [first, first + count) of the temporary train shards into the open val shard. `source` is the
 * shard that was read last; its number is *source_number, 0 for none. */
static int copy_tokens(AtomicFile *val, ShardWriter *writer, AtomicFile *source, int *source_number,
                       uint16_t *space, int64_t first, int64_t count, Error *error)
{
    while (count > 0) {
        int number = (int)(first / shard_capacity(writer)) + 1;
        int64_t offset = first % shard_capacity(writer);
        int64_t now = shard_capacity(writer) - offset;
        now = now < count ? now : count;
        now = now < COPY_TOKENS ? now : COPY_TOKENS;
        if (number != *source_number) {
            if (*source_number > 0) {
                close(source->descriptor);
            }
            *source_number = 0;
            if (reopen_file(source, writer, "train", number, error) != 0) {
                return -1;
            }
            *source_number = number;
        }
        ssize_t bytes = (ssize_t)(now * (int64_t)sizeof(*space));
        if (pread(source->descriptor, space, (size_t)bytes,
                  header_bytes(writer) + offset * SHARD_TOKEN_BYTES) != bytes) {
            return error_set(error, "%s: cannot read back: %s", source->temporary_path, strerror(errno));
        }
        if (atomic_file_write(val, space, (size_t)bytes, error) != 0) {
            return -1;
        }
        first += now;
        count -= now;
    }
    return 0;
}

/* Copy the last tokens of train into shards of val. */
static int write_val(ShardWriter *writer, Error *error)
{
    uint16_t *space = memory_alloc(COPY_TOKENS, sizeof(*space), "copy buffer");
    AtomicFile val;
    AtomicFile source;
    int source_number = 0;
    int result = 0;
    int64_t first = writer->tokens - writer->val_tokens;
    while (result == 0 && first < writer->tokens) {
        int64_t count = writer->tokens - first;
        count = count < shard_capacity(writer) ? count : shard_capacity(writer);
        result = begin_file(&val, writer, "val", writer->val_shards_count + 1, error);
        if (result != 0) {
            break;
        }
        writer->val_shards_count++;
        result = copy_tokens(&val, writer, &source, &source_number, space, first, count, error);
        if (result == 0) {
            result = end_file(&val, writer, count, error);
        } else {
            close(val.descriptor);
        }
        first += count;
    }
    if (source_number > 0) {
        close(source.descriptor);
    }
    memory_free(space);
    return result;
}

/* Shorten the train shards to what is not val, and give the last one its header. */
static int cut_train(ShardWriter *writer, Error *error)
{
    int64_t tokens = writer->tokens - writer->val_tokens;
    int kept = (int)((tokens - 1) / shard_capacity(writer)) + 1;
    AtomicFile file;
    for (int number = writer->shards_count; number > kept; number--) {
        if (reopen_file(&file, writer, "train", number, error) != 0) {
            return -1;
        }
        atomic_file_discard(&file);
        writer->shards_count--;
    }
    int64_t last_tokens = tokens - (kept - 1) * (kept > 1 ? shard_capacity(writer) : 0);
    if (reopen_file(&file, writer, "train", kept, error) != 0) {
        return -1;
    }
    if (ftruncate(file.descriptor, header_bytes(writer) + last_tokens * SHARD_TOKEN_BYTES) != 0) {
        error_set(error, "%s: cannot write: %s", file.path, strerror(errno));
        close(file.descriptor);
        return -1;
    }
    return end_file(&file, writer, last_tokens, error);
}

static int commit_split(ShardWriter *writer, const char *split, int count, Error *error)
{
    AtomicFile file;
    for (int number = 1; number <= count; number++) {
        if (reopen_file(&file, writer, split, number, error) != 0 || atomic_file_commit(&file, error) != 0) {
            return -1;
        }
    }
    return 0;
}

/* The shards of an earlier run that are not part of this one, so that training does not mix the two. */
static int remove_stale(ShardWriter *writer, Error *error)
{
    const char *folder = writer->options->output;
    DIR *entries = opendir(folder);
    if (!entries) {
        return error_set(error, "%s: cannot open folder: %s", folder, strerror(errno));
    }
    for (struct dirent *entry; (entry = readdir(entries));) {
        int is_val = entry->d_name[0] == 'v';
        const char *digits = strchr(entry->d_name, '_');
        int number = 0;
        if (!is_shard_name(entry->d_name) || (digits && sscanf(digits, "_%d", &number) != 1)) {
            continue;
        }
        int written = is_val ? writer->val_shards_count : writer->shards_count;
        int is_new =
            writer->options->shard_tokens > 0 ? number >= 1 && number <= written : !digits && written > 0;
        if (!is_new && unlinkat(dirfd(entries), entry->d_name, 0) == 0) {
            writer->removed_count++;
        }
    }
    closedir(entries);
    return folder_sync(folder, error);
}

int shard_writer_finish(ShardWriter *writer, Error *error)
{
    writer->val_tokens = val_tokens_of(writer->options, writer->tokens);
    if (end_file(&writer->file, writer, writer->shard_used, error) != 0) {
        return -1;
    }
    if (writer->val_tokens >= writer->tokens) {
        return error_set(error, "--val-tokens=%lld: expected less than the %lld tokens of all inputs",
                         (long long)writer->val_tokens, (long long)writer->tokens);
    }
    if (write_val(writer, error) != 0 || cut_train(writer, error) != 0) {
        return -1;
    }
    /* train last: where it is, all is there. */
    if (commit_split(writer, "val", writer->val_shards_count, error) != 0 ||
        commit_split(writer, "train", writer->shards_count, error) != 0 || remove_stale(writer, error) != 0) {
        return -1;
    }
    writer->shards_count = 0;
    writer->val_shards_count = 0;
    return 0;
}

static void discard_split(ShardWriter *writer, const char *split, int count)
{
    AtomicFile file;
    for (int number = 1; number <= count; number++) {
        if (reopen_file(&file, writer, split, number, NULL) == 0) {
            atomic_file_discard(&file);
        }
    }
}

void shard_writer_discard(ShardWriter *writer)
{
    if (writer->file.descriptor >= 0) {
        close(writer->file.descriptor);
        writer->file.descriptor = -1;
    }
    discard_split(writer, "train", writer->shards_count);
    discard_split(writer, "val", writer->val_shards_count);
    writer->shards_count = 0;
    writer->val_shards_count = 0;
}
