/* The sockets under nccl.cpp: how ranks meet, and the ring of connections on which they sum. */
#ifndef HOST_CUDA_NCCL_RING_H
#define HOST_CUDA_NCCL_RING_H

#include <nccl.h>

struct NcclRing;

/* What neighbours tell each other of the all-reduce that they begin. */
struct NcclHeader {
    uint64_t number, count;
    int32_t type, rank; /* type is an ncclDataType_t */
};

/* Listen for the other ranks, and write into *id where. 0, or -1. */
int nccl_ring_invite(ncclUniqueId *id);

/* Meet the other ranks and connect to both neighbours; returns when all have come. NULL where some did not
 * come in time. The caller frees. */
NcclRing *nccl_ring_create(const ncclUniqueId *id, int rank, int rank_count);
void nccl_ring_free(NcclRing *ring);

/* Sums in place. 0, or -1 when the connection to a neighbour broke. A neighbour that brings something else
 * ends the program. */
int nccl_ring_all_reduce(NcclRing *ring, void *values, const NcclHeader *what);

/* Break the connections, from any thread: nccl_ring_all_reduce returns on both ends. */
void nccl_ring_break(NcclRing *ring);

/* Bytes of a type that can be summed, and its name; 0 for others. */
size_t nccl_type_bytes(int type);

#endif
