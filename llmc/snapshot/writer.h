/* Snapshots that do not stop training: a thread copies the state while the next step's forward and backward
 * run, which change none of it, then compresses and writes the copy. Only the next update waits, and only for
 * the copy. One snapshot is in flight; a new one waits for the last to be durable.
 *
 *     start            copied                       start
 *     |                |                            |
 *     [copy][split, compress, write, fsync, prune]  [copy] ...
 *     training: slot slot | update  slot slot update ...
 */
#ifndef LLMC_SNAPSHOT_WRITER_H
#define LLMC_SNAPSHOT_WRITER_H

#include "llmc/snapshot/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SnapshotWriterConfig {
    const char *out_dir; /* borrowed, as are the table and what the source reads from */
    const ParamTable *table;
    StateSource source; /* called on the writer's thread, only until `copied` */
    int keep;           /* snapshot_prune's */
    int64_t milestone_interval;
    int threads; /* for compression */
} SnapshotWriterConfig;

/* What became of one snapshot. */
typedef struct SnapshotResult {
    int64_t step;
    int has_failed; /* error says why; training is not touched */
    Error error;
    uint64_t bytes;
    double stall_ms; /* training waited, for the copy and for the snapshot before */
    double write_ms; /* from start to durable */
} SnapshotResult;

/* Starts the thread; memory for the copy comes with the first snapshot. The caller frees, after `wait`. */
typedef struct SnapshotWriter SnapshotWriter;
SnapshotWriter *snapshot_writer_create(const SnapshotWriterConfig *config);
void snapshot_writer_free(SnapshotWriter *writer);

/* Begin a snapshot; info is copied, its options too. None may be in flight, and the result of the one before
 * must have been taken: snapshot_writer_wait, then snapshot_writer_poll. */
void snapshot_writer_start(SnapshotWriter *writer, const SnapshotInfo *info);

/* Before anything changes the state: wait until it is copied. Cheap when nothing is in flight. */
void snapshot_writer_copied(SnapshotWriter *writer);

/* Wait until nothing is in flight. */
void snapshot_writer_wait(SnapshotWriter *writer);

/* 1 with *result, once for each snapshot that has ended; else 0. */
int snapshot_writer_poll(SnapshotWriter *writer, SnapshotResult *result);

#ifdef __cplusplus
}
#endif
#endif
