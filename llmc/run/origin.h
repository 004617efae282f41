/* Where a run begins (init_from): fresh weights, a snapshot, or weights from a file. The snapshot may be
 * another rank's: out_dir need not be the same folder on all machines (share.h).
 */
#ifndef LLMC_RUN_ORIGIN_H
#define LLMC_RUN_ORIGIN_H

#include "llmc/run/options.h"
#include "llmc/run/run_model.h"
#include "llmc/run/share.h"
#include "llmc/snapshot/import.h"
#include "llmc/snapshot/snapshot.h"

/* At most one of the two files is open; none for a run from scratch. Owned by the caller: origin_find,
 * origin_close. */
typedef struct Origin {
    const SnapshotInfo *info; /* the run goes on from that snapshot; NULL: a new run */
    Snapshot *snapshot;       /* it, where this rank has it */
    WeightsFile *weights;     /* a new run from these weights */
    int64_t step;             /* updates already made */
    double best_loss;
    int64_t bad_steps;

    SnapshotSearch found; /* what this rank found, before ranks compared */
    Error reason;         /* why it is nothing */
    Share share;
    SnapshotInfo sent; /* info's, where a rank has it not */
} Origin;

/* What this rank has to go on from. is_owner: no other run writes to out_dir. -1 with *error for a file that
 * cannot be read. */
int origin_find(Origin *origin, const Options *options, int is_owner, Error *error);

/* Collective: the ranks go on from the newest that one of them has. -1 with *error, at one of them, when
 * there is none and must be. */
int origin_settle(Origin *origin, const Options *options, Error *error);

/* Check it, and put the shape that it brings into options. -1 with *error naming the way out: another shape
 * than the options ask for, snapshots that a new run would overwrite. */
int origin_adopt(Origin *origin, Options *options, Error *error);

/* A new run is about to begin in out_dir: -1 with *error when it holds snapshots, damaged ones too. */
int origin_refuse_overwriting(const Options *options, Error *error);

/* The snapshot or the weights that it begins with, for messages; a path where it is weights. */
const char *origin_name(const Origin *origin, const Options *options);

/* Whether init_from is resume:PATH, which may go back behind what out_dir holds. */
int origin_goes_back(const Options *options);

/* Before the first update, for who owns out_dir: with init_from=resume:PATH, snapshots of later updates are
 * set aside. Returns how many; -1 with *error. */
int origin_clear_way(const Origin *origin, const Options *options, Error *error);
void origin_close(Origin *origin);

/* Collective: fill the model, with moments unless it is for inference only. */
int origin_load(Origin *origin, RunModel *model, uint64_t seed, int is_inference, Error *error);

/* What a user should know: where the run begins, and which options differ from the snapshot's. */
void origin_print(const Origin *origin, const Options *options, FILE *out);

#endif
