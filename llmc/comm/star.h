/* The star: one connection between rank 0 and each other rank. It is how ranks that no MPI introduced find
 * each other, and the monitor's wires in every job.
 *
 * Each rank that connects says hello: which program, protocol, job and rank it is. When all are there, rank 0
 * answers each of them; if two do not fit together it answers with the error instead, so that all end with
 * the same line. Connections of strangers are closed. All ranks have one byte order.
 */
#ifndef LLMC_COMM_STAR_H
#define LLMC_COMM_STAR_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/comm/net.h"

/* Owned by whoever holds it: star_init, star_release. */
typedef struct Star {
    int rank, rank_count;
    int *sockets;              /* (rank_count) at rank 0, by rank; elsewhere only [0] is open */
    char (*hosts)[HOST_BYTES]; /* (rank_count) likewise, known as far as there is a socket; [rank] too */
} Star;

/* What a rank needs to know to take part. */
typedef struct StarPlan {
    int rank, rank_count;
    uint64_t token; /* the job's; 0 where the ranks have had no way to agree on one */
    int ring_port;  /* where this rank listens for its neighbour; 0 if it does not */
    int local_rank; /* what the launcher told, or -1 */
    double deadline_ms;
} StarPlan;

/* What rank 0 tells every rank. */
typedef struct StarAnswer {
    int local_rank;
    uint64_t token;
    int next_port;
    char next_address[HOST_BYTES]; /* of rank + 1; "" if that runs on rank 0's machine */
} StarAnswer;

void star_init(Star *star, int rank, int rank_count);
void star_release(Star *star); /* accepts a zeroed one */

/* Rank 0: waits at the listener until every rank has come, then answers all. -1 with *error, which then has
 * been sent to those that came. */
int star_gather(Star *star, StarAnswer *mine, const StarPlan *plan, int listener, Error *error);

/* The others: tries these addresses of rank 0 in turn until the deadline. -1 with *error. */
int star_join(Star *star, StarAnswer *mine, const StarPlan *plan, char addresses[][ADDRESS_BYTES],
              int address_count, int port, Error *error);

#endif
