#define _GNU_SOURCE
#include "data_prep/arrange.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/base/memory.h"
#include "llmc/base/numpy_random.h"

enum {
    TOKEN_BYTES = sizeof(uint16_t),
    BUCKETS_MAX = UINT16_MAX,
    BUFFER_TOKENS_MIN = 1 << 11, /* of each bucket, on the way to it */
    BUFFER_TOKENS_MAX = 1 << 17,
    INPUT_TOKENS = 1 << 19,
    OUTPUT_TOKENS = 1 << 19,
    STEP_TOKENS = 1 << 26
};

/* A range of the new order. */
typedef struct Bucket {
    uint32_t first;  /* of its documents */
    uint32_t count;  /* of these */
    int64_t begin;   /* tokens of the buckets before it: where it lies in the file */
    int64_t tokens;  /* in it */
    int64_t written; /* of these, in the file; the rest is in its buffer */
    int64_t buffered;
} Bucket;

struct Arrange {
    const Partial *partial;
    ShardWriter *writer;
    uint32_t count; /* documents */
    uint32_t val_count;
    uint32_t *order;     /* the permutation: (count) */
    uint32_t *lengths;   /* tokens, in order of arrival: (count) */
    uint16_t *bucket_of; /* in order of arrival: (count) */
    Bucket *buckets;
    int buckets_count;
    int next_bucket;
    int file;              /* that holds the buckets: the tokens themselves if there is only one */
    uint32_t next_arrival; /* the document that is moved next into its bucket */
    int64_t arrived;       /* tokens before it */
    uint16_t *buffers;     /* (buckets_count, buffer_tokens) */
    int64_t buffer_tokens;
    uint16_t *input;
    int64_t input_begin; /* tokens [input_begin, input_end) of the file are in `input` */
    int64_t input_end;
};

/* Document `rank` of the new order: training, then validation. */
static uint32_t document_at(const Arrange *arrange, uint32_t rank)
{
    uint64_t position = (uint64_t)rank + arrange->val_count;
    return arrange->order[position < arrange->count ? position : position - arrange->count];
}

static int fail(const Arrange *arrange, const char *what, Error *error)
{
    return error_set_system(error, errno, "%s/%s: cannot %s", arrange->partial->options->output,
                            PARTIAL_FOLDER, what);
}

static int read_at(const Arrange *arrange, int file, int64_t offset, void *data, size_t bytes, Error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t now = pread(file, (char *)data + done, bytes - done, (off_t)offset + (off_t)done);
        if (now < 0 && errno != EINTR) {
            return fail(arrange, "read back", error);
        }
        if (now == 0) {
            return error_set(error, "%s/%s: cannot read back: it was cut meanwhile",
                             arrange->partial->options->output, PARTIAL_FOLDER);
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return 0;
}

static int write_at(const Arrange *arrange, int64_t offset, const void *data, size_t bytes, Error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t now =
            pwrite(arrange->file, (const char *)data + done, bytes - done, (off_t)offset + (off_t)done);
        errno = now == 0 ? ENOSPC : errno;
        if (now <= 0 && errno != EINTR) {
            return fail(arrange, "write", error);
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return 0;
}

/* ---- which document goes where --------------------------------------------------------------------------*/

static int read_lengths(Arrange *arrange, Error *error)
{
    int64_t tokens = 0;
    if (read_at(arrange, arrange->partial->lengths_file, 0, arrange->lengths,
                arrange->count * sizeof(*arrange->lengths), error) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < arrange->count; i++) {
        tokens += arrange->lengths[i];
    }
    if (tokens != arrange->partial->state.tokens) {
        return error_set(error,
                         "%s/%s: expected documents of %lld tokens, found %lld: it is damaged; remove it and "
                         "begin again",
                         arrange->partial->options->output, PARTIAL_FOLDER,
                         (long long)arrange->partial->state.tokens, (long long)tokens);
    }
    return 0;
}

/* Cut the new order into buckets of at most `window` tokens, or of one document. */
static int plan_buckets(Arrange *arrange, int64_t window, Error *error)
{
    Bucket *bucket = NULL;
    int64_t tokens = 0;
    int capacity = 0;
    for (uint32_t rank = 0; rank < arrange->count; rank++) {
        uint32_t document = document_at(arrange, rank);
        int64_t length = arrange->lengths[document];
        if (!bucket || bucket->tokens + length > window) {
            if (arrange->buckets_count == BUCKETS_MAX) {
                return error_set(error,
                                 "--shuffle-memory=%lld: expected enough for %d parts of all tokens, found "
                                 "more parts; raise it",
                                 (long long)arrange->partial->options->shuffle_memory, BUCKETS_MAX);
            }
            if (arrange->buckets_count == capacity) {
                arrange->buckets = memory_grow(arrange->buckets, (size_t)capacity, (size_t)capacity * 2 + 64,
                                               sizeof(*bucket), "buckets of documents");
                capacity = capacity * 2 + 64;
            }
            bucket = &arrange->buckets[arrange->buckets_count++];
            *bucket = (Bucket){.first = rank, .begin = tokens};
        }
        bucket->count++;
        bucket->tokens += length;
        tokens += length;
        arrange->bucket_of[document] = (uint16_t)(arrange->buckets_count - 1);
    }
    return 0;
}

static int64_t val_tokens(const Arrange *arrange)
{
    int64_t tokens = 0;
    for (uint32_t i = 0; i < arrange->val_count; i++) {
        tokens += arrange->lengths[arrange->order[i]];
    }
    return tokens;
}

/* Where the buckets lie, and what moves the documents there. */
static int open_buckets(Arrange *arrange, int64_t window, Error *error)
{
    arrange->input = memory_alloc(INPUT_TOKENS, TOKEN_BYTES, "tokens to arrange");
    if (arrange->buckets_count == 1) {
        arrange->file = arrange->partial->tokens_file;
        arrange->next_arrival = arrange->count;
        return 0;
    }
    int64_t room = window / arrange->buckets_count;
    room = room < BUFFER_TOKENS_MIN ? BUFFER_TOKENS_MIN : room > BUFFER_TOKENS_MAX ? BUFFER_TOKENS_MAX : room;
    arrange->buffer_tokens = room;
    arrange->buffers =
        memory_alloc((size_t)arrange->buckets_count * (size_t)room, TOKEN_BYTES, "buckets of documents");
    arrange->file =
        openat(arrange->partial->descriptor, "buckets", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (arrange->file < 0) {
        return fail(arrange, "create its buckets", error);
    }
    unlinkat(arrange->partial->descriptor, "buckets", 0); /* its space is free when the run ends, however */
    return 0;
}

Arrange *arrange_create(const Partial *partial, ShardWriter *writer, Error *error)
{
    const TokenizeOptions *options = partial->options;
    Arrange *arrange = memory_alloc_zeroed(1, sizeof(*arrange), "arrangement");
    arrange->partial = partial;
    arrange->writer = writer;
    arrange->file = -1;
    arrange->count = (uint32_t)partial->state.documents;
    arrange->val_count = (uint32_t)ceil(options->val_fraction * arrange->count);
    if (arrange->val_count >= arrange->count) {
        error_set(error, "--val-fraction=%g: expected to leave a document for training, found %u in all",
                  options->val_fraction, arrange->count);
        arrange_free(arrange);
        return NULL;
    }
    arrange->order = memory_alloc(arrange->count, sizeof(*arrange->order), "order of documents");
    arrange->lengths = memory_alloc(arrange->count, sizeof(*arrange->lengths), "lengths of documents");
    arrange->bucket_of = memory_alloc(arrange->count, sizeof(*arrange->bucket_of), "order of documents");
    numpy_permutation(arrange->order, arrange->count, (uint64_t)options->shuffle_documents);
    int64_t window = (options->shuffle_memory << 20) / TOKEN_BYTES;
    if (read_lengths(arrange, error) != 0 || plan_buckets(arrange, window, error) != 0 ||
        open_buckets(arrange, window, error) != 0) {
        arrange_free(arrange);
        return NULL;
    }
    shard_writer_set_val(writer, val_tokens(arrange));
    return arrange;
}

void arrange_free(Arrange *arrange)
{
    if (arrange) {
        if (arrange->file >= 0 && arrange->file != arrange->partial->tokens_file) {
            close(arrange->file);
        }
        memory_free(arrange->order);
        memory_free(arrange->lengths);
        memory_free(arrange->bucket_of);
        memory_free(arrange->buckets);
        memory_free(arrange->buffers);
        memory_free(arrange->input);
        memory_free(arrange);
    }
}

/* ---- into the buckets -----------------------------------------------------------------------------------*/

static int flush_bucket(Arrange *arrange, int index, Error *error)
{
    Bucket *bucket = &arrange->buckets[index];
    const uint16_t *buffer = arrange->buffers + index * arrange->buffer_tokens;
    int64_t offset = (bucket->begin + bucket->written) * TOKEN_BYTES;
    bucket->written += bucket->buffered;
    size_t bytes = (size_t)bucket->buffered * TOKEN_BYTES;
    bucket->buffered = 0;
    return write_at(arrange, offset, buffer, bytes, error);
}

static int put_tokens(Arrange *arrange, int index, const uint16_t *tokens, int64_t count, Error *error)
{
    Bucket *bucket = &arrange->buckets[index];
    while (count > 0) {
        int64_t room = arrange->buffer_tokens - bucket->buffered;
        int64_t now = count < room ? count : room;
        memcpy(arrange->buffers + index * arrange->buffer_tokens + bucket->buffered, tokens,
               (size_t)now * TOKEN_BYTES);
        bucket->buffered += now;
        tokens += now;
        count -= now;
        if (bucket->buffered == arrange->buffer_tokens && flush_bucket(arrange, index, error) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Let `input` hold the token `position`. */
static int fill_input(Arrange *arrange, int64_t position, Error *error)
{
    if (position < arrange->input_end) {
        return 0;
    }
    int64_t left = arrange->partial->state.tokens - position;
    int64_t count = left < INPUT_TOKENS ? left : INPUT_TOKENS;
    arrange->input_begin = position;
    arrange->input_end = position + count;
    return read_at(arrange, arrange->partial->tokens_file, position * TOKEN_BYTES, arrange->input,
                   (size_t)count * TOKEN_BYTES, error);
}

/* Move the next documents into their buckets. */
static int distribute(Arrange *arrange, Error *error)
{
    int64_t step_end = arrange->arrived + STEP_TOKENS;
    while (arrange->next_arrival < arrange->count && arrange->arrived < step_end) {
        uint32_t document = arrange->next_arrival++;
        int64_t end = arrange->arrived + arrange->lengths[document];
        while (arrange->arrived < end) {
            if (fill_input(arrange, arrange->arrived, error) != 0) {
                return -1;
            }
            int64_t now = (end < arrange->input_end ? end : arrange->input_end) - arrange->arrived;
            if (put_tokens(arrange, arrange->bucket_of[document],
                           arrange->input + (arrange->arrived - arrange->input_begin), now, error) != 0) {
                return -1;
            }
            arrange->arrived += now;
        }
    }
    for (int i = 0; arrange->next_arrival == arrange->count && i < arrange->buckets_count; i++) {
        if (flush_bucket(arrange, i, error) != 0) {
            return -1;
        }
        assert(arrange->buckets[i].written == arrange->buckets[i].tokens);
    }
    return 1;
}

/* ---- from a bucket into the shards ----------------------------------------------------------------------*/

static int compare_documents(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* A bucket of one document, which may be longer than memory. */
static int copy_bucket(Arrange *arrange, const Bucket *bucket, Error *error)
{
    for (int64_t done = 0; done < bucket->tokens;) {
        int64_t left = bucket->tokens - done;
        int64_t now = left < INPUT_TOKENS ? left : INPUT_TOKENS;
        if (read_at(arrange, arrange->file, (bucket->begin + done) * TOKEN_BYTES, arrange->input,
                    (size_t)now * TOKEN_BYTES, error) != 0 ||
            shard_writer_append(arrange->writer, arrange->input, now, error) != 0) {
            return -1;
        }
        done += now;
    }
    return 0;
}

/* Write the documents in their new order. `arrivals` are the same ones in order of arrival, as they lie in
 * `tokens`, each from `offsets` on. */
static int write_documents(Arrange *arrange, const Bucket *bucket, const uint16_t *tokens,
                           const uint32_t *arrivals, const int64_t *offsets, Error *error)
{
    uint16_t *output = memory_alloc(OUTPUT_TOKENS, TOKEN_BYTES, "tokens to arrange");
    int64_t held = 0;
    int failed = 0;
    for (uint32_t i = 0; i < bucket->count && !failed; i++) {
        uint32_t document = document_at(arrange, bucket->first + i);
        const uint32_t *place =
            bsearch(&document, arrivals, bucket->count, sizeof(*arrivals), compare_documents);
        const uint16_t *from = tokens + offsets[place - arrivals];
        for (int64_t left = arrange->lengths[document]; left > 0 && !failed;) {
            int64_t now = left < OUTPUT_TOKENS - held ? left : OUTPUT_TOKENS - held;
            memcpy(output + held, from, (size_t)now * TOKEN_BYTES);
            held += now;
            from += now;
            left -= now;
            if (held == OUTPUT_TOKENS) {
                failed = shard_writer_append(arrange->writer, output, held, error);
                held = 0;
            }
        }
    }
    failed = failed ? failed : shard_writer_append(arrange->writer, output, held, error);
    memory_free(output);
    return failed;
}

static int sort_bucket(Arrange *arrange, const Bucket *bucket, Error *error)
{
    uint16_t *tokens = memory_alloc((size_t)bucket->tokens, TOKEN_BYTES, "tokens to arrange");
    uint32_t *arrivals = memory_alloc(bucket->count, sizeof(*arrivals), "documents to arrange");
    int64_t *offsets = memory_alloc(bucket->count, sizeof(*offsets), "documents to arrange");
    for (uint32_t i = 0; i < bucket->count; i++) {
        arrivals[i] = document_at(arrange, bucket->first + i);
    }
    qsort(arrivals, bucket->count, sizeof(*arrivals), compare_documents);
    int64_t offset = 0;
    for (uint32_t i = 0; i < bucket->count; i++) {
        offsets[i] = offset;
        offset += arrange->lengths[arrivals[i]];
    }
    int failed = read_at(arrange, arrange->file, bucket->begin * TOKEN_BYTES, tokens,
                         (size_t)bucket->tokens * TOKEN_BYTES, error);
    failed = failed ? failed : write_documents(arrange, bucket, tokens, arrivals, offsets, error);
    memory_free(offsets);
    memory_free(arrivals);
    memory_free(tokens);
    return failed;
}

int arrange_next(Arrange *arrange, Error *error)
{
    if (arrange->next_arrival < arrange->count) {
        return distribute(arrange, error);
    }
    if (arrange->next_bucket == arrange->buckets_count) {
        return 0;
    }
    const Bucket *bucket = &arrange->buckets[arrange->next_bucket++];
    int failed =
        bucket->count == 1 ? copy_bucket(arrange, bucket, error) : sort_bucket(arrange, bucket, error);
    if (!failed && arrange->buckets_count > 1) { /* where that is possible, its space is free for the shard */
        (void)!fallocate(arrange->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         bucket->begin * TOKEN_BYTES, bucket->tokens * TOKEN_BYTES);
    }
    return failed ? -1 : 1;
}
