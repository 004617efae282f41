/* One run: everything that is opened before it starts, and what it does besides training. Read train_gpt2.c
 * first, then this, then train.c.
 */
#ifndef LLMC_RUN_RUN_H
#define LLMC_RUN_RUN_H

#include <stdint.h>

#include "llmc/data/dataset.h"
#include "llmc/run/log.h"
#include "llmc/run/options.h"
#include "llmc/run/run_model.h"
#include "llmc/snapshot/writer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PROGRAM_VERSION "0.1.0"

/* Why a run ended, as log.jsonl names it. */
typedef enum EndReason { END_DONE, END_SIGNAL, END_BAD_STEPS } EndReason;

/* Where the plans in use come from. */
typedef enum PlansOrigin { PLANS_NONE, PLANS_TIMED, PLANS_REPEATED } PlansOrigin;

/* Owned by the caller: run_open, run_close. */
typedef struct Run {
    Options options; /* model options are those of the model, wherever it came from */
    int rank, rank_count;
    RunModel model;
    DataSet *train_set; /* NULL where no data are needed: sampling, or all updates made */
    DataSet *val_set;   /* NULL where nothing is evaluated */
    uint64_t data_fingerprint;
    Log log;
    char *plans; /* how products are computed (model/plans.h), for snapshots: those in use, else what the
                    snapshot had, for the device they are for; NULL for none */
    PlansOrigin plans_origin;
    uint64_t plans_notice; /* hash of the last notice about them that was told, 0 for none */
    int is_training;       /* updates are left to make */

    int64_t step;           /* updates made: the next one is update `step` */
    double best_loss;       /* lowest validation loss so far, INFINITY before the first */
    int64_t bad_steps;      /* skipped in a row just before */
    SnapshotWriter *writer; /* made by the first snapshot, on rank 0 */
    int64_t begun_step;     /* of the snapshot last begun, -1 for none */
    int64_t saved_step;     /* of the newest durable snapshot, -1 for none */
    int failed_snapshots;
} Run;

/* Open data, out_dir and model as the options say, and print what the run is. Nothing is written to out_dir
 * before everything that can be checked has been. Ranks have agreed on the options. -1 with *error. */
int run_open(Run *run, const Options *options, const Backend *backend, Error *error);
void run_close(Run *run);

/* plans.c. Create the model. It repeats the recorded plans (NULL for none) where they fit; else, with
 * autotune, it times products: on rank 0, whose choice goes to all ranks. -1 with *error. */
int run_create_model(Run *run, const Backend *backend, const ModelConfig *standard, const char *recorded,
                     Error *error);
/* What a user should know of them, before the run begins. */
void run_print_plans(Run *run, FILE *out);
/* The same after update `iter`, in the log, if it is new: a device may have had to choose otherwise. */
void run_log_plans_notice(Run *run, int64_t iter);

/* Evaluate both splits now and tell. -1 with *error (bad data); 0 also when a signal cut it short. */
int run_evaluate(Run *run, double left_ms, Error *error);

/* save.c. Begin a snapshot of the state after `step` updates, on rank 0: training goes on while it is
 * written. A failure is said and counted; the run goes on. */
void run_save(Run *run);
/* Before an update changes the state: wait until it is copied. */
void run_save_copied(Run *run);
/* Tell of a snapshot that has ended since. */
void run_save_poll(Run *run);
/* Wait until no snapshot is in flight, and tell. */
void run_save_finish(Run *run);

/* Sample if asked for, on rank 0. -1 with *error. */
int run_sample(Run *run, Error *error);

/* What is due at the end: exports, the last line, the hash of the weights. Returns the exit code,
 * with *error set or empty. */
int run_finish(Run *run, EndReason reason, Error *error);

#ifdef __cplusplus
}
#endif
#endif
