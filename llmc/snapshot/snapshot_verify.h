/* Opening a snapshot, with the reason why it could not be: what decides whether a file is set aside. */
#ifndef LLMC_SNAPSHOT_SNAPSHOT_VERIFY_H
#define LLMC_SNAPSHOT_SNAPSHOT_VERIFY_H

#include "llmc/snapshot/frames.h"
#include "llmc/snapshot/snapshot.h"

/* FRAMES_OK, FRAMES_UNREADABLE or FRAMES_DAMAGED. */
int snapshot_open_status(Snapshot **snapshot, const char *path, Error *error);

/* 0 when a model of shape `model` can take the state of a file of shape `file`: the same, but for a lower
 * block_size. Else -1 with *error naming the first field that differs. */
int model_shape_check_fits(const ModelShape *model, const ModelShape *file, Error *error);

#endif
