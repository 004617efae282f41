#define _GNU_SOURCE
#include "data_prep/shards.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_prep/commit.h"
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

/* The number in the name of the n-th shard (from 1): none, if there is only one. */
static int shard_number(const ShardWriter *writer, int n)
{
    return writer->options->shard_tokens > 0 ? n : 0;
}

/* nanoGPT trains on the first int(n * 0.9) characters. */
static int64_t val_characters(double fraction, int64_t characters)
{
    return characters - (int64_t)floor((double)characters * (1 - fraction));
}

/* How many of `tokens` tokens are for validation. */
static int64_t val_tokens_of(const ShardWriter *writer, int64_t tokens)
{
    const TokenizeOptions *options = writer->options;
    if (writer->val_exact >= 0) {
        return writer->val_exact;
    }
    if (options->val_tokens >= 0) {
        return options->val_tokens;
    }
    if (options->val_fraction >= 0) {
        return options->tokenizer == TOKENS_CHAR ? val_characters(options->val_fraction, tokens)
                                                 : llrint(options->val_fraction * (double)tokens);
    }
    int64_t part = options->tokenizer == TOKENS_CHAR ? val_characters(1.0 / DEFAULT_VAL_PART, tokens)
                                                     : tokens / DEFAULT_VAL_PART;
    return part < DEFAULT_VAL_TOKENS_MAX ? part : DEFAULT_VAL_TOKENS_MAX;
}

static int fail_shard(const ShardWriter *writer, const ShardFile *file, const char *what, Error *error)
{
    return error_set(error, "%s/%s: cannot %s: %s", writer->options->output, file->name, what,
                     strerror(errno));
}

static int open_shard(ShardFile *file, const ShardWriter *writer, const char *split, int n, int flags,
                      Error *error)
{
    folder_shard_name(file->name, split, shard_number(writer, n));
    file->descriptor =
        openat(writer->folder.staging_descriptor, file->name, O_RDWR | O_CLOEXEC | flags, 0666);
    return file->descriptor < 0 ? fail_shard(writer, file, flags ? "create" : "open", error) : 0;
}

static void close_shard(ShardFile *file)
{
    if (file->descriptor >= 0) {
        close(file->descriptor);
        file->descriptor = -1;
    }
}

static int write_at(const ShardWriter *writer, const ShardFile *file, int64_t offset, const void *data,
                    size_t bytes, Error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t now =
            pwrite(file->descriptor, (const char *)data + done, bytes - done, (off_t)offset + (off_t)done);
        errno = now == 0 ? ENOSPC : errno;
        if (now <= 0 && errno != EINTR) {
            return fail_shard(writer, file, "write", error);
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return 0;
}

static int begin_file(ShardFile *file, const ShardWriter *writer, const char *split, int n, Error *error)
{
    if (n > SHARDS_MAX) {
        return error_set(error,
                         "--shard-tokens=%lld: expected at most %d shards, found more; use larger ones",
                         (long long)writer->options->shard_tokens, SHARDS_MAX);
    }
    return open_shard(file, writer, split, n, O_CREAT | O_EXCL, error);
}

/* Write the header, of which all but three numbers is zeros, and close the file. */
static int end_file(ShardFile *file, const ShardWriter *writer, int64_t tokens, Error *error)
{
    if (writer->options->header == HEADER_LLMC) {
        int32_t header[SHARD_HEADER_BYTES / 4] = {SHARD_MAGIC, SHARD_VERSION, (int32_t)tokens};
        if (write_at(writer, file, 0, header, sizeof(header), error) != 0) {
            return -1;
        }
    }
    int failed = close(file->descriptor) != 0;
    file->descriptor = -1;
    return failed ? fail_shard(writer, file, "write", error) : 0;
}

int shard_writer_init(ShardWriter *writer, const TokenizeOptions *options, Error *error)
{
    *writer = (ShardWriter){.options = options, .val_exact = -1};
    writer->file.descriptor = -1;
    if (output_folder_init(&writer->folder, options, error) != 0) {
        return -1;
    }
    if (begin_file(&writer->file, writer, "train", 1, error) != 0) {
        output_folder_release(&writer->folder);
        return -1;
    }
    writer->shards_count = 1;
    return 0;
}

/* Where the next token of the open shard goes. */
static int64_t end_of(const ShardWriter *writer, int64_t tokens)
{
    return header_bytes(writer) + tokens * SHARD_TOKEN_BYTES;
}

/* Ask the system to begin writing what it holds, so that the fsync at the end has little left to do. */
static void begin_flush(ShardWriter *writer)
{
    int64_t written = end_of(writer, writer->shard_used);
    if (written - writer->flushed >= FLUSH_BYTES) {
        sync_file_range(writer->file.descriptor, writer->flushed, written - writer->flushed,
                        SYNC_FILE_RANGE_WRITE);
        writer->flushed = written;
    }
}

static int check_countable(const ShardWriter *writer, Error *error)
{
    const TokenizeOptions *options = writer->options;
    int64_t tokens = options->val_inputs_count > 0 ? writer->shard_used
                                                   : writer->tokens - val_tokens_of(writer, writer->tokens);
    if (options->header == HEADER_LLMC && options->shard_tokens == 0 && tokens > INT32_MAX) {
        return error_set(error,
                         "%s/%s: more than %d tokens for one shard, which is what llm.c's header can count; "
                         "use --shard-tokens=100000000, or --header=none",
                         options->output, writer->file.name, INT32_MAX);
    }
    return 0;
}

/* The next shard of the split that is written. */
static int begin_next(ShardWriter *writer, Error *error)
{
    int *count = writer->is_val ? &writer->val_shards_count : &writer->shards_count;
    if (begin_file(&writer->file, writer, writer->is_val ? "val" : "train", *count + 1, error) != 0) {
        return -1;
    }
    *count += 1;
    writer->shard_used = 0;
    writer->flushed = 0;
    return 0;
}

int shard_writer_begin_val(ShardWriter *writer, Error *error)
{
    if (writer->is_val) {
        return 0;
    }
    if (end_file(&writer->file, writer, writer->shard_used, error) != 0) {
        return -1;
    }
    writer->is_val = 1;
    writer->train_tokens = writer->tokens;
    return begin_next(writer, error);
}

int shard_writer_append(ShardWriter *writer, const uint16_t *tokens, int64_t count, Error *error)
{
    while (count > 0) {
        int64_t room = shard_capacity(writer) - writer->shard_used;
        if (room == 0) {
            if (end_file(&writer->file, writer, writer->shard_used, error) != 0 ||
                begin_next(writer, error) != 0) {
                return -1;
            }
            continue;
        }
        int64_t now = count < room ? count : room;
        if (write_at(writer, &writer->file, end_of(writer, writer->shard_used), tokens,
                     (size_t)now * sizeof(*tokens), error) != 0) {
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

/* Read exactly these bytes of a shard that was written before. */
static int read_back(const ShardWriter *writer, const ShardFile *file, int64_t offset, void *data,
                     size_t bytes, Error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t now = pread(file->descriptor, (char *)data + done, bytes - done, (off_t)offset + (off_t)done);
        if (now < 0 && errno != EINTR) {
            return fail_shard(writer, file, "read back", error);
        }
        if (now == 0) {
            return error_set(error, "%s/%s: cannot read back: it was cut meanwhile", writer->options->output,
                             file->name);
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return 0;
}

/* Copy tokens [first, first + count) of the train shards into the open val shard. `source` is the shard that
 * was read last; its number is *source_number, 0 for none. */
static int copy_tokens(const ShardWriter *writer, const ShardFile *val, ShardFile *source, int *source_number,
                       uint16_t *space, int64_t first, int64_t count, Error *error)
{
    for (int64_t done = 0; done < count;) {
        int number = (int)((first + done) / shard_capacity(writer)) + 1;
        int64_t offset = (first + done) % shard_capacity(writer);
        int64_t now = shard_capacity(writer) - offset;
        now = now < count - done ? now : count - done;
        now = now < COPY_TOKENS ? now : COPY_TOKENS;
        if (number != *source_number) {
            close_shard(source);
            *source_number = number;
            if (open_shard(source, writer, "train", number, 0, error) != 0) {
                return -1;
            }
        }
        size_t bytes = (size_t)now * sizeof(*space);
        if (read_back(writer, source, end_of(writer, offset), space, bytes, error) != 0 ||
            write_at(writer, val, end_of(writer, done), space, bytes, error) != 0) {
            return -1;
        }
        done += now;
    }
    return 0;
}

/* Copy the last tokens of train into shards of val. */
static int write_val(ShardWriter *writer, Error *error)
{
    uint16_t *space = memory_alloc(COPY_TOKENS, sizeof(*space), "copy buffer");
    ShardFile val = {.descriptor = -1};
    ShardFile source = {.descriptor = -1};
    int source_number = 0;
    int result = 0;
    int64_t first = writer->tokens - writer->val_tokens;
    while (result == 0 && first < writer->tokens) {
        int64_t count = writer->tokens - first;
        count = count < shard_capacity(writer) ? count : shard_capacity(writer);
        result = begin_file(&val, writer, "val", writer->val_shards_count + 1, error);
        if (result == 0) {
            writer->val_shards_count++;
            result = copy_tokens(writer, &val, &source, &source_number, space, first, count, error);
        }
        if (result == 0) {
            result = end_file(&val, writer, count, error);
        }
        first += count;
    }
    close_shard(&val);
    close_shard(&source);
    memory_free(space);
    return result;
}

/* Shorten the train shards to what is not val, and give the last one its header. */
static int cut_train(ShardWriter *writer, Error *error)
{
    int64_t tokens = writer->tokens - writer->val_tokens;
    int kept = (int)((tokens - 1) / shard_capacity(writer)) + 1;
    ShardFile file;
    for (; writer->shards_count > kept; writer->shards_count--) {
        folder_shard_name(file.name, "train", shard_number(writer, writer->shards_count));
        if (unlinkat(writer->folder.staging_descriptor, file.name, 0) != 0) {
            return fail_shard(writer, &file, "remove", error);
        }
    }
    int64_t last_tokens = tokens - (kept - 1) * (kept > 1 ? shard_capacity(writer) : 0);
    if (open_shard(&file, writer, "train", kept, 0, error) != 0) {
        return -1;
    }
    int result = ftruncate(file.descriptor, end_of(writer, last_tokens)) != 0
                     ? fail_shard(writer, &file, "write", error)
                     : end_file(&file, writer, last_tokens, error);
    close_shard(&file);
    return result;
}

static int sync_split(ShardWriter *writer, const char *split, int count, Error *error)
{
    for (int n = 1; n <= count; n++) {
        ShardFile file;
        if (open_shard(&file, writer, split, n, 0, error) != 0) {
            return -1;
        }
        int result = fsync(file.descriptor) != 0 ? fail_shard(writer, &file, "write", error) : 0;
        close_shard(&file);
        if (result != 0) {
            return -1;
        }
    }
    return 0;
}

void shard_writer_set_val(ShardWriter *writer, int64_t tokens)
{
    writer->val_exact = tokens;
}

/* Change the tokens of the shards of a split, whose headers are written. */
static int renumber_split(const ShardWriter *writer, const char *split, int count, const uint16_t *tokens,
                          Error *error)
{
    uint16_t *space = memory_alloc(COPY_TOKENS, sizeof(*space), "copy buffer");
    int result = 0;
    for (int n = 1; n <= count && result == 0; n++) {
        ShardFile file = {.descriptor = -1};
        struct stat status;
        int64_t left = 0, done = 0;
        result = open_shard(&file, writer, split, n, 0, error);
        if (result == 0 && fstat(file.descriptor, &status) != 0) {
            result = fail_shard(writer, &file, "look at", error);
        }
        left = result == 0 ? (status.st_size - header_bytes(writer)) / SHARD_TOKEN_BYTES : 0;
        for (int64_t now; left > 0 && result == 0; left -= now, done += now) {
            now = left < COPY_TOKENS ? left : COPY_TOKENS;
            size_t bytes = (size_t)now * sizeof(*space);
            result = read_back(writer, &file, end_of(writer, done), space, bytes, error);
            for (int64_t i = 0; i < now && result == 0; i++) {
                space[i] = tokens[space[i]];
            }
            result = result == 0 ? write_at(writer, &file, end_of(writer, done), space, bytes, error) : -1;
        }
        close_shard(&file);
    }
    memory_free(space);
    return result;
}

/* The vocabulary, synced. */
static int write_characters(const ShardWriter *writer, const Characters *characters, Error *error)
{
    ShardFile file = {.name = CHARACTERS_FILE};
    file.descriptor =
        openat(writer->folder.staging_descriptor, file.name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.descriptor < 0) {
        return fail_shard(writer, &file, "create", error);
    }
    char *text = characters_to_json(characters);
    int result = write_at(writer, &file, 0, text, strlen(text), error);
    if (result == 0 && fsync(file.descriptor) != 0) {
        result = fail_shard(writer, &file, "write", error);
    }
    memory_free(text);
    close_shard(&file);
    return result;
}

/* Move the tail of train into val. */
static int split_tail(ShardWriter *writer, Error *error)
{
    writer->val_tokens = val_tokens_of(writer, writer->tokens);
    if (writer->val_tokens >= writer->tokens) {
        return error_set(error, "--val-tokens=%lld: expected less than the %lld tokens of all inputs",
                         (long long)writer->val_tokens, (long long)writer->tokens);
    }
    return write_val(writer, error) != 0 || cut_train(writer, error) != 0 ? -1 : 0;
}

void shard_writer_set_characters(ShardWriter *writer, const Characters *characters, const uint16_t *tokens)
{
    writer->characters = characters;
    writer->new_tokens = tokens;
}

int shard_writer_finish(ShardWriter *writer, Error *error)
{
    const uint16_t *tokens = writer->new_tokens;
    if (end_file(&writer->file, writer, writer->shard_used, error) != 0) {
        return -1;
    }
    if (writer->is_val) {
        writer->val_tokens = writer->tokens - writer->train_tokens;
    } else if (split_tail(writer, error) != 0) {
        return -1;
    }
    if (writer->characters && (renumber_split(writer, "val", writer->val_shards_count, tokens, error) != 0 ||
                               renumber_split(writer, "train", writer->shards_count, tokens, error) != 0 ||
                               write_characters(writer, writer->characters, error) != 0)) {
        return -1;
    }
    if (sync_split(writer, "val", writer->val_shards_count, error) != 0 ||
        sync_split(writer, "train", writer->shards_count, error) != 0) {
        return -1;
    }
    int files = writer->shards_count + writer->val_shards_count + (writer->characters != NULL);
    return commit_shards(&writer->folder, files, &writer->removed_count, error);
}

void shard_writer_release(ShardWriter *writer)
{
    close_shard(&writer->file);
    output_folder_release(&writer->folder);
}

void shard_writer_abandon(ShardWriter *writer)
{
    output_folder_abandon(&writer->folder, writer->shards_count, writer->val_shards_count);
}
