#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "llmc/run/run.h"
#include "llmc/snapshot/snapshot.h"

static SnapshotWriter *create_writer(Run *run)
{
    SnapshotWriterConfig config = {.out_dir = run->options.out_dir,
                                   .table = &run->model.table,
                                   .source = run_model_source(&run->model),
                                   .keep = (int)run->options.keep_snapshots,
                                   .milestone_interval = run->options.milestone_interval,
                                   .threads = omp_get_max_threads()};
    return snapshot_writer_create(&config);
}

void run_save(Run *run)
{
    if (run->rank != 0 || run->begun_step == run->step || run->saved_step == run->step) {
        return;
    }
    const Options *options = &run->options;
    char *json = options_to_json(options);
    SnapshotInfo info = {
        .shape = run->model.table.shape,
        .step = run->step,
        .sample = (uint64_t)(run->step * options->gradient_accumulation_steps * options->batch_size),
        .best_loss = run->best_loss,
        .bad_steps = run->bad_steps,
        .data_fingerprint = run->data_fingerprint,
        .version = PROGRAM_VERSION,
        .options = json,
        .plans = run->plans};
    if (!run->writer) {
        run->writer = create_writer(run);
    }
    run_save_finish(run);
    snapshot_writer_start(run->writer, &info);
    run->begun_step = run->step;
    free(json);
}

void run_save_copied(Run *run)
{
    if (run->writer) {
        snapshot_writer_copied(run->writer);
    }
}

void run_save_poll(Run *run)
{
    SnapshotResult result;
    if (!run->writer || !snapshot_writer_poll(run->writer, &result)) {
        return;
    }
    char name[64];
    snprintf(name, sizeof(name), "step-%08" PRId64 ".snap", result.step);
    if (result.has_failed) {
        run->failed_snapshots++;
        run->begun_step = -1;
        error_print("%s; the run goes on without this snapshot", result.error.text);
        log_snapshot_failed(&run->log, result.step, name, result.error.text);
        return;
    }
    log_snapshot(&run->log, result.step, name, result.bytes, result.stall_ms, result.write_ms);
    run->saved_step = result.step;
    error_set_way_out("newest good snapshot: %s; run again to go on from it", name);
}

void run_save_finish(Run *run)
{
    if (run->writer) {
        snapshot_writer_wait(run->writer);
        run_save_poll(run);
    }
}
