/* Snapshots that do not stop training: a thread copies the state while the next step's forward and backward
 * run, which change none of it, then compresses and writes the copy. Only the next update waits, and only for
 * the copy. One snapshot is in flight; a new one waits for the last to be durable.
 *
 *     start            copied                               start
 *     |                |                                    |
 *     [copy][split, compress, write, fsync][rename, prune]  [copy] ...
 *     training: slot slot | update  slot slot update ...
 *
 * Where there is no memory for a copy the live state is written, and the next update waits for all of it.
 *
 * A snapshot is worth keeping only if training can go on from it, which the update after it shows: it stays
 * under its temporary name until `judge`. So a run whose weights went bad keeps the good snapshots.
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
    int threads;      /* for compression */
    int is_direct;    /* no copy is made: `copied` waits until the state is written */
    int awaits_judge; /* each snapshot is judged; else all are good */
} SnapshotWriterConfig;

typedef enum SnapshotVerdict {
    SNAPSHOT_UNJUDGED,
    SNAPSHOT_GOOD,     /* training went on from it */
    SNAPSHOT_DOUBTFUL, /* it may: it is kept, and nothing is deleted for it */
    SNAPSHOT_BAD       /* it is thrown away */
} SnapshotVerdict;

/* What became of one snapshot. */
typedef struct SnapshotResult {
    int64_t step;
    int has_failed; /* error says why; training is not touched */
    int is_dropped; /* it was bad, or not finite, which error says; nothing is left of it */
    Error error;
    uint64_t bytes;
    double stall_ms; /* training waited, for the copy and for the snapshot before */
    double write_ms; /* from start to durable */
} SnapshotResult;

/* Takes all memory that writing needs, the copy's too, and starts the thread, which first touches that
 * memory. Where a copy does not fit the writer is direct. NULL with *error when there is no memory even so.
 * The caller frees, after `wait`. */
typedef struct SnapshotWriter SnapshotWriter;
SnapshotWriter *snapshot_writer_create(const SnapshotWriterConfig *config, Error *error);
/* What is in flight and not judged is thrown away. */
void snapshot_writer_free(SnapshotWriter *writer);
int snapshot_writer_is_direct(const SnapshotWriter *writer);

/* What a writer of such a config takes of memory, about. */
size_t snapshot_writer_bytes(const SnapshotWriterConfig *config);

/* Begin a snapshot; info is copied, its options too. None may be in flight, and the result of the one before
 * must have been taken: snapshot_writer_wait, then snapshot_writer_poll. */
void snapshot_writer_start(SnapshotWriter *writer, const SnapshotInfo *info);

/* Before anything changes the state: wait until it is copied. Cheap when nothing is in flight. */
void snapshot_writer_copied(SnapshotWriter *writer);

/* Say of the snapshot in flight, once, what it is worth; not before `copied` in the case of a direct writer,
 * if it is the update after it that says so. */
void snapshot_writer_judge(SnapshotWriter *writer, SnapshotVerdict verdict);

/* Wait until nothing is in flight; what is must have been judged. */
void snapshot_writer_wait(SnapshotWriter *writer);

/* 1 with *result, once for each snapshot that has ended; else 0. */
int snapshot_writer_poll(SnapshotWriter *writer, SnapshotResult *result);

#ifdef __cplusplus
}
#endif
#endif
