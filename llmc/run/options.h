/* Options: one table drives parsing, config files, --help, the printed summary and the JSON in logs and
 * snapshots. nanoGPT's names, meanings and defaults where they exist.
 *
 *   ./train_gpt2 [config file] [--name=value | --name value | --flag ...]        later wins
 *
 * config_file.h has what a config file may hold, nanogpt.h what is taken of nanoGPT's beyond the table.
 */
#ifndef LLMC_RUN_OPTIONS_H
#define LLMC_RUN_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "llmc/base/error.h"
#include "llmc/model/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OPTION_TEXT_BYTES = 4096, OPTIONS_MAX = 96, CONFIG_BYTES_MAX = 1 << 20 };

typedef enum SnapshotOn { SNAPSHOT_ON_FIRST, SNAPSHOT_ON_EVERY_NODE } SnapshotOn;
/* Places in the choices of lr_schedule, dtype, residual and reduce. The latter three stand as DType and
 * ReduceMode do. */
typedef enum LrSchedule { LR_COSINE, LR_LINEAR, LR_CONSTANT, LR_WSD } LrSchedule;

/* nanoGPT's decay_lr, which becomes lr_schedule and warmup_iters. */
typedef enum DecayLr { DECAY_LR_NOT_GIVEN, DECAY_LR_FALSE, DECAY_LR_TRUE } DecayLr;

typedef char OptionText[OPTION_TEXT_BYTES];

/* Every field is described by the row of the same name in options.c. Integers are int64_t, numbers double,
 * bools and choices int. Plain data: copy it freely. */
typedef struct Options {
    OptionText out_dir, init_from;
    int eval_only, sample_only, tensorboard, status_line;
    double max_epochs;
    int64_t max_iters, eval_interval, eval_iters, log_interval;
    int64_t snapshot_interval, keep_snapshots, milestone_interval, seed;
    int snapshot_on;

    OptionText dataset, train_data, val_data, hellaswag;
    int shuffle;

    int64_t batch_size, block_size, gradient_accumulation_steps;

    int64_t n_layer, n_head, n_embd, vocab_size;
    double dropout;

    double learning_rate;
    int lr_schedule;
    int64_t warmup_iters, lr_decay_iters;
    double min_lr, weight_decay, beta1, beta2, grad_clip;

    int dtype, residual, reduce;
    double bucket_cap_mb;
    int64_t threads, check_interval, max_bad_steps, trace;
    int64_t comm_timeout, heartbeat_timeout, join_timeout;
    OptionText port_range;
    int overlap, autotune;
    int cuda_graph;
    int share_gpus;

    OptionText start;
    int64_t num_samples, max_new_tokens;
    double temperature;
    int64_t top_k;

    OptionText export_hf, export_llmc;

    int is_help, is_version;     /* --help, --version were asked for */
    char help_form[32];          /* of --help=SECTION; "" for all */
    int asked_row;               /* --print=NAME was: 1 + the option's row; 0: it was not */
    int decay_lr;                /* DecayLr */
    int64_t unused_warmup_iters; /* what warmup_iters was before decay_lr=False took it away */
    char without_meaning[512];   /* names of nanoGPT's that were given and mean nothing here: "a, b" */
    unsigned char is_given[OPTIONS_MAX]; /* by row: set by a config file or the command line */
} Options;

/* What is wrong with a command line: one error, or all those of a config file. */
enum { OPTION_ERRORS_MAX = 50 };
typedef struct OptionErrors {
    int count; /* also of those beyond OPTION_ERRORS_MAX, which are not kept */
    Error items[OPTION_ERRORS_MAX];
} OptionErrors;

void option_errors_add(OptionErrors *errors, const Error *error);
/* One line on stderr for each, and the end of the program. */
void option_errors_exit(const OptionErrors *errors) __attribute__((noreturn));

void options_set_defaults(Options *options);

/* Set one option. -1 with *error naming the option, the
 * value and what was expected; options are then as before. */
int options_set(Options *options, const char *name, const char *value, Error *error);

/* Defaults, then arguments 1 .. argc-1 in their order, then what must hold between options. -1 with at
 * least one error; options then also hold what was good after it.
 *
 * An argument that does not begin with `-` is a config file. `--name value` is `--name=value`: the next
 * argument is the value, whatever it is, unless it begins with `--`. An option that is true or false may
 * stand alone: `--name` is `--name=true`, and the next argument is its value only if it is one of true,
 * false, True, False, 1, 0. */
int options_parse(Options *options, int argc, char **argv, OptionErrors *errors);

/* What must hold between options. -1 with *error. */
int options_check(const Options *options, Error *error);

/* port_range's ends; 0 and 0 where it is empty. -1 with *error. */
int options_port_range(int *first, int *last, const Options *options, Error *error);

/* By name, which must be one of the table's. */
int options_is_given(const Options *options, const char *name);

/* The shape that the model options describe. */
ModelShape options_shape(const Options *options);

/* The table, or what `form` names: a section, "man" (a page for man), "bash" (a completion). Lines are
 * wrapped at `columns`. -1 with *error for another form. */
int options_print_help(FILE *out, const char *form, int columns, Error *error);
/* The value of the option that --print asked for, and a line's end. */
void options_print_asked(const Options *options, FILE *out);
/* The values in use, one line a group. */
void options_print_summary(const Options *options, FILE *out);
/* One JSON object on one line. */
void options_print_json(const Options *options, FILE *out);
/* The same as a string; the caller frees it with free(). */
char *options_to_json(const Options *options);
/* One line for each option that changes results and differs from `json` (written by options_print_json).
 * Returns how many. */
int options_print_differences(const Options *options, const char *json, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
