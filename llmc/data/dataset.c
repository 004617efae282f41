#define _GNU_SOURCE
#include "llmc/data/dataset.h"

#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/format.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/data/shard.h"

typedef struct ShardFile {
    char *path;    /* owned */
    OpenFile file; /* the first open_count of the set are open */
    Shard shard;
    int64_t first_window; /* of the set */
    int64_t window_count;
} ShardFile;

struct DataSet {
    ShardFile *shards;
    int shard_count;
    int open_count;
    int window_tokens;
    int64_t windows;
    int64_t tokens;
};

static int compare_shards(const void *a, const void *b)
{
    return strcmp(((const ShardFile *)a)->path, ((const ShardFile *)b)->path);
}

/* An error that names the command which would make the files: its folder is the pattern's. */
static int error_missing(const char *pattern, Error *error)
{
    const char *slash = strrchr(pattern, '/');
    return error_set(error,
                     "%s: expected token shards, found no such file; make them with "
                     "data_prep/tokenize -o %.*s INPUT",
                     pattern, slash ? (int)(slash - pattern) : 1, slash ? pattern : ".");
}

static void set_paths(DataSet *set, char *const *paths, size_t count)
{
    set->shards = memory_alloc_zeroed(count, sizeof(*set->shards), "shards");
    set->shard_count = (int)count;
    for (size_t i = 0; i < count; i++) {
        set->shards[i].path = strdup(paths[i]);
        CHECK(set->shards[i].path, "%s: out of memory", paths[i]);
    }
    qsort(set->shards, count, sizeof(*set->shards), compare_shards);
}

/* The files that a pattern names, in the order of their names. A file of just this name comes before a
 * pattern, so that any name can be given. */
static int find_paths(DataSet *set, const char *pattern, Error *error)
{
    if (path_exists(pattern)) {
        char *path = (char *)pattern;
        set_paths(set, &path, 1);
        return 0;
    }
    glob_t found;
    int status = glob(pattern, GLOB_NOSORT, NULL, &found);
    if (status == GLOB_NOMATCH) {
        return error_missing(pattern, error);
    }
    if (status != 0) {
        return error_set(error, "%s: cannot search the folder; check its permissions", pattern);
    }
    set_paths(set, found.gl_pathv, found.gl_pathc);
    globfree(&found);
    return 0;
}

/* Open the shards and count their windows. Only headers are read. */
static int open_shards(DataSet *set, Error *error)
{
    for (int i = 0; i < set->shard_count; i++) {
        ShardFile *shard = &set->shards[i];
        unsigned char opening[SHARD_OPENING_BYTES];
        if (open_file_init(&shard->file, shard->path, error) != 0) {
            return -1;
        }
        set->open_count++;
        uint64_t bytes = shard->file.bytes;
        size_t held = bytes < sizeof(opening) ? (size_t)bytes : sizeof(opening);
        if (open_file_read_at(&shard->file, opening, 0, held, shard->path, error) != 0 ||
            shard_parse(&shard->shard, opening, bytes, shard->path, error) != 0) {
            return -1;
        }
        int64_t tokens = shard->shard.token_count;
        shard->first_window = set->windows;
        shard->window_count = tokens > 0 ? (tokens - 1) / set->window_tokens : 0;
        set->windows += shard->window_count;
        set->tokens += tokens;
    }
    return 0;
}

DataSet *data_set_open(const char *pattern, int window_tokens, Error *error)
{
    CHECK(window_tokens > 0, "a window has %d tokens", window_tokens);
    DataSet *set = memory_alloc_zeroed(1, sizeof(*set), "data set");
    set->window_tokens = window_tokens;
    if (find_paths(set, pattern, error) != 0 || open_shards(set, error) != 0) {
        data_set_free(set);
        return NULL;
    }
    if (set->windows == 0) {
        char found[FORMAT_COUNT_BYTES];
        char needed[FORMAT_COUNT_BYTES];
        error_set(
            error,
            "%s: expected a shard of at least block_size + 1 = %s tokens, found %s tokens in %d %s; lower "
            "block_size or tokenize more text",
            pattern, format_count(needed, (int64_t)window_tokens + 1), format_count(found, set->tokens),
            set->shard_count, set->shard_count == 1 ? "shard" : "shards");
        data_set_free(set);
        return NULL;
    }
    return set;
}

void data_set_free(DataSet *set)
{
    if (!set) {
        return;
    }
    for (int i = 0; i < set->open_count; i++) {
        open_file_release(&set->shards[i].file);
    }
    for (int i = 0; i < set->shard_count; i++) {
        free(set->shards[i].path);
    }
    memory_free(set->shards);
    memory_free(set);
}

int64_t data_set_windows(const DataSet *set)
{
    return set->windows;
}

int64_t data_set_tokens(const DataSet *set)
{
    return set->tokens;
}

int data_set_shards(const DataSet *set)
{
    return set->shard_count;
}

uint64_t data_set_fingerprint(const DataSet *set)
{
    uint64_t hash = 0;
    for (int i = 0; i < set->shard_count; i++) {
        const ShardFile *shard = &set->shards[i];
        const char *slash = strrchr(shard->path, '/');
        const char *name = slash ? slash + 1 : shard->path;
        uint64_t sizes[2] = {shard->file.bytes, (uint64_t)shard->shard.token_count};
        hash = hash_bytes(name, strlen(name) + 1, hash);
        hash = hash_bytes(sizes, sizeof(sizes), hash);
    }
    return hash;
}

/* The shard that holds a window: the last one whose first window is not beyond it. */
static const ShardFile *find_shard(const DataSet *set, int64_t window)
{
    int low = 0;
    int high = set->shard_count - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (set->shards[middle].first_window <= window) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return &set->shards[low];
}

static int error_token(const ShardFile *shard, int64_t position, int token, int vocab_size, Error *error)
{
    char text[FORMAT_COUNT_BYTES];
    return error_set(
        error,
        "%s: token %d at position %s: expected tokens below vocab_size=%d; give the vocab_size that "
        "the file was made for, or make it again with data_prep/tokenize",
        shard->path, token, format_count(text, position), vocab_size);
}

int data_set_window(const DataSet *set, int64_t window, int vocab_size, int32_t *tokens, int32_t *targets,
                    Error *error)
{
    CHECK(window >= 0 && window < set->windows, "window %" PRId64 " of %" PRId64, window, set->windows);
    const ShardFile *shard = find_shard(set, window);
    int T = set->window_tokens;
    int64_t first = (window - shard->first_window) * T;
    /* The window's T + 1 tokens of two bytes wait where its T targets of four will be. */
    const unsigned char *bytes = (const unsigned char *)targets;
    uint64_t offset = (uint64_t)shard->shard.first_byte + (uint64_t)first * SHARD_TOKEN_BYTES;
    size_t window_bytes = ((size_t)T + 1) * SHARD_TOKEN_BYTES;
    if (open_file_read_at(&shard->file, targets, offset, window_bytes, shard->path, error) != 0) {
        return -1;
    }
    int last = bytes[2 * T] | bytes[2 * T + 1] << 8, largest = last;
    for (int t = 0; t < T; t++) {
        tokens[t] = bytes[2 * t] | bytes[2 * t + 1] << 8;
        largest = tokens[t] > largest ? tokens[t] : largest;
    }
    memmove(targets, tokens + 1, (T > 1 ? (size_t)T - 1 : 0) * sizeof(*targets));
    targets[T - 1] = last;
    if (largest < vocab_size) {
        return 0;
    }
    int t = 0;
    while (t < T && tokens[t] < vocab_size) {
        t++;
    }
    return error_token(shard, first + t, t < T ? tokens[t] : targets[T - 1], vocab_size, error);
}
