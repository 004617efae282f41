/* Which ranges of the gradient arena are summed together. Backward tells which range is final; neighbours
 * are joined and cut into buckets (the first of BUCKET_FIRST_BYTES, then of bucket_bytes: PyTorch's DDP),
 * from the top down, as backward goes. Every rank cuts alike, because every rank's backward finishes ranges
 * alike. Buckets are ranges of the arena, never copies.
 */
#ifndef LLMC_COMM_BUCKETS_H
#define LLMC_COMM_BUCKETS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BUCKET_FIRST_BYTES = 1 << 20 };

typedef struct Bucket {
    int64_t offset, count; /* elements of the arena */
} Bucket;

/* Owned by the caller, who sets the first four; buckets_begin sets the rest. */
typedef struct Buckets {
    int64_t element_bytes, bucket_bytes; /* as they go over the wire */
    void (*launch)(void *context, Bucket bucket);
    void *context;
    int64_t pending_offset, pending_count; /* final elements that are not yet in a bucket */
    int64_t covered_count;                 /* elements that are final */
    int count;                             /* buckets launched */
} Buckets;

/* How many a step can have at most, if no more than `gaps` ranges do not join. */
int buckets_most(int64_t arena_count, int64_t element_bytes, int64_t bucket_bytes, int gaps);

/* A new step. */
void buckets_begin(Buckets *buckets);

/* `count` elements from offset are final: launches the buckets that become full, strictly in order. */
void buckets_add(Buckets *buckets, int64_t offset, int64_t count);

/* The same for the step's last range, which goes uncut with what is pending: buckets that can all start at
 * one moment hide nothing, and each costs the latency of an all-reduce. */
void buckets_add_last(Buckets *buckets, int64_t offset, int64_t count);

/* Launches what is left, if anything. */
void buckets_finish(Buckets *buckets);

#ifdef __cplusplus
}
#endif
#endif
