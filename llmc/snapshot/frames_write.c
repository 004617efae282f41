#include <string.h>

#include <zstd.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/frames.h"
#include "llmc/snapshot/frames_format.h"

/* Level 1: the low planes hold noise, which higher levels only search longer. */
enum { ZSTD_LEVEL = 1 };

int frame_writer_init(FrameWriter *writer, const char *path, int threads, Error *error)
{
    memset(writer, 0, sizeof(*writer));
    if (atomic_file_init(&writer->file, path, error) != 0) {
        return -1;
    }
    writer->context = ZSTD_createCCtx();
    CHECK(writer->context, "out of memory for zstd");
    writer->out = memory_alloc(SEAL_BLOCK_BYTES, 1, "compressed bytes");
    size_t status = ZSTD_CCtx_setParameter(writer->context, ZSTD_c_checksumFlag, 1);
    CHECK(!ZSTD_isError(status), "zstd: %s", ZSTD_getErrorName(status));
    ZSTD_CCtx_setParameter(writer->context, ZSTD_c_compressionLevel, ZSTD_LEVEL);
    if (threads > 1) {
        /* A library built without threads refuses, and compresses in this one. */
        ZSTD_CCtx_setParameter(writer->context, ZSTD_c_nbWorkers, threads);
    }
    return 0;
}

/* Write and hash what has gathered: always whole blocks but for the last, because the reader hashes so. */
static int flush_block(FrameWriter *writer, Error *error)
{
    if (writer->out_used == 0) {
        return 0;
    }
    if (atomic_file_write(&writer->file, writer->out, writer->out_used, error) != 0) {
        return -1;
    }
    writer->hash = hash_bytes(writer->out, writer->out_used, writer->hash);
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
        ZSTD_outBuffer out = {writer->out, SEAL_BLOCK_BYTES, writer->out_used};
        size_t status = ZSTD_compressStream2(writer->context, &out, &in, directive);
        CHECK(!ZSTD_isError(status), "%s: zstd: %s", writer->file.path, ZSTD_getErrorName(status));
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
            ZSTD_CCtx_setPledgedSrcSize(writer->context, writer->frame_left);
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

static void free_buffers(FrameWriter *writer)
{
    ZSTD_freeCCtx(writer->context);
    memory_free(writer->out);
    writer->context = NULL;
    writer->out = NULL;
}

int frame_writer_commit(FrameWriter *writer, Error *error)
{
    CHECK(writer->section_left == 0, "%s: a section lacks %llu bytes", writer->file.path,
          (unsigned long long)writer->section_left);
    unsigned char seal[SEAL_BYTES];
    if (flush_block(writer, error) != 0) {
        frame_writer_discard(writer);
        return -1;
    }
    seal_fill(seal, writer->hash);
    if (atomic_file_write(&writer->file, seal, sizeof(seal), error) != 0) {
        frame_writer_discard(writer);
        return -1;
    }
    writer->file_bytes += sizeof(seal);
    free_buffers(writer);
    return atomic_file_commit(&writer->file, error);
}

void frame_writer_discard(FrameWriter *writer)
{
    atomic_file_discard(&writer->file);
    free_buffers(writer);
}
