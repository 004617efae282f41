/* Gradients summed over ranks while backward still runs.
 *
 * Backward tells which range of the arena is final; a reducer sums it bucket by bucket (buckets.h) beside
 * backward. There are two kinds: the host's has one communication thread that sums by the job's transport
 * (reducer.c); NCCL's has a stream of the GPU (nccl/nccl_reducer.cu). A device's backend says which is its.
 *
 * The host's, in exact mode, sums wte's dense part first, which overlaps all of backward; what the embedding
 * of the last slot adds to it (late rows: those of the tokens in one batch) is summed last, only for rows
 * that a rank has.
 */
#ifndef LLMC_COMM_REDUCER_H
#define LLMC_COMM_REDUCER_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/comm/buckets.h"
#include "llmc/comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ReducerConfig {
    void *elements; /* the arena: int64 (COMM_INT64), or fp32 (COMM_FLOAT, COMM_BF16 on the wire) */
    int64_t count;
    CommType type;
    int64_t bucket_bytes; /* as they go over the wire */
    int64_t *tail;        /* (tail_count) what is summed with the last bucket */
    int64_t tail_count;
    int64_t row_offset;  /* wte in the arena: where late rows belong */
    int rows, row_count; /* V rows of C elements */
    int overlaps;        /* 0: buckets wait for the end of backward (to measure what overlap gains) */
    void *queue;         /* NULL, or the device's queue of work that makes the gradients: a CudaQueue */
} ReducerConfig;

/* One summed bucket, for the trace and the log. Times are clock_ms(). */
typedef struct BucketTiming {
    const char *what; /* "bucket 3", "late rows", "tail" */
    double begin_ms, end_ms;
    int64_t bytes;
} BucketTiming;

typedef struct ReducerTimes {
    double wait_begin_ms; /* backward was done, */
    double wait_end_ms;   /* and everything summed */
    const BucketTiming *buckets;
    int bucket_count;
} ReducerTimes;

/* Rows that backward left aside: sums (count, row_count) int64 for rows `tokens`, rising. */
typedef struct ReducerRest {
    const int32_t *tokens;
    const int64_t *sums;
    int count;
} ReducerRest;

typedef struct Reducer Reducer;

typedef struct ReducerKind {
    /* Collective. NULL with *error. The caller frees, after the last wait. */
    Reducer *(*create)(const ReducerConfig *config, Error *error);
    void (*free)(Reducer *reducer); /* accepts NULL */

    /* What carries the sums, with its version: "NCCL 2.27.3". */
    const char *(*name)(const Reducer *reducer);

    /* `count` elements from offset are final on this rank, as soon as the device has done what is in its
     * queue. Never blocks on the network. */
    void (*range_done)(Reducer *reducer, int64_t offset, int64_t count);

    /* All that backward left. From here on the arena and the tail hold the sums of all ranks: on the host at
     * once, on a device for whatever is put into its queue. */
    void (*wait)(Reducer *reducer, const ReducerRest *rest);

    /* Of the last step; on a device once its update is over. */
    void (*read_times)(Reducer *reducer, ReducerTimes *times);
} ReducerKind;

extern const ReducerKind host_reducer;

#ifdef __cplusplus
}
#endif
#endif
