/* Numbers that the writer and the reader of frames share. */
#ifndef LLMC_SNAPSHOT_FRAMES_FORMAT_H
#define LLMC_SNAPSHOT_FRAMES_FORMAT_H

#include <stdint.h>
#include <string.h>

enum {
    FRAME_CONTENT_BYTES = 64 << 20, /* at most, before compression */
    SEAL_BLOCK_BYTES = 1 << 20,     /* the hash takes compressed bytes in blocks of this size */
    SEAL_HEAD_BYTES = 8,            /* magic of a skippable frame, length of its content */
    SEAL_BYTES = 16
};

static const unsigned char seal_head[SEAL_HEAD_BYTES] = {0x5e, 0x2a, 0x4d, 0x18, 8, 0, 0, 0};

/* The whole seal of a file whose compressed bytes have this hash. */
static inline void seal_fill(unsigned char seal[SEAL_BYTES], uint64_t hash)
{
    memcpy(seal, seal_head, SEAL_HEAD_BYTES);
    for (int i = 0; i < 8; i++) {
        seal[SEAL_HEAD_BYTES + i] = (unsigned char)(hash >> (8 * i));
    }
}

#endif
