/* What carries the data of collectives: one const table each for MPI and TCP. */
#ifndef LLMC_COMM_TRANSPORT_H
#define LLMC_COMM_TRANSPORT_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/comm/comm.h"
#include "llmc/comm/launch.h"
#include "llmc/comm/star.h"

/* CHANNEL_MAIN belongs to the main thread, CHANNEL_BUCKET to the reducer's. */
typedef enum CommChannel { CHANNEL_MAIN, CHANNEL_BUCKET, CHANNEL_COUNT } CommChannel;

typedef enum CommOperation { COMM_SUM, COMM_MAX } CommOperation; /* COMM_MAX is for int64 only */

typedef struct AllReduce {
    void *values; /* in place */
    int64_t count;
    CommType type;
    CommOperation operation;
} AllReduce;

/* Who this process is. */
typedef struct Membership {
    int rank, rank_count, local_rank;
    char host[HOST_BYTES];
} Membership;

typedef struct Transport {
    int is_built; /* 0: this build left it out */
    /* Fills *me, and *star with the connections between rank 0 and the others, which the monitor then owns
     * (left empty when there is one rank). Gives up after timeout_ms. */
    int (*join)(Membership *me, Star *star, const Launch *launch, double timeout_ms, Error *error);
    /* Then, under the eyes of the monitor: makes what collectives need. -1 with *error. NULL: nothing is left
     * to do. */
    int (*connect)(const Membership *me, double timeout_ms, Error *error);
    /* After this no collective is called. */
    void (*leave)(void);
    /* Both: 0, or -1 when the connection to a peer broke. */
    int (*all_reduce)(const AllReduce *what, CommChannel channel);
    int (*broadcast)(void *data, int64_t bytes, int root); /* on CHANNEL_MAIN */
    /* Ends the job at once, when the monitor could not. May return. */
    void (*abort)(int exit_code);
    /* After a -1: to which rank; -1 if that is not known. NULL: it never is. */
    int (*broken_peer)(void);
} Transport;

extern const Transport transport_mpi, transport_tcp;

static inline size_t comm_type_bytes(CommType type)
{
    return type == COMM_INT64 ? 8 : type == COMM_FLOAT ? 4 : 2;
}

#endif
