/* One run: everything that is opened before it starts, and what it does besides training. Read train_gpt2.c
 * first, then this, then train.c.
 */
#ifndef LLMC_RUN_RUN_H
#define LLMC_RUN_RUN_H

#include <stdint.h>

#include "llmc/base/folder_lock.h"
#include "llmc/base/version.h"
#include "llmc/data/dataset.h"
#include "llmc/run/hellaswag_file.h"
#include "llmc/run/log.h"
#include "llmc/run/options.h"
#include "llmc/run/prompt.h"
#include "llmc/run/run_model.h"
#include "llmc/run/vocabulary.h"
#include "llmc/snapshot/writer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why a run ended, as log.jsonl names it. */
typedef enum EndReason { END_DONE, END_SIGNAL, END_BAD_STEPS, END_FAILED } EndReason;

/* Where the plans in use come from. */
typedef enum PlansOrigin { PLANS_NONE, PLANS_TIMED, PLANS_REPEATED } PlansOrigin;

/* Owned by the caller: run_open, run_close. */
typedef struct Run {
    Options options; /* model options are those of the model, wherever it came from */
    int rank, rank_count;
    RunModel model;
    DataSet *train_set;     /* NULL where no data are needed: sampling, or all updates made */
    DataSet *val_set;       /* NULL where nothing is evaluated */
    HellaSwagSet hellaswag; /* without items where it is not asked for */
    uint64_t data_fingerprint;
    Vocabulary vocabulary;
    Log log;
    Prompt prompt; /* rank 0, where samples are asked for */
    char *plans;   /* how products are computed (model/plans.h), for snapshots: those in use, else what the
                    snapshot had, for the device they are for; NULL for none */
    PlansOrigin plans_origin;
    uint64_t plans_notice; /* hash of the last notice about them that was told, 0 for none */
    int is_training;       /* updates are left to make */

    int64_t step;           /* updates made: the next one is update `step` */
    int64_t first_step;     /* updates made before this process */
    double best_loss;       /* lowest validation loss so far, INFINITY before the first */
    double val_loss;        /* of the last evaluation, NAN where it was not finite .. */
    int64_t evaluated_step; /* .. after so many updates, -1 before the first */
    int64_t bad_steps;      /* skipped in a row just before */
    int is_out_of_range;    /* the last of them: all was finite, but beyond what exact sums hold */
    int is_writer;          /* this rank writes snapshots: rank 0, or one of each machine (snapshot_on) */
    SnapshotWriter *writer; /* of a rank that does */
    int64_t begun_step;     /* of the snapshot last begun, -1 for none */
    int64_t saved_step;     /* of the newest durable snapshot, -1 for none */
    int failed_snapshots;

    FolderLock lock;         /* of out_dir, held by who writes there in a run that trains */
    size_t snapshot_bytes;   /* of memory, held for snapshots */
    int64_t changed_step;    /* made when the last update was that was not skipped */
    int is_unjudged;         /* the snapshot last begun is not known to be worth keeping */
    int is_save_owed;        /* the last one was not: the next step makes another */
    const char *drop_reason; /* of the one in flight, or NULL */
    int has_dropped;         /* a snapshot was thrown away, the last of them after .. */
    int64_t dropped_step;    /* .. so many updates */
} Run;

/* Open data, out_dir and model as the options say, and print what the run is. Nothing is written to out_dir
 * before everything that can be checked has been. Ranks have agreed on the options. -1 with *error. */
int run_open(Run *run, const Options *options, const Backend *backend, Error *error);
void run_close(Run *run);

/* out_dir.c. Both collective; -1 with *error. Find where the run goes on from. */
struct Origin;
int run_open_origin(struct Origin *origin, Run *run, Error *error);
/* Lock the folders of the ranks that write; one whose folder is another rank's does not write. */
int run_own_out_dir(Run *run, const struct Origin *origin, Error *error);

/* plans.c. Create the model. It repeats the recorded plans (NULL for none) where they fit; else, with
 * autotune, it times products: on rank 0, whose choice goes to all ranks. -1 with *error. */
int run_create_model(Run *run, const Backend *backend, const ModelConfig *standard, const char *recorded,
                     Error *error);
/* What a user should know of them, before the run begins. */
void run_print_plans(Run *run, FILE *out);
/* The same after update `iter`, or after evaluation and samples, on the console and in the log, if it is new:
 * a device may have had to choose otherwise. */
void run_log_plans_notice(Run *run, int64_t iter);

/* evaluation.c. Evaluate now and tell: what the run has of both splits, and HellaSwag; parts are those of
 * EvaluationPart. -1 on all ranks when data cannot be read, with *error at those that could not and an empty
 * one at the others; 0 also when a signal cut it short. */
typedef enum EvaluationPart { EVALUATE_SPLITS = 1, EVALUATE_HELLASWAG = 2, EVALUATE_ALL = 3 } EvaluationPart;
int run_evaluate(Run *run, int parts, double left_ms, Error *error);
/* Collective: the parts that were due after the updates made and are not in the log. */
int run_evaluation_owed(const Run *run);
/* Read HellaSwag, if it is asked for. -1 with *error. */
int run_open_hellaswag(Run *run, Error *error);
void run_print_hellaswag(const Run *run, FILE *out);

/* save.c. Take the memory that snapshots need, so that a run which has too little for them learns it now.
 * Collective. -1 with *error. */
int run_save_open(Run *run, Error *error);
/* Begin a snapshot of the state after `step` updates, on ranks that write: training goes on while it is
 * written. A failure is said and counted; the run goes on. */
void run_save(Run *run);
/* Update `iter` was made, or skipped: that tells what a snapshot of the state before it is worth. One that
 * led to a skipped update is thrown away, and the next step makes another. */
void run_save_judge(Run *run, int64_t iter, int is_skipped);
/* Before an update changes the state: wait until it is copied. */
void run_save_copied(Run *run);
/* Tell of a snapshot that has ended since. */
void run_save_poll(Run *run);
/* Wait until no snapshot is in flight, and tell. One that no update has judged is of the present state: a
 * forward pass does, and what gives no finite loss is thrown away. */
void run_save_finish(Run *run);

/* "WHAT is finite, but beyond 25.6 (1024 / gradient_accumulation_steps), the most that exact sums hold" */
void run_name_range(char *text, size_t text_bytes, const Run *run, const char *what);

/* Export if asked for, on rank 0. -1 with *error. */
int run_export(Run *run, Error *error);

/* Sample if asked for, on rank 0. -1 with *error, when samples are all that is asked for and cannot be
 * printed. */
int run_sample(Run *run, Error *error);

/* finish.c. What is due at the end: the last line, the hash of weights; after END_FAILED, for which *error
 * is that of train, a snapshot of what was made since the last one. Returns the exit code, with *error set or
 * empty. Ranks that have not failed themselves do not return from END_FAILED. */
int run_finish(Run *run, EndReason reason, Error *error);

#ifdef __cplusplus
}
#endif
#endif
