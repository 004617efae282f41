/* The training loop, the same for every device. */
#ifndef LLMC_RUN_TRAIN_H
#define LLMC_RUN_TRAIN_H

#include "llmc/run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make the updates that are left, and what is due between them. 0 and why it ended: END_FAILED when data
 * could not be read, with *error at the ranks that could not and an empty one at the others; all ranks end
 * alike. The state after the last whole update is saved, unless snapshots are switched off and no signal
 * came; after END_FAILED run_finish does. -1 with *error when there is nothing to save: no room, or ranks
 * that differ. */
int train(EndReason *reason, Run *run, Error *error);

#ifdef __cplusplus
}
#endif
#endif
