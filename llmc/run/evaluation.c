/* What a run evaluates, and tells of it. */
#include <inttypes.h>
#include <stdio.h>

#include "llmc/base/format.h"
#include "llmc/comm/comm.h"
#include "llmc/run/evaluate.h"
#include "llmc/run/hellaswag.h"
#include "llmc/run/run.h"
#include "llmc/run/status_line.h"

/* 1 when a signal cut it short. */
static int evaluate_splits(Run *run, double left_ms, Error *error)
{
    EvaluateArgs args = {.model = &run->model,
                         .batch_size = (int)run->options.batch_size,
                         .sequence_tokens = (int)run->options.block_size,
                         .iters = run->options.eval_iters,
                         .train_set = run->train_set,
                         .val_set = run->val_set,
                         .rank = run->rank,
                         .rank_count = run->rank_count};
    EvaluateResult result;
    status_line_say("evaluating ..");
    if (evaluate(&result, &args, error) != 0) {
        return -1;
    }
    if (!result.is_complete) {
        return 1;
    }
    if (run->options.eval_only) {
        log_eval_only(&run->log, run->step, run->train_set != NULL, result.train_loss, result.val_loss);
    } else {
        log_eval(&run->log, run->step, result.train_loss, result.val_loss, left_ms);
    }
    run->val_loss = result.val_loss;
    run->evaluated_step = run->step;
    run->best_loss = result.val_loss < run->best_loss ? result.val_loss : run->best_loss;
    return 0;
}

static void evaluate_hellaswag(Run *run)
{
    HellaSwagArgs args = {.model = &run->model,
                          .set = &run->hellaswag,
                          .batch_size = (int)run->options.batch_size,
                          .sequence_tokens = (int)run->options.block_size,
                          .rank = run->rank,
                          .rank_count = run->rank_count};
    HellaSwagResult result;
    status_line_say("HellaSwag ..");
    hellaswag_score(&result, &args);
    if (result.is_complete) {
        log_hellaswag(&run->log, run->step, result.correct, result.items, result.loss);
    }
}

int run_evaluate(Run *run, int parts, double left_ms, Error *error)
{
    int status = 0;
    if (run->val_set && parts & EVALUATE_SPLITS) {
        status = evaluate_splits(run, left_ms, error);
    }
    if (run->hellaswag.count > 0 && parts & EVALUATE_HELLASWAG && status == 0) {
        evaluate_hellaswag(run);
    }
    return status < 0 ? -1 : 0;
}

int run_evaluation_owed(const Run *run)
{
    const char *out_dir = run->options.out_dir;
    int64_t parts = 0;
    if (run->rank == 0) { /* where out_dir is not shared, it alone has the log */
        parts |= log_has_event(out_dir, "eval", run->step) ? 0 : EVALUATE_SPLITS;
        parts |= log_has_event(out_dir, "hellaswag", run->step) ? 0 : EVALUATE_HELLASWAG;
    }
    comm_broadcast(&parts, sizeof(parts), 0);
    return (int)parts;
}

int run_open_hellaswag(Run *run, Error *error)
{
    const Options *options = &run->options;
    return options->hellaswag[0]
               ? hellaswag_open(&run->hellaswag, options->hellaswag, (int)options->vocab_size, error)
               : 0;
}

void run_print_hellaswag(const Run *run, FILE *out)
{
    char items[FORMAT_COUNT_BYTES], cut[FORMAT_COUNT_BYTES];
    int64_t cut_items = hellaswag_cut_items(&run->hellaswag, (int)run->options.block_size);
    fprintf(out, "hellaswag: %s items\n", format_count(items, run->hellaswag.count));
    if (cut_items > 0) {
        fprintf(out,
                "notice: hellaswag: %s of %s items have more tokens than block_size=%" PRId64
                ": the model does not see where they begin\n",
                format_count(cut, cut_items), items, run->options.block_size);
    }
}
