#define _GNU_SOURCE
#include "llmc/data/dataset.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/base/format.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/data/shard.h"
#include "llmc/data/shard_folder.h"

enum { REPLACED_WAIT_MS = 20, REPLACED_WAIT_MS_MAX = 20000 };

typedef struct ShardFile {
    char *path;    /* the name that users know; owned by the set's paths */
    OpenFile file; /* the first open_count of the set are open */
    Shard shard;
    int64_t first_window; /* of the set */
    int64_t window_count;
} ShardFile;

struct DataSet {
    char *pattern;    /* owned */
    ShardPaths paths; /* of the shards, in their order */
    ShardFile *shards;
    int shard_count;
    int open_count;
    int window_tokens;
    int64_t windows;
    int64_t tokens;
};

/* An error that names the command which would make the files: its folder is the pattern's. */
static int error_missing(const char *pattern, Error *error)
{
    const char *slash = strrchr(pattern, '/');
    return error_set(error,
                     "%s: expected token shards, found no such file; make them with "
                     "data_prep/tokenize -o %.*s INPUT",
                     pattern, slash ? (int)(slash - pattern) : 1, slash ? pattern : ".");
}

/* Open the shards and count their windows. Only headers are read. */
static int open_shards(DataSet *set, Error *error)
{
    set->shard_count = (int)set->paths.count;
    set->shards = memory_alloc_zeroed(set->paths.count, sizeof(*set->shards), "shards");
    for (int i = 0; i < set->shard_count; i++) {
        ShardFile *shard = &set->shards[i];
        unsigned char opening[SHARD_OPENING_BYTES];
        shard->path = set->paths.items[i].path;
        if (open_file_init(&shard->file, set->paths.items[i].place, error) != 0) {
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

/* Close all but the pattern. */
static void close_shards(DataSet *set)
{
    for (int i = 0; i < set->open_count; i++) {
        open_file_release(&set->shards[i].file);
    }
    memory_free(set->shards);
    shard_paths_release(&set->paths);
    *set = (DataSet){.pattern = set->pattern, .window_tokens = set->window_tokens};
}

/* Is the open file still what its place holds? */
static int is_open_file(const OpenFile *file, const char *place)
{
    struct stat opened, found;
    return fstat(file->descriptor, &opened) == 0 && stat(place, &found) == 0 &&
           opened.st_dev == found.st_dev && opened.st_ino == found.st_ino;
}

int data_set_is_current(const DataSet *set)
{
    ShardPaths now;
    int is_same = shard_paths_find(&now, set->pattern, NULL) == 0 && now.count == set->paths.count;
    for (size_t i = 0; is_same && i < now.count; i++) {
        is_same = strcmp(now.items[i].path, set->paths.items[i].path) == 0;
        if (is_same && i < (size_t)set->open_count) {
            is_same = is_open_file(&set->shards[i].file, now.items[i].place);
        } else if (is_same) { /* it could not be opened: would it be sought elsewhere now? */
            is_same = strcmp(now.items[i].place, set->paths.items[i].place) == 0;
        }
    }
    shard_paths_release(&now);
    return is_same;
}

/* Open what the pattern names. What tokenize replaces meanwhile would be opened in part old and in part new:
 * then all is opened again. */
static int open_current(DataSet *set, Error *error)
{
    double begin_ms = clock_ms();
    for (;;) {
        if (shard_paths_find(&set->paths, set->pattern, error) != 0) {
            return -1;
        }
        int result = set->paths.count > 0 ? open_shards(set, error) : error_missing(set->pattern, error);
        if (data_set_is_current(set)) {
            return result;
        }
        if (clock_ms() - begin_ms > REPLACED_WAIT_MS_MAX) {
            return error_set(error,
                             "%s: expected shards that stay, found that they are replaced all the time",
                             set->pattern);
        }
        close_shards(set);
        nanosleep(&(struct timespec){.tv_nsec = REPLACED_WAIT_MS * 1000000L}, NULL);
    }
}

DataSet *data_set_open(const char *pattern, int window_tokens, Error *error)
{
    CHECK(window_tokens > 0, "a window has %d tokens", window_tokens);
    DataSet *set = memory_alloc_zeroed(1, sizeof(*set), "data set");
    set->window_tokens = window_tokens;
    set->pattern = memory_copy_text(pattern, "data set");
    if (open_current(set, error) != 0) {
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
    if (set) {
        close_shards(set);
        memory_free(set->pattern);
        memory_free(set);
    }
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

const char *data_set_path(const DataSet *set, int shard)
{
    CHECK(shard >= 0 && shard < set->shard_count, "shard %d of %d", shard, set->shard_count);
    return set->shards[shard].path;
}

int data_set_largest_token(const DataSet *set, int64_t count, int64_t *looked, Error *error)
{
    const ShardFile *shard = &set->shards[0];
    *looked = count < shard->shard.token_count ? count : shard->shard.token_count;
    size_t bytes = (size_t)*looked * SHARD_TOKEN_BYTES;
    unsigned char *tokens = memory_alloc(bytes + 1, 1, "tokens");
    int largest =
        open_file_read_at(&shard->file, tokens, (uint64_t)shard->shard.first_byte, bytes, shard->path, error);
    for (size_t i = 0; largest >= 0 && i < bytes; i += SHARD_TOKEN_BYTES) {
        int token = tokens[i] | tokens[i + 1] << 8;
        largest = token > largest ? token : largest;
    }
    memory_free(tokens);
    return largest;
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
