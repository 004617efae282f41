#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zstd.h>
#include <zstd_errors.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/base/work.h"
#include "llmc/snapshot/frames.h"
#include "llmc/snapshot/frames_format.h"

/* Window of a frame, as a power of two: more than zstd's levels ask for, little enough that a few bytes
 * cannot ask for a large allocation. */
enum { WINDOW_LOG_MAX = 24 };

static int error_system(const FrameReader *reader, const char *what, Error *error)
{
    error_set(error, "%s: cannot %s: %s", reader->path, what, strerror(errno));
    return FRAMES_UNREADABLE;
}

static int error_damaged(const FrameReader *reader, const char *what, Error *error)
{
    error_set(error, "%s: damaged or no snapshot: %s", reader->path, what);
    return FRAMES_DAMAGED;
}

/* Which says nothing of the file. */
static int error_memory(const FrameReader *reader, Error *error)
{
    error_set(error, "%s: cannot read: out of memory for zstd; let the program have more", reader->path);
    return FRAMES_UNREADABLE;
}

/* What zstd refuses is damaged, but for what it has no memory for, and windows that are larger than ours. */
static int error_zstd(const FrameReader *reader, size_t status, Error *error)
{
    switch (ZSTD_getErrorCode(status)) {
    case ZSTD_error_memory_allocation:
        return error_memory(reader, error);
    case ZSTD_error_frameParameter_windowTooLarge:
        error_set(
            error,
            "%s: cannot read: expected a zstd window of at most %d MiB, found a larger one (zstd --long "
            "or --ultra); compress it again without: zstd -d --long=31, then zstd",
            reader->path, 1 << (WINDOW_LOG_MAX - 20));
        return FRAMES_UNREADABLE;
    default:
        return error_damaged(reader, ZSTD_getErrorName(status), error);
    }
}

/* Fill the buffer with the file's bytes from `begin`, as many as there are before `end`. */
static int fill(FrameReader *reader, uint64_t begin, uint64_t end, Error *error)
{
    size_t wanted = end - begin < SEAL_BLOCK_BYTES ? (size_t)(end - begin) : SEAL_BLOCK_BYTES;
    reader->in_used = 0;
    reader->in_count = 0;
    work_add();
    while (reader->in_count < wanted) {
        ssize_t got = pread(reader->descriptor, reader->in + reader->in_count, wanted - reader->in_count,
                            (off_t)(begin + reader->in_count));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return error_system(reader, "read", error);
        }
        if (got == 0) {
            return error_damaged(reader, "the file shrank while it was read", error);
        }
        reader->in_count += (size_t)got;
    }
    return FRAMES_OK;
}

int frame_reader_init(FrameReader *reader, const char *path, Error *error)
{
    memset(reader, 0, sizeof(*reader));
    reader->path = path;
    reader->descriptor = file_open(path, O_RDONLY, error);
    if (reader->descriptor < 0) {
        return FRAMES_UNREADABLE;
    }
    struct stat status;
    if (fstat(reader->descriptor, &status) != 0) {
        int result = error_system(reader, "tell the size of", error);
        close(reader->descriptor);
        return result;
    }
    reader->file_bytes = (uint64_t)status.st_size;
    reader->content_bytes = reader->file_bytes;
    reader->context = ZSTD_createDCtx();
    if (!reader->context) {
        close(reader->descriptor);
        return error_memory(reader, error);
    }
    reader->in = memory_alloc(SEAL_BLOCK_BYTES, 1, "compressed bytes");
    ZSTD_DCtx_setParameter(reader->context, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    return FRAMES_OK;
}

int frame_reader_check_seal(FrameReader *reader, Error *error)
{
    unsigned char found[SEAL_BYTES];
    unsigned char expected[SEAL_BYTES];
    frame_reader_rewind(reader);
    reader->content_bytes = reader->file_bytes;
    if (reader->file_bytes < SEAL_BYTES) {
        return FRAMES_OK;
    }
    uint64_t end = reader->file_bytes - SEAL_BYTES;
    int status = fill(reader, end, reader->file_bytes, error);
    if (status != FRAMES_OK) {
        return status;
    }
    memcpy(found, reader->in, SEAL_BYTES);
    if (memcmp(found, seal_head, SEAL_HEAD_BYTES) != 0) {
        frame_reader_rewind(reader);
        return FRAMES_OK;
    }
    uint64_t hash = 0;
    for (uint64_t begin = 0; begin < end; begin += reader->in_count) {
        status = fill(reader, begin, end, error);
        if (status != FRAMES_OK) {
            return status;
        }
        hash = hash_bytes(reader->in, reader->in_count, hash);
    }
    seal_fill(expected, hash);
    if (memcmp(found, expected, SEAL_BYTES) != 0) {
        return error_damaged(reader, "its bytes are not those that were written", error);
    }
    reader->content_bytes = end;
    reader->is_sealed = 1;
    frame_reader_rewind(reader);
    return FRAMES_OK;
}

int frame_reader_first_frame(uint64_t *content_bytes, FrameReader *reader, Error *error)
{
    frame_reader_rewind(reader);
    int status = fill(reader, 0, reader->content_bytes, error);
    if (status != FRAMES_OK) {
        return status;
    }
    unsigned long long found = ZSTD_getFrameContentSize(reader->in, reader->in_count);
    *content_bytes =
        found == ZSTD_CONTENTSIZE_UNKNOWN || found == ZSTD_CONTENTSIZE_ERROR ? UINT64_MAX : found;
    frame_reader_rewind(reader);
    return FRAMES_OK;
}

/* One call of the decoder, which is given more input when it has used up what there was. It may hold output
 * back although all input is used: the file is too short only when nothing goes in and nothing comes out. */
static int decode(FrameReader *reader, ZSTD_outBuffer *out, Error *error)
{
    if (reader->in_used == reader->in_count && reader->next_byte < reader->content_bytes) {
        int status = fill(reader, reader->next_byte, reader->content_bytes, error);
        if (status != FRAMES_OK) {
            return status;
        }
        reader->next_byte += reader->in_count;
    }
    ZSTD_inBuffer in = {reader->in, reader->in_count, reader->in_used};
    size_t out_before = out->pos;
    reader->frame_status = ZSTD_decompressStream(reader->context, out, &in);
    if (ZSTD_isError(reader->frame_status)) {
        return error_zstd(reader, reader->frame_status, error);
    }
    if (in.pos == reader->in_used && out->pos == out_before) {
        return error_damaged(reader, "truncated: it ends before its tensors do", error);
    }
    reader->in_used = in.pos;
    return FRAMES_OK;
}

int frame_reader_read(FrameReader *reader, void *out, size_t bytes, Error *error)
{
    ZSTD_outBuffer buffer = {out, bytes, 0};
    while (buffer.pos < buffer.size) {
        int status = decode(reader, &buffer, error);
        if (status != FRAMES_OK) {
            return status;
        }
    }
    return FRAMES_OK;
}

int frame_reader_finish(FrameReader *reader, Error *error)
{
    while (reader->frame_status != 0) {
        unsigned char extra;
        ZSTD_outBuffer buffer = {&extra, 1, 0};
        int status = decode(reader, &buffer, error);
        if (status != FRAMES_OK) {
            return status;
        }
        if (buffer.pos > 0) {
            return error_damaged(reader, "it goes on after its last tensor", error);
        }
    }
    if (reader->in_used < reader->in_count || reader->next_byte < reader->content_bytes) {
        return error_damaged(reader, "bytes follow its last tensor", error);
    }
    return FRAMES_OK;
}

void frame_reader_rewind(FrameReader *reader)
{
    reader->in_used = 0;
    reader->in_count = 0;
    reader->next_byte = 0;
    reader->frame_status = 0;
    ZSTD_DCtx_reset(reader->context, ZSTD_reset_session_only);
}

void frame_reader_release(FrameReader *reader)
{
    if (reader->context) {
        ZSTD_freeDCtx(reader->context);
        memory_free(reader->in);
        close(reader->descriptor);
    }
    memset(reader, 0, sizeof(*reader));
}
