/* Which collective each channel is in, since when, and how many it has begun: what the monitor compares
 * between ranks, and what errors tell. Safe to call from any thread. */
#ifndef LLMC_COMM_PROGRESS_H
#define LLMC_COMM_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/comm/transport.h"

enum { PROGRESS_WHAT_BYTES = 64 };

typedef struct Progress {
    uint64_t entered_count; /* collectives begun, the current one included */
    int32_t is_inside;
    int32_t padding;
    double inside_ms;               /* how long the current one has lasted */
    char what[PROGRESS_WHAT_BYTES]; /* its name, or that of the last one */
} Progress;

/* name: "sum of int64", "bucket 3"; count of elements, 0 where there are none to be told. */
void progress_enter(CommChannel channel, const char *name, int64_t count);
void progress_leave(CommChannel channel);

void progress_read(Progress states[CHANNEL_COUNT]);

/* Time that this process spent stopped does not count against a collective. */
void progress_excuse(double ms);

/* "was in bucket 3 of 1,000 elements for 2.0 s", or "was computing". */
void progress_describe(char *text, size_t text_bytes);

#endif
