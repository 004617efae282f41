/* Which of this process's TCP connections sends without an answer, whoever opened it: our rings, MPI or NCCL.
 * The system sends such bytes again and again, and after some minutes closes the connection; until then
 * nothing but its counters tells that the network between two machines is cut.
 */
#ifndef LLMC_COMM_UNANSWERED_H
#define LLMC_COMM_UNANSWERED_H

#include "llmc/comm/net.h"

typedef struct Unanswered {
    int descriptor;
    char address[HOST_BYTES]; /* the other end's, in numbers; "" if it is on this machine */
} Unanswered;

/* Looks at every open descriptor. 1 with the connection that the system has tried most often; 0 if all are
 * answered. A peer that answers and takes nothing, because it is slow, is none of them. */
int unanswered_find(Unanswered *found);

#endif
