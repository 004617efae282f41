/* How much this process has got done: one counter, raised by whatever makes progress on its own (a layer, a
 * block of a file, a piece that came over the network). Ranks that wait for this one read it from its
 * heartbeats: a rank that works is slow, not lost, however long the others wait (comm/watch.h).
 *
 * A loop raises it only if it ends: what may spin for ever must not.
 */
#ifndef LLMC_BASE_WORK_H
#define LLMC_BASE_WORK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A part is done. On any thread. One atomic addition: for some parts a second, not for each element. */
void work_add(void);

uint64_t work_count(void);

#ifdef __cplusplus
}
#endif
#endif
