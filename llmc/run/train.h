/* The training loop, the same for every device. */
#ifndef LLMC_RUN_TRAIN_H
#define LLMC_RUN_TRAIN_H

#include "llmc/run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make the updates that are left, and what is due between them. -1 with *error when data are bad; else 0 and
 * why it ended. The state after the last whole update is saved, whatever the reason, unless snapshots are
 * switched off and no signal came. */
int train(EndReason *reason, Run *run, Error *error);

#ifdef __cplusplus
}
#endif
#endif
