/* Collectives over a ring, in which each rank sends to the next and receives from the one before.
 *
 * An all-reduce cuts the values into one segment a rank. In the first N-1 steps each segment goes once around
 * and collects its sum; in the next N-1 the sums go around. Each rank sends 2*(N-1)/N of the bytes, the least
 * that any all-reduce can do. Segment i is summed in the order of ranks i, i+1, ..: so every rank gets the
 * same bits, and the same bits again in the next run of as many ranks. bf16 values are added in fp32 and
 * rounded at each step.
 */
#ifndef LLMC_COMM_RING_H
#define LLMC_COMM_RING_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/comm/transport.h"

/* One exchange moves at most this much each way. */
enum { RING_CHUNK_BYTES = 512 << 10 };

/* Owned by the caller: ring_init, ring_release. */
typedef struct Ring {
    int rank, rank_count;
    /* Sends to the next rank and receives from the one before, both at once; either count may be 0, but what
     * one rank sends its neighbour receives in one call. 0, or -1 when a connection broke. */
    int (*exchange)(void *context, const void *send, size_t send_bytes, void *receive, size_t receive_bytes);
    void *context;
    void *arrived; /* (RING_CHUNK_BYTES) */
} Ring;

void ring_init(Ring *ring, int rank, int rank_count);
void ring_release(Ring *ring);

/* Both: 0, or -1 when an exchange failed. */
int ring_all_reduce(Ring *ring, const AllReduce *what);
int ring_broadcast(Ring *ring, void *data, int64_t bytes, int root);

#endif
