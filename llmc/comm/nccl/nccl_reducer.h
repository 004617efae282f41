/* The reducer of GPUs: each bucket is summed by NCCL on a stream of its own, beside backward.
 *
 * Nothing of it waits on the host. The compute stream records an event when a range is final; the
 * communication stream waits for it, sums the bucket in place in the arena, and the compute stream waits for
 * the last bucket, with which the tail is summed too. All of it can be captured into a graph.
 *
 * Little kernels around each bucket count in pinned memory what has begun and ended; from that and from
 * NCCL's own errors a watchdog (watchdog.h) tells the monitor which bucket this rank is in.
 */
#ifndef LLMC_COMM_NCCL_NCCL_REDUCER_H
#define LLMC_COMM_NCCL_NCCL_REDUCER_H

#include "llmc/comm/reducer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Its config has the CudaQueue in which the gradients are made. Ranks with different versions of NCCL are
 * refused. */
extern const ReducerKind nccl_reducer;

/* NCCL's version in the header that this program was built with, 22703 for 2.27.3; 0 where it was built
 * without. */
extern const int nccl_header_version;

/* "2.27.3" for 22703. Returns `text`. */
enum { NCCL_VERSION_BYTES = 32 };
const char *nccl_name_version(char text[NCCL_VERSION_BYTES], int version);

#ifdef __cplusplus
}
#endif
#endif
