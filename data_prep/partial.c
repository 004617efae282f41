#define _GNU_SOURCE
#include "data_prep/partial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"

enum {
    LENGTHS_KEPT = 1 << 16,
    SAVE_TOKENS_MAX = 1 << 25, /* between two states: seconds of work */
    FLUSH_BYTES = 8 << 20,
    STATE_BYTES_MAX = 1024
};

#define TOKENS_NAME "tokens"
#define LENGTHS_NAME "lengths"
#define STATE_NAME "state"
#define STATE_NEW_NAME "state.new"
#define BUCKETS_NAME "buckets" /* arrange.c */

static const char *const names[] = {TOKENS_NAME, LENGTHS_NAME, STATE_NAME, STATE_NEW_NAME, BUCKETS_NAME};

void partial_remove(int folder)
{
    int own = openat(folder, PARTIAL_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (own >= 0) {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            unlinkat(own, names[i], 0);
        }
        close(own);
        unlinkat(folder, PARTIAL_FOLDER, AT_REMOVEDIR);
    }
}

static int fail(const Partial *partial, const char *name, const char *what, Error *error)
{
    return error_set_system(error, errno, "%s/%s/%s: cannot %s", partial->options->output, PARTIAL_FOLDER,
                            name, what);
}

/* ---- what a state was made from -------------------------------------------------------------------------*/

/* Of all that decides which tokens come out, up to and with input `last`. */
static uint64_t fingerprint(const TokenizeOptions *options, int64_t last)
{
    int choices[] = {options->format, options->eot, options->eot_text, options->clean};
    uint64_t hash = hash_bytes(choices, sizeof(choices), 0);
    hash = hash_bytes(options->text_key, strlen(options->text_key) + 1, hash);
    for (int64_t i = 0; i <= last && i < options->inputs_count; i++) {
        const char *path = options->inputs[i];
        struct stat status = {0};
        (void)!stat(path, &status);
        int64_t facts[] = {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
        hash = hash_bytes(path, strlen(path) + 1, hash);
        hash = hash_bytes(facts, sizeof(facts), hash);
    }
    return hash;
}

static int are_resumable(const TokenizeOptions *options)
{
    for (int i = 0; i < options->inputs_count; i++) {
        struct stat status;
        if (strcmp(options->inputs[i], "-") == 0 || stat(options->inputs[i], &status) != 0 ||
            !S_ISREG(status.st_mode)) {
            return 0;
        }
    }
    return 1;
}

#define STATE_FORMAT(number, hash)                                                                           \
    "tokenize partial 1\n"                                                                                   \
    "made from %" hash "\ndocuments %" number "\ntokens %" number "\ntext tokens %" number                   \
    "\ntext bytes %" number "\ninput %" number "\nentry %" number "\nby then documents %" number "\nend\n"

static int read_state(PartialState *state, const Partial *partial)
{
    char text[STATE_BYTES_MAX];
    int file = openat(partial->descriptor, STATE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t bytes = file >= 0 ? read(file, text, sizeof(text) - 1) : -1;
    if (file >= 0) {
        close(file);
    }
    text[bytes > 0 ? bytes : 0] = '\0';
    uint64_t hash;
    int found = sscanf(text, STATE_FORMAT(SCNd64, SCNx64), &hash, &state->documents, &state->tokens,
                       &state->text_tokens, &state->text_bytes, &state->place.input, &state->place.entry,
                       &state->place.documents);
    const char end[] = "\nend\n";
    int is_whole = found == 8 && (size_t)bytes > sizeof(end) && strcmp(text + bytes - 5, end) == 0;
    return is_whole && hash == fingerprint(partial->options, state->place.input) ? 0 : -1;
}

static int write_state(const Partial *partial, Error *error)
{
    char text[STATE_BYTES_MAX];
    const PartialState *state = &partial->state;
    int bytes = snprintf(text, sizeof(text), STATE_FORMAT(PRId64, PRIx64),
                         fingerprint(partial->options, state->place.input), state->documents, state->tokens,
                         state->text_tokens, state->text_bytes, state->place.input, state->place.entry,
                         state->place.documents);
    int file = openat(partial->descriptor, STATE_NEW_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) {
        return fail(partial, STATE_NEW_NAME, "create", error);
    }
    errno = ENOSPC; /* unless something else is said */
    int failed = write(file, text, (size_t)bytes) != bytes || fsync(file) != 0;
    int reason = errno;
    close(file);
    errno = reason;
    if (failed) {
        return fail(partial, STATE_NEW_NAME, "write", error);
    }
    if (renameat(partial->descriptor, STATE_NEW_NAME, partial->descriptor, STATE_NAME) != 0 ||
        (fsync(partial->descriptor) != 0 && errno != EINVAL)) {
        return fail(partial, STATE_NAME, "put in place", error);
    }
    return 0;
}

/* ---- begin ----------------------------------------------------------------------------------------------*/

static int open_file(const Partial *partial, const char *name, int flags)
{
    return openat(partial->descriptor, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0666);
}

static void close_file(int *file)
{
    if (*file >= 0) {
        close(*file);
        *file = -1;
    }
}

static void close_all(Partial *partial)
{
    close_file(&partial->tokens_file);
    close_file(&partial->lengths_file);
    close_file(&partial->descriptor);
    memory_free(partial->lengths);
    partial->lengths = NULL;
}

/* Is all there that the state speaks of? What follows is cut off. */
static int holds_state(Partial *partial, const PartialState *state)
{
    struct stat tokens, lengths;
    partial->tokens_file = open_file(partial, TOKENS_NAME, 0);
    partial->lengths_file = open_file(partial, LENGTHS_NAME, 0);
    return state->documents > 0 && partial->tokens_file >= 0 && partial->lengths_file >= 0 &&
           fstat(partial->tokens_file, &tokens) == 0 && fstat(partial->lengths_file, &lengths) == 0 &&
           tokens.st_size / (int64_t)sizeof(uint16_t) >= state->tokens &&
           lengths.st_size / (int64_t)sizeof(uint32_t) >= state->documents &&
           ftruncate(partial->tokens_file, state->tokens * (off_t)sizeof(uint16_t)) == 0 &&
           ftruncate(partial->lengths_file, state->documents * (off_t)sizeof(uint32_t)) == 0;
}

/* Go on with what is in the folder, where that is possible. */
static int reopen(Partial *partial)
{
    PartialState state = {0};
    partial->descriptor =
        openat(partial->folder, PARTIAL_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (partial->descriptor < 0) {
        return 0;
    }
    if (partial->is_resumable && read_state(&state, partial) == 0 && holds_state(partial, &state)) {
        partial->state = state;
        partial->saved_tokens = state.tokens;
        partial->flushed_bytes = state.tokens * (int64_t)sizeof(uint16_t);
        return 1;
    }
    partial->has_notice = faccessat(partial->descriptor, STATE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    close_file(&partial->tokens_file);
    close_file(&partial->lengths_file);
    close_file(&partial->descriptor);
    return 0;
}

int partial_init(Partial *partial, const TokenizeOptions *options, int folder, Error *error)
{
    *partial = (Partial){.options = options,
                         .folder = folder,
                         .descriptor = -1,
                         .tokens_file = -1,
                         .lengths_file = -1,
                         .is_resumable = are_resumable(options)};
    if (!reopen(partial)) {
        partial_remove(folder);
        if (mkdirat(folder, PARTIAL_FOLDER, 0777) != 0) {
            return error_set_system(error, errno, "%s/%s: cannot create folder", options->output,
                                    PARTIAL_FOLDER);
        }
        partial->descriptor = openat(folder, PARTIAL_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        partial->tokens_file = open_file(partial, TOKENS_NAME, O_CREAT | O_EXCL);
        partial->lengths_file = open_file(partial, LENGTHS_NAME, O_CREAT | O_EXCL);
        if (partial->tokens_file < 0 || partial->lengths_file < 0) {
            int failed = fail(partial, TOKENS_NAME, "create", error);
            close_all(partial);
            partial_remove(folder);
            return failed;
        }
    }
    partial->lengths = memory_alloc(LENGTHS_KEPT, sizeof(*partial->lengths), "lengths of documents");
    return 0;
}

/* ---- append ---------------------------------------------------------------------------------------------*/

static int write_at(const Partial *partial, int file, const char *name, int64_t offset, const void *data,
                    size_t bytes, Error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t now = pwrite(file, (const char *)data + done, bytes - done, (off_t)offset + (off_t)done);
        errno = now == 0 ? ENOSPC : errno;
        if (now <= 0 && errno != EINTR) {
            return fail(partial, name, "write", error);
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return 0;
}

static int write_lengths(Partial *partial, Error *error)
{
    int64_t first = partial->state.documents - (int64_t)partial->lengths_count;
    size_t bytes = partial->lengths_count * sizeof(*partial->lengths);
    int failed = write_at(partial, partial->lengths_file, LENGTHS_NAME,
                          first * (int64_t)sizeof(*partial->lengths), partial->lengths, bytes, error);
    partial->lengths_count = failed ? partial->lengths_count : 0; /* else a later save writes them */
    return failed;
}

/* A document has ended that has so many tokens. */
static int end_document(Partial *partial, int64_t tokens, Error *error)
{
    if (tokens > UINT32_MAX || partial->state.documents == UINT32_MAX) {
        return error_set(error, "--shuffle-documents: expected at most %u %s, found more", UINT32_MAX,
                         tokens > UINT32_MAX ? "tokens in a document" : "documents");
    }
    partial->lengths[partial->lengths_count++] = (uint32_t)tokens;
    partial->state.documents++;
    partial->state.tokens += tokens;
    return partial->lengths_count == LENGTHS_KEPT ? write_lengths(partial, error) : 0;
}

int partial_append(Partial *partial, const PartialChunk *chunk, Error *error)
{
    PartialState *state = &partial->state;
    int64_t begin = state->tokens + partial->open_tokens;
    int64_t documents = state->documents;
    if (write_at(partial, partial->tokens_file, TOKENS_NAME, begin * (int64_t)sizeof(uint16_t), chunk->tokens,
                 chunk->tokens_count * sizeof(uint16_t), error) != 0) {
        return -1;
    }
    size_t done = 0;
    for (size_t i = 0; i < chunk->ends_count; i++) {
        int64_t tokens = partial->open_tokens + (int64_t)(chunk->ends[i] - done);
        partial->open_tokens = 0;
        done = chunk->ends[i];
        if (end_document(partial, tokens, error) != 0) {
            return -1;
        }
    }
    partial->open_tokens += (int64_t)(chunk->tokens_count - done);
    state->text_tokens += chunk->text_tokens;
    state->text_bytes += chunk->text_bytes;
    if (chunk->place) {
        state->place = *chunk->place;
        state->place.documents += documents;
    }
    int64_t written = (begin + (int64_t)chunk->tokens_count) * (int64_t)sizeof(uint16_t);
    if (written - partial->flushed_bytes >= FLUSH_BYTES) {
        sync_file_range(partial->tokens_file, partial->flushed_bytes, written - partial->flushed_bytes,
                        SYNC_FILE_RANGE_WRITE);
        partial->flushed_bytes = written;
    }
    int64_t due_tokens = (partial->options->shuffle_memory << 20) / (int64_t)sizeof(uint16_t);
    due_tokens = due_tokens < SAVE_TOKENS_MAX ? due_tokens : SAVE_TOKENS_MAX;
    return state->tokens - partial->saved_tokens >= due_tokens ? partial_save(partial, error) : 0;
}

int partial_save(Partial *partial, Error *error)
{
    if (write_lengths(partial, error) != 0) {
        return -1;
    }
    if (!partial->is_resumable || partial->state.documents == 0) {
        return 0;
    }
    if (fsync(partial->tokens_file) != 0 || fsync(partial->lengths_file) != 0) {
        return fail(partial, TOKENS_NAME, "write", error);
    }
    if (write_state(partial, error) != 0) {
        return -1;
    }
    partial->saved_tokens = partial->state.tokens;
    return 0;
}

void partial_release(Partial *partial)
{
    if (partial->descriptor >= 0) {
        int stays = partial->is_resumable && partial->saved_tokens > 0;
        close_all(partial);
        if (!stays) {
            partial_remove(partial->folder);
        }
    }
}
