#include <string.h>

#include <zstd.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/base/work.h"
#include "llmc/snapshot/frames.h"
#include "llmc/snapshot/frames_format.h"

/* Level 1: the low planes hold noise, which higher levels only search longer. */
enum { ZSTD_LEVEL = 1 };

static int error_memory(Error *error)
{
    return error_set(error, "out of memory for compressing a snapshot; let the program have more");
}

/* A context whose frame was given up is not used again: zstd's threads may still be at it. */
static int renew_context(FrameSpace *space, Error *error)
{
    ZSTD_freeCCtx(space->context);
    space->context = ZSTD_createCCtx();
    if (!space->context) {
        return error_memory(error);
    }
    size_t status = ZSTD_CCtx_setParameter(space->context, ZSTD_c_checksumFlag, 1);
    CHECK(!ZSTD_isError(status), "zstd: %s", ZSTD_getErrorName(status));
    ZSTD_CCtx_setParameter(space->context, ZSTD_c_compressionLevel, ZSTD_LEVEL);
    if (space->threads > 1) {
        /* A library built without threads refuses, and compresses in this one. */
        ZSTD_CCtx_setParameter(space->context, ZSTD_c_nbWorkers, space->threads);
    }
    return 0;
}

int frame_space_init(FrameSpace *space, int threads, Error *error)
{
    memset(space, 0, sizeof(*space));
    space->threads = threads;
    space->out = memory_try_alloc(SEAL_BLOCK_BYTES, 1);
    if (!space->out || renew_context(space, error) != 0) {
        frame_space_release(space);
        return error_memory(error);
    }
    return 0;
}

void frame_space_release(FrameSpace *space)
{
    ZSTD_freeCCtx(space->context);
    memory_free(space->out);
    memset(space, 0, sizeof(*space));
}

/* Compress noise, which takes the most memory, enough for each thread to have some. */
static int compress_noise(FrameSpace *space)
{
    enum { NOISE_BYTES = 1 << 18, THREAD_BYTES = 4 << 20 };
    unsigned char *noise = memory_try_alloc(NOISE_BYTES, 1);
    if (!noise) {
        return -1;
    }
    uint64_t state = 1;
    int64_t left = (int64_t)(space->threads + 2) * THREAD_BYTES;
    left = left < FRAME_CONTENT_BYTES ? left : FRAME_CONTENT_BYTES;
    ZSTD_CCtx_setPledgedSrcSize(space->context, (unsigned long long)left);
    size_t status = 1;
    for (; left > 0 && !ZSTD_isError(status); left -= NOISE_BYTES) {
        for (int i = 0; i < NOISE_BYTES; i += (int)sizeof(state)) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint64_t bits = state ^ state >> 29;
            memcpy(noise + i, &bits, sizeof(bits));
        }
        ZSTD_inBuffer in = {noise, NOISE_BYTES, 0};
        ZSTD_EndDirective directive = left == NOISE_BYTES ? ZSTD_e_end : ZSTD_e_continue;
        do {
            ZSTD_outBuffer out = {space->out, SEAL_BLOCK_BYTES, 0};
            status = ZSTD_compressStream2(space->context, &out, &in, directive);
        } while (!ZSTD_isError(status) && (directive == ZSTD_e_end ? status > 0 : in.pos < in.size));
    }
    memory_free(noise);
    return ZSTD_isError(status) ? -1 : 0;
}

int frame_space_touch(FrameSpace *space, Error *error)
{
    if (compress_noise(space) == 0) {
        return 0;
    }
    int is_alone = space->threads <= 1;
    frame_space_release(space);
    if (is_alone || frame_space_init(space, 1, error) != 0) {
        return error_memory(error);
    }
    return compress_noise(space) == 0 ? 0 : error_memory(error);
}

int frame_writer_init(FrameWriter *writer, const char *path, FrameSpace *space, Error *error)
{
    memset(writer, 0, sizeof(*writer));
    writer->space = space;
    writer->file.descriptor = -1;
    if (!space->context && renew_context(space, error) != 0) {
        return error_prefix(error, "%s", path);
    }
    return atomic_file_init(&writer->file, path, error);
}

/* Write and hash what has gathered: always whole blocks but for the last, because the reader hashes so. */
static int flush_block(FrameWriter *writer, Error *error)
{
    if (writer->out_used == 0) {
        return 0;
    }
    if (atomic_file_write(&writer->file, writer->space->out, writer->out_used, error) != 0) {
        return -1;
    }
    work_add();
    writer->hash = hash_bytes(writer->space->out, writer->out_used, writer->hash);
    writer->file_bytes += writer->out_used;
    writer->out_used = 0;
    return 0;
}

void frame_writer_begin(FrameWriter *writer, uint64_t bytes)
{
    CHECK(writer->section_left == 0, "%s: a section lacks %llu bytes", writer->file.path,
          (unsigned long long)writer->section_left);
    writer->section_left = bytes;
    writer->frame_left = 0;
}

/* Compress into the gathering block until the input is taken and, at the end of a frame, all of it is out. */
static int compress(FrameWriter *writer, const void *data, size_t bytes, Error *error)
{
    ZSTD_inBuffer in = {data, bytes, 0};
    ZSTD_EndDirective directive = writer->frame_left == bytes ? ZSTD_e_end : ZSTD_e_continue;
    for (;;) {
        ZSTD_outBuffer out = {writer->space->out, SEAL_BLOCK_BYTES, writer->out_used};
        size_t status = ZSTD_compressStream2(writer->space->context, &out, &in, directive);
        if (ZSTD_isError(status)) {
            return error_set(error, "%s: cannot compress: zstd: %s", writer->file.path,
                             ZSTD_getErrorName(status));
        }
        writer->out_used = out.pos;
        if (out.pos == out.size && flush_block(writer, error) != 0) {
            return -1;
        }
        if (directive == ZSTD_e_end ? status == 0 : in.pos == in.size) {
            return 0;
        }
    }
}

int frame_writer_write(FrameWriter *writer, const void *data, size_t bytes, Error *error)
{
    const unsigned char *next = data;
    CHECK(bytes <= writer->section_left, "%s: %zu bytes for the last %llu of a section", writer->file.path,
          bytes, (unsigned long long)writer->section_left);
    while (bytes > 0) {
        if (writer->frame_left == 0) {
            writer->frame_left =
                writer->section_left < FRAME_CONTENT_BYTES ? writer->section_left : FRAME_CONTENT_BYTES;
            ZSTD_CCtx_setPledgedSrcSize(writer->space->context, writer->frame_left);
        }
        size_t take = bytes < writer->frame_left ? bytes : (size_t)writer->frame_left;
        if (compress(writer, next, take, error) != 0) {
            return -1;
        }
        next += take;
        bytes -= take;
        writer->frame_left -= take;
        writer->section_left -= take;
    }
    return 0;
}

int frame_writer_seal(FrameWriter *writer, Error *error)
{
    CHECK(writer->section_left == 0, "%s: a section lacks %llu bytes", writer->file.path,
          (unsigned long long)writer->section_left);
    unsigned char seal[SEAL_BYTES];
    if (flush_block(writer, error) != 0) {
        return -1;
    }
    seal_fill(seal, writer->hash);
    if (atomic_file_write(&writer->file, seal, sizeof(seal), error) != 0) {
        return -1;
    }
    writer->file_bytes += sizeof(seal);
    return atomic_file_sync(&writer->file, error);
}

int frame_writer_commit(FrameWriter *writer, Error *error)
{
    return atomic_file_commit(&writer->file, error);
}

void frame_writer_discard(FrameWriter *writer)
{
    atomic_file_discard(&writer->file);
    if (writer->section_left > 0) {
        ZSTD_freeCCtx(writer->space->context);
        writer->space->context = NULL;
    }
}
