/* Gradients summed over ranks while backward still runs.
 *
 * Backward tells which range of the arena is final; the reducer joins neighbours and cuts them into buckets
 * (the first of BUCKET_FIRST_BYTES, then of bucket_bytes: PyTorch's DDP), which one communication thread sums
 * in the order in which they became final. Every rank cuts alike, because every rank's backward finishes
 * ranges alike. Buckets are ranges of the arena, never copies.
 *
 * In exact mode wte's dense part comes first, and overlaps all of backward; what the embedding of the last
 * slot adds to it (late rows: those of the tokens in one batch) is summed last, only for rows that a rank
 * has.
 */
#ifndef LLMC_COMM_REDUCER_H
#define LLMC_COMM_REDUCER_H

#include <stdint.h>

#include "llmc/comm/comm.h"

enum { BUCKET_FIRST_BYTES = 1 << 20 };

typedef struct ReducerConfig {
    void *elements; /* the arena: int64 (COMM_INT64), or fp32 (COMM_FLOAT, COMM_BF16 on the wire) */
    int64_t count;
    CommType type;
    int64_t bucket_bytes; /* as they go over the wire */
    int64_t row_offset;   /* wte in the arena: where late rows belong */
    int rows, row_count;  /* V rows of C elements */
    int overlaps;         /* 0: buckets wait for reducer_wait (to measure what overlap gains) */
} ReducerConfig;

/* One summed bucket, for the trace and the log. Times are clock_ms(). */
typedef struct BucketTiming {
    const char *what; /* "bucket 3", "late rows", "tail" */
    double begin_ms, end_ms;
    int64_t bytes;
} BucketTiming;

typedef struct ReducerTimes {
    double comm_ms;    /* summed over buckets */
    double exposed_ms; /* waited for after backward */
    const BucketTiming *buckets;
    int bucket_count;
} ReducerTimes;

/* Starts the communication thread. The caller frees, after the last reducer_wait. */
typedef struct Reducer Reducer;
Reducer *reducer_create(const ReducerConfig *config);
void reducer_free(Reducer *reducer);

/* A SlotContext's range_done: `count` elements from offset are final on this rank. Never blocks on the
 * network. */
void reducer_range_done(void *reducer, int64_t offset, int64_t count);

/* All that backward left: the rest of the buckets, late rows (sums (count, row_count) int64 for rows
 * `tokens`, rising), and the tail. Returns when everything is summed, in place, on every rank. */
typedef struct ReducerRest {
    const int32_t *tokens;
    const int64_t *sums;
    int count;
    int64_t *tail;
    int64_t tail_count;
} ReducerRest;
void reducer_wait(Reducer *reducer, const ReducerRest *rest, ReducerTimes *times);

#endif
