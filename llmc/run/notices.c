#include "llmc/run/notices.h"

#include <inttypes.h>

#include "llmc/base/format.h"
#include "llmc/run/schedule.h"

/* A run that ends during its warm-up, or long before min_lr. */
static void print_schedule(const Options *options, FILE *out)
{
    int is_decaying = options->lr_schedule != LR_CONSTANT;
    int64_t end = options->max_iters;
    if (options->warmup_iters > 0 && options->warmup_iters >= end) {
        fprintf(out,
                "notice: warmup_iters=%" PRId64 " is not below max_iters=%" PRId64
                ": the run ends during its warm-up, at a rate of %.3g\n",
                options->warmup_iters, end, schedule_learning_rate(options, end - 1));
    } else if (is_decaying && options->warmup_iters >= options->lr_decay_iters) {
        fprintf(out,
                "notice: warmup_iters=%" PRId64 " is not below lr_decay_iters=%" PRId64
                ": learning_rate is never reached\n",
                options->warmup_iters, options->lr_decay_iters);
    } else if (is_decaying && options->lr_decay_iters / 2 >= end &&
               options->min_lr < options->learning_rate) {
        fprintf(out,
                "notice: lr_decay_iters=%" PRId64 " is far beyond max_iters=%" PRId64
                ": the rate ends at %.3g, not at min_lr=%.3g\n",
                options->lr_decay_iters, end, schedule_learning_rate(options, end - 1), options->min_lr);
    }
    if (is_decaying && options->min_lr > options->learning_rate) {
        fprintf(out, "notice: min_lr=%.9g is above learning_rate=%.9g: the rate rises\n", options->min_lr,
                options->learning_rate);
    }
}

void notices_print(const Options *options, FILE *out)
{
    int may_train = !options->eval_only && !options->sample_only && options->max_iters > 0;
    if (options->without_meaning[0]) {
        fprintf(out, "notice: left aside, without meaning here: %s\n", options->without_meaning);
    }
    if (options->unused_warmup_iters > 0) {
        fprintf(out,
                "notice: warmup_iters=%" PRId64
                " is left aside: decay_lr=False has no warm-up; lr_schedule=constant would\n",
                options->unused_warmup_iters);
    }
    if (may_train) {
        print_schedule(options, out);
    }
    if (options->hellaswag[0] && options->eval_interval == 0 && may_train) {
        fputs("notice: hellaswag: never evaluated, as eval_interval=0\n", out);
    }
    if (options->reduce != 0) {
        fputs("notice: reduce is not exact: weights depend on the number of ranks\n", out);
    }
}

static void print_split(const char *name, int64_t wanted, int64_t windows, const Options *options, FILE *out)
{
    char wanted_text[FORMAT_COUNT_BYTES], windows_text[FORMAT_COUNT_BYTES];
    fprintf(out,
            "notice: eval_iters=%" PRId64 " x batch_size=%" PRId64
            " are %s windows, but the %s data have %s: "
            "all of them are evaluated\n",
            options->eval_iters, options->batch_size, format_count(wanted_text, wanted), name,
            format_count(windows_text, windows));
}

void notices_print_evaluation(const Options *options, int64_t train_windows, int64_t val_windows, FILE *out)
{
    int64_t wanted = options->eval_iters * options->batch_size;
    if (val_windows == 0 || wanted == 0) {
        return;
    }
    if (wanted > val_windows) {
        print_split("validation", wanted, val_windows, options, out);
    }
    if (train_windows > 0 && wanted > train_windows) {
        print_split("training", wanted, train_windows, options, out);
    }
}
