/* A file of zstd frames, each with a content checksum, closed by a seal: a skippable frame (which zstd passes
 * over) that holds a hash of every compressed byte before it. Checksums cover content only; the seal also
 * covers the bits of frames that decoders ignore, so that no flipped bit goes unseen. Files without a seal
 * (made by `zstd` itself) are read too.
 */
#ifndef LLMC_SNAPSHOT_FRAMES_H
#define LLMC_SNAPSHOT_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

/* What reading returns. An UNREADABLE file may be whole (permissions, I/O errors), a DAMAGED one is not. */
enum { FRAMES_OK = 0, FRAMES_UNREADABLE = -1, FRAMES_DAMAGED = -2 };

/* What writing takes of memory, for one file after another. Owned by the caller: init, release. */
typedef struct FrameSpace {
    struct ZSTD_CCtx_s *context;
    unsigned char *out; /* compressed bytes not yet written */
    int threads;
} FrameSpace;

/* threads: for compression; 0 or 1: none but the caller's. -1 with *error when memory runs out. */
int frame_space_init(FrameSpace *space, int threads, Error *error);
/* Take now what the first file would take, pages included. Where the threads have no memory the caller's
 * alone will compress; -1 with *error where that has none either. */
int frame_space_touch(FrameSpace *space, Error *error);
void frame_space_release(FrameSpace *space);

/* Owned by the caller: init, then commit or discard. */
typedef struct FrameWriter {
    AtomicFile file;
    FrameSpace *space; /* borrowed; one file at a time uses it */
    size_t out_used;
    uint64_t hash;         /* of the blocks written so far */
    uint64_t file_bytes;   /* written so far */
    uint64_t section_left; /* promised and not yet given */
    uint64_t frame_left;
} FrameWriter;

int frame_writer_init(FrameWriter *writer, const char *path, FrameSpace *space, Error *error);
/* The next `bytes` bytes begin a frame, and more frames where they are many. The section before must be
 * complete. */
void frame_writer_begin(FrameWriter *writer, uint64_t bytes);
int frame_writer_write(FrameWriter *writer, const void *data, size_t bytes, Error *error);
/* Seal and sync, still under the temporary name. After that only commit or discard. */
int frame_writer_seal(FrameWriter *writer, Error *error);
/* Show under the final name, durably. On failure nothing is left. */
int frame_writer_commit(FrameWriter *writer, Error *error);
void frame_writer_discard(FrameWriter *writer);

/* Owned by the caller: init, release. */
typedef struct FrameReader {
    int descriptor;
    const char *path; /* borrowed */
    struct ZSTD_DCtx_s *context;
    unsigned char *in;
    size_t in_used, in_count;
    uint64_t file_bytes;
    uint64_t content_bytes; /* without the seal */
    int is_sealed;
    uint64_t next_byte;  /* of the file, to be read into `in` */
    size_t frame_status; /* 0 between frames */
} FrameReader;

/* Opens; nothing is verified yet. */
int frame_reader_init(FrameReader *reader, const char *path, Error *error);
/* The seal, where there is one, against every byte before it. */
int frame_reader_check_seal(FrameReader *reader, Error *error);
/* Decompressed bytes of the first frame, UINT64_MAX where it does not say. */
int frame_reader_first_frame(uint64_t *content_bytes, FrameReader *reader, Error *error);
/* Exactly `bytes` decompressed bytes, or an error. */
int frame_reader_read(FrameReader *reader, void *out, size_t bytes, Error *error);
/* After the last read: the checksum of the last frame holds and nothing follows it. */
int frame_reader_finish(FrameReader *reader, Error *error);
/* Begin again. */
void frame_reader_rewind(FrameReader *reader);
void frame_reader_release(FrameReader *reader);

#endif
