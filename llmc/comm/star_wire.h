/* What the star's connections carry: fixed records, in the byte order that all ranks have. */
#ifndef LLMC_COMM_STAR_WIRE_H
#define LLMC_COMM_STAR_WIRE_H

#include <stdint.h>

#include "llmc/comm/star.h"

#define STAR_MAGIC UINT64_C(0x7b6c6c6d63737461)

enum { STAR_VERSION = 3 };

typedef struct Hello {
    uint64_t magic;
    uint8_t job[JOB_BYTES];
    uint32_t version;
    int32_t rank, rank_count, ring_port, local_rank, padding;
    char host[HOST_BYTES];
} Hello;

/* Welcome: wait for the others. Taken: another process has this rank now. Answer: all are there. */
typedef enum ReplyKind { REPLY_WELCOME = 1, REPLY_ANSWER, REPLY_REFUSED, REPLY_TAKEN } ReplyKind;

typedef struct Reply {
    uint64_t magic, token;
    int32_t kind, local_rank, next_port, padding;
    char host[HOST_BYTES]; /* rank 0's */
    char next_address[HOST_BYTES];
    Error error; /* why it is refused */
} Reply;

#endif
