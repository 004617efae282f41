/* How a run ends: the last lines of console and log, and the exit code. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/comm/comm.h"
#include "llmc/run/run.h"

static void name_newest_snapshot(char *name, size_t name_bytes, const Run *run)
{
    snprintf(name, name_bytes, "none was written");
    if (run->saved_step >= 0) {
        snprintf(name, name_bytes, "step-%08" PRId64 ".snap", run->saved_step);
    }
}

void run_name_range(char *text, size_t text_bytes, const Run *run, const char *what)
{
    snprintf(text, text_bytes,
             "%s is finite, but beyond %g (%g / gradient_accumulation_steps), the most that exact sums hold",
             what, EXACT_LIMIT / (double)run->options.gradient_accumulation_steps, EXACT_LIMIT);
}

/* Rank 0, which knows the snapshots, speaks for all; the others wait until it ends them. */
static int end_bad_steps(const Run *run, Error *error)
{
    if (run->rank != 0) {
        comm_barrier();
    }
    char newest[64], found[128], range[160];
    name_newest_snapshot(newest, sizeof(newest), run);
    int is_first = run->first_step > 0 && run->changed_step == run->first_step;
    snprintf(found, sizeof(found),
             is_first ? "no update since %s, from which it resumed, was good" : "newest good snapshot: %s",
             newest);
    run_name_range(range, sizeof(range), run, "a loss or gradient that");
    error_set(error, "%.500s: %" PRId64 " updates in a row had %s; %s; %s", run->options.out_dir,
              run->bad_steps, run->is_out_of_range ? range : "a loss or gradient that is not finite", found,
              run->is_out_of_range && run->options.reduce == REDUCE_EXACT
                  ? "--reduce=fp32 has no such limit; or lower learning_rate or dropout"
                  : "lower learning_rate or check the data");
    return EXIT_FAULT;
}

/* The last weights gave no finite loss, and no snapshot of them was kept. */
static int end_bad_weights(const Run *run, EndReason reason, Error *error)
{
    char newest[64];
    name_newest_snapshot(newest, sizeof(newest), run);
    error_set(error,
              "%.500s: the loss of the weights after %" PRId64
              " updates is not finite: no snapshot of them was "
              "kept; newest good snapshot: %s; lower learning_rate or check the data",
              run->options.out_dir, run->step, newest);
    return reason == END_SIGNAL ? EXIT_RUN_AGAIN : EXIT_FAULT;
}

/* A rank cannot go on, but the weights are whole: what was made of them since the last snapshot is saved,
 * also where snapshots are switched off. The rank that failed then speaks; the others wait until it ends
 * them. */
static int end_failed(Run *run, Error *error)
{
    if (run->step > run->first_step) {
        run_save(run);
        run_save_finish(run);
    }
    log_end(&run->log, run->step, run_model_hash(&run->model), "failed");
    int64_t nothing = 0;
    comm_await_max_int64(&nothing);
    while (!error->text[0]) {
        comm_barrier();
    }
    char way_out[ERROR_WAY_OUT_BYTES];
    error_way_out(way_out);
    if (run->step > run->first_step || error->may_pass) {
        size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof(error->text) - used, "; %s", way_out);
    }
    return error_exit_code(error);
}

int run_finish(Run *run, EndReason reason, Error *error)
{
    static const char *const names[] = {
        [END_DONE] = "done", [END_SIGNAL] = "signal", [END_BAD_STEPS] = "bad_steps"};
    if (reason == END_FAILED) {
        return end_failed(run, error);
    }
    error->text[0] = '\0';
    run_save_finish(run);
    uint64_t hash = run_model_hash(&run->model);
    log_end(&run->log, run->step, hash, names[reason]);
    if (reason == END_BAD_STEPS) {
        return end_bad_steps(run, error);
    }
    if (run->rank != 0) { /* rank 0 speaks for all that write */
        return reason == END_SIGNAL ? EXIT_RUN_AGAIN : EXIT_DONE;
    }
    if (run->has_dropped && run->dropped_step == run->step) {
        return end_bad_weights(run, reason, error);
    }
    int is_unsaved = run->failed_snapshots > 0 && run->saved_step != run->step;
    if (is_unsaved) {
        char newest[64];
        name_newest_snapshot(newest, sizeof(newest), run);
        error_set(
            error,
            "%.500s: the last snapshot could not be written (%d failed); newest good snapshot: %s; make "
            "room there, then run again with --init_from=auto",
            run->options.out_dir, run->failed_snapshots, newest);
        return EXIT_FAILED;
    }
    return reason == END_SIGNAL ? EXIT_RUN_AGAIN : EXIT_DONE;
}
