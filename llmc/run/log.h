/* What a run tells: console lines for people, out_dir/log.jsonl for programs. Every event appears in both,
 * from the same numbers. Ranks other than 0 open no log, and all calls are silent there.
 *
 * Neither ends a run. Events that cannot be written (a full disk) wait in memory and follow, in order and
 * whole, once there is room; what no longer fits there is left out, and counted. A log.jsonl that somebody
 * removes or replaces is made anew. Both are said on stderr.
 */
#ifndef LLMC_RUN_LOG_H
#define LLMC_RUN_LOG_H

#include <stdint.h>
#include <stdio.h>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/run/options.h"
#include "llmc/run/step_times.h"
#include "llmc/run/tensorboard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Owned by the caller: log_init (or all zero for a silent one), log_release. */
typedef struct Log {
    FILE *console; /* NULL: silent */
    FILE *file;    /* one event of log.jsonl, in memory; NULL: console only */
    char *event;   /* its text */
    size_t event_bytes;
    int descriptor; /* of log.jsonl */
    char path[PATH_BYTES_MAX];
    char *waiting; /* (LOG_WAITING_BYTES) events that are not written yet */
    size_t waiting_bytes;
    int is_half;      /* the first of them is written in part */
    int64_t left_out; /* events that did not fit */
    int is_failed;    /* the last attempt failed, which was said */
    TensorBoard board;
} Log;

enum { LOG_WAITING_BYTES = 1 << 20 };

/* Append to out_dir/log.jsonl, making out_dir; out_dir NULL: console only. -1 with *error. */
int log_init(Log *log, const char *out_dir, Error *error);
void log_release(Log *log);

/* Write the curves of steps and evaluations for TensorBoard too. The run goes on from `first_step` updates;
 * what log.jsonl says of their evaluation is told again. */
void log_open_tensorboard(Log *log, const char *out_dir, int64_t first_step);

typedef struct LogStart {
    const char *version;
    const char *backend; /* its name: "cpu x86-64-v4-amx" .. */
    const char *kernel;  /* what multiplies matrices, or NULL: left to the device's library */
    int ranks;
    int64_t parameters;
    uint64_t data_fingerprint;
    const Options *options;
} LogStart;

typedef struct LogStep {
    int64_t iter;
    double loss, learning_rate, norm;
    double ms;
    double epoch; /* epochs of the training data, this update included; 0: not told */
    StepTimes times;
    Slowest slowest;          /* of all ranks, in the update before */
    const char *slowest_host; /* its machine; "" or NULL: there is none */
    double tokens_per_second;
    double mfu;     /* 0 to 1; 0 where the peak is unknown */
    double left_ms; /* until the end of the run; negative while unknown */
} LogStep;

void log_start(Log *log, const LogStart *start);
void log_reducer(Log *log, int64_t iter, const char *name);
/* What a user should know of update `iter` and those after it. Ranks without a log print it, with their
 * number. */
void log_notice(Log *log, int64_t iter, int rank, const char *text);

/* How products are computed from update `iter` on (model/plans.h): as a snapshot has it, or just timed. */
void log_plans(Log *log, int64_t iter, const char *text, int is_repeated);
void log_step(Log *log, const LogStep *step);
void log_skip(Log *log, int64_t iter, const char *reason);
void log_eval(Log *log, int64_t iter, double train_loss, double val_loss, double left_ms);
/* The same where nothing else is done, with the perplexity of val; has_train 0: there is no train_loss. */
void log_eval_only(Log *log, int64_t iter, int has_train, double train_loss, double val_loss);
/* loss: of the right endings. */
void log_hellaswag(Log *log, int64_t iter, int64_t correct, int64_t items, double loss);
/* file: name in out_dir. stall_ms: training waited so long. */
void log_snapshot(Log *log, int64_t iter, const char *file, uint64_t bytes, double stall_ms, double write_ms);
/* A snapshot that could not be written; reason as on stderr. No console line. */
void log_snapshot_failed(Log *log, int64_t iter, const char *file, const char *reason);
/* A snapshot that was begun and not kept. */
void log_dropped(Log *log, int64_t iter, const char *file, const char *reason);
/* Always the last line. */
void log_end(Log *log, int64_t iter, uint64_t weights_hash, const char *reason);

/* ---- what the end of out_dir/log.jsonl holds (log_find.c) ---- */

/* Whether it holds this event ("eval" or "hellaswag") after `iter` updates: a run that was stopped while it
 * evaluated does it again, one that was stopped later does not. */
int log_has_event(const char *out_dir, const char *event, int64_t iter);
/* The same, with the numbers of that event: NAN where they were not finite or not given. */
int log_find_eval(double *train_loss, double *val_loss, const char *out_dir, int64_t iter);
int log_find_hellaswag(double *accuracy, const char *out_dir, int64_t iter);

/* "45s", "3m 20s", "2h 03m", "5d 03h" into a buffer of 32 bytes, which it returns. */
char *format_duration(char *buffer, double ms);

#ifdef __cplusplus
}
#endif
#endif
