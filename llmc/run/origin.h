/* Where a run begins (init_from): fresh weights, the newest snapshot of out_dir, or weights from a file. */
#ifndef LLMC_RUN_ORIGIN_H
#define LLMC_RUN_ORIGIN_H

#include "llmc/run/options.h"
#include "llmc/run/run_model.h"
#include "llmc/snapshot/import.h"
#include "llmc/snapshot/snapshot.h"

/* At most one of the two files is open; none for a run from scratch. Owned by the caller: origin_open,
 * origin_close. */
typedef struct Origin {
    Snapshot *snapshot;   /* the run goes on from here */
    WeightsFile *weights; /* a new run from these weights */
    int64_t step;         /* updates already made */
    double best_loss;
    int64_t bad_steps;
} Origin;

/* Find and check it, and put the shape that it brings into options. is_owner: no other run writes to
 * out_dir. -1 with *error naming the way out: nothing to resume, another shape than the options ask for,
 * snapshots that a new run would overwrite. */
int origin_open(Origin *origin, Options *options, int is_owner, Error *error);

/* A new run is about to begin in out_dir: -1 with *error when it holds snapshots, damaged ones too. */
int origin_refuse_overwriting(const Options *options, Error *error);
void origin_close(Origin *origin);

/* Fill the model, with moments unless it is for inference only. */
int origin_load(Origin *origin, RunModel *model, uint64_t seed, int is_inference, Error *error);

/* What a user should know: where the run begins, and which options differ from the snapshot's. */
void origin_print(const Origin *origin, const Options *options, FILE *out);

#endif
