/* What a rank tells of itself, some times a second: which collectives it has begun, how much it has got done,
 * and whether the network answers it. */
#ifndef LLMC_COMM_BEAT_H
#define LLMC_COMM_BEAT_H

#include "llmc/comm/progress.h"

typedef struct Beat {
    Progress progress[CHANNEL_COUNT];
    uint64_t work_count;     /* base/work.h */
    double unanswered_ms;    /* for so long what it sends to one peer has not been answered; 0: all is */
    int32_t unanswered_rank; /* which peer; -1: only its address is known */
    int32_t padding;
    char unanswered_address[HOST_BYTES];
} Beat;

/* This rank's, now. */
void beat_read(Beat *beat, double now_ms);

/* Whose connection that is, for beats. On any thread. */
enum { BEAT_NAMED_MAX = 8 };
void beat_name_peer(int descriptor, int rank);

#endif
