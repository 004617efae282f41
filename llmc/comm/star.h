/* The star: one connection between rank 0 and each other rank. It is how ranks that no MPI introduced find
 * each other, and the monitor's wires in every job.
 *
 * Each rank that connects says hello: which job, program, protocol and rank it is. Rank 0 bids it welcome;
 * when all are there, it answers each of them. Whoever is no rank of this job is refused or shown out, while
 * the others come in. All ranks have one byte order.
 *
 * A hello is trusted as far as the job is known. Where all ranks share a secret (MPI carries one, a
 * launcher's environment may, launch.h), a rank that does not fit ends all of them with the same line. Where
 * they have none, anybody could say such a hello: only the newcomer is refused, and the job waits for the
 * right one. The secret travels as it is: it keeps out strangers and other jobs, not one who reads the
 * network.
 */
#ifndef LLMC_COMM_STAR_H
#define LLMC_COMM_STAR_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/comm/door.h"
#include "llmc/comm/net.h"

enum { JOB_BYTES = 16 };

/* Owned by whoever holds it: star_init, star_release. */
typedef struct Star {
    int rank, rank_count;
    int *sockets;              /* (rank_count) at rank 0, by rank; elsewhere only [0] is open */
    char (*hosts)[HOST_BYTES]; /* (rank_count) likewise, known as far as there is a socket; [rank] too */
} Star;

/* What a rank needs to know to take part. */
typedef struct StarPlan {
    int rank, rank_count;
    uint8_t job[JOB_BYTES]; /* the same at all ranks of a job */
    int is_secret;          /* and at no others */
    int local_rank;         /* what the launcher told, or -1 */
    double deadline_ms;
    /* Where this rank waits for its neighbour; 0 if it does not. Rank 0 is told; the others may open a socket
     * once they know by which address they reach rank 0: open_ring gets that connection, and returns the port
     * or -1 with *error. NULL: none is needed. */
    int ring_port;
    int (*open_ring)(int connection, Error *error);
} StarPlan;

/* What rank 0 tells every rank. */
typedef struct StarAnswer {
    int local_rank;
    uint64_t token; /* drawn for this start: ranks know each other by it */
    int next_port;
    char next_address[HOST_BYTES]; /* of rank + 1; "" if that runs on rank 0's machine */
} StarAnswer;

void star_init(Star *star, int rank, int rank_count);
void star_release(Star *star); /* accepts a zeroed one */

/* The door at which rank 0 waits for hellos. Takes the listeners. */
void star_open_door(Door *door, const int *listeners, int listener_count);

/* Rank 0: waits at the door until every rank has come, then answers all. -1 with *error, which then has
 * been sent to those that came; it may pass if ranks were missing. */
int star_gather(Star *star, StarAnswer *mine, const StarPlan *plan, Door *door, Error *error);

/* The others: tries these addresses of rank 0 in turn until the deadline. -1 with *error, which may pass if
 * there was no rank 0, or it ended. */
int star_join(Star *star, StarAnswer *mine, const StarPlan *plan, char addresses[][ADDRESS_BYTES],
              int address_count, int port, Error *error);

#endif
