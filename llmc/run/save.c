#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/base/memory_room.h"
#include "llmc/comm/comm.h"
#include "llmc/data/sample_index.h"
#include "llmc/run/run.h"
#include "llmc/snapshot/snapshot.h"

/* What a process takes besides its model: libraries, stacks, pieces of weights on their way. */
enum { PROCESS_MIB = 96 };

/* ---- memory -------------------------------------------------------------------------------------------- */

static SnapshotWriterConfig writer_config(Run *run)
{
    return (SnapshotWriterConfig){.out_dir = run->options.out_dir,
                                  .table = &run->model.table,
                                  .source = run_model_source(&run->model),
                                  .keep = (int)run->options.keep_snapshots,
                                  .milestone_interval = run->options.milestone_interval,
                                  .threads = omp_get_max_threads(),
                                  .awaits_judge = 1};
}

/* How many ranks share this machine's memory. Collective. */
static int count_local_ranks(const Run *run)
{
    if (run->rank_count == 1) {
        return 1;
    }
    uint64_t *hosts = memory_alloc((size_t)run->rank_count, sizeof(*hosts), "hosts of ranks");
    comm_gather_uint64(hash_bytes(comm_host(), strlen(comm_host()), 0), hosts);
    int count = 0;
    for (int rank = 0; rank < run->rank_count; rank++) {
        count += hosts[rank] == hosts[run->rank];
    }
    memory_free(hosts);
    return count;
}

int run_save_open(Run *run, Error *error)
{
    if (!run->is_training) {
        return 0;
    }
    int local_ranks = count_local_ranks(run);
    if (!run->is_writer || run->options.snapshot_interval == 0) {
        return 0; /* without an interval a signal asks for the only one, when training is over */
    }
    ModelFacts facts;
    MemoryRoom room;
    run->model.backend->describe(&facts, run->model.model);
    memory_room(&room);
    SnapshotWriterConfig config = writer_config(run);
    size_t rank_bytes = facts.host_bytes + ((size_t)PROCESS_MIB << 20);
    size_t needed = (size_t)local_ranks * rank_bytes + snapshot_writer_bytes(&config);
    config.is_direct = room.free_bytes > 0 && needed > room.free_bytes;
    run->writer = snapshot_writer_create(&config, error);
    if (!run->writer) {
        return -1;
    }
    config.is_direct = snapshot_writer_is_direct(run->writer);
    run->snapshot_bytes = snapshot_writer_bytes(&config);
    return 0;
}

/* ---- what a snapshot is worth -------------------------------------------------------------------------- */

/* The first micro-batch of the next update; some tokens where the data cannot be read. */
static void fill_batch(int32_t *tokens, int32_t *targets, const Run *run)
{
    const Options *options = &run->options;
    int64_t B = options->batch_size, T = options->block_size, vocab_size = options->vocab_size;
    uint64_t first = (uint64_t)(run->step * options->gradient_accumulation_steps * B);
    Error error;
    for (int64_t b = 0; b < B; b++) {
        int64_t window = sample_index(first + (uint64_t)b, data_set_windows(run->train_set),
                                      (uint64_t)options->seed, options->shuffle);
        if (data_set_window(run->train_set, window, (int)vocab_size, tokens + b * T, targets + b * T,
                            &error) == 0) {
            continue;
        }
        for (int64_t t = 0; t < T; t++) {
            tokens[b * T + t] = (int32_t)((b * T + t) % vocab_size);
            targets[b * T + t] = (int32_t)((b * T + t + 1) % vocab_size);
        }
    }
}

/* Of a snapshot of the present weights, from which no update will be made to tell: one forward pass. */
static SnapshotVerdict test_weights(Run *run)
{
    size_t batch_tokens = (size_t)run->options.batch_size * (size_t)run->options.block_size;
    int32_t *tokens = memory_alloc(2 * batch_tokens, sizeof(int32_t), "batch to test a snapshot");
    fill_batch(tokens, tokens + batch_tokens, run);
    const RunModel *model = &run->model;
    double loss = model->backend->evaluate(model->model, tokens, tokens + batch_tokens, NULL);
    memory_free(tokens);
    if (!isfinite(loss) || (run->options.reduce == REDUCE_EXACT && fabs(loss) > EXACT_LIMIT)) {
        return SNAPSHOT_BAD;
    }
    return run->bad_steps > 0 ? SNAPSHOT_DOUBTFUL : SNAPSHOT_GOOD;
}

static void judge(Run *run, SnapshotVerdict verdict, const char *drop_reason)
{
    run->is_unjudged = 0;
    run->drop_reason = verdict == SNAPSHOT_BAD ? drop_reason : NULL;
    snapshot_writer_judge(run->writer, verdict);
}

void run_save_judge(Run *run, int64_t iter, int is_skipped)
{
    if (!is_skipped) {
        run->changed_step = iter + 1;
    }
    if (run->is_unjudged && run->begun_step == iter) {
        judge(run, is_skipped ? SNAPSHOT_BAD : SNAPSHOT_GOOD, "the update after it was skipped");
        run->is_save_owed = is_skipped;
    }
}

/* Whether the weights are others than those of the newest snapshot, or than at the begin. */
static int has_progress(const Run *run)
{
    return run->changed_step > (run->saved_step >= 0 ? run->saved_step : run->first_step);
}

/* ---- snapshots ----------------------------------------------------------------------------------------- */

static void tell_failure(Run *run, const Error *error)
{
    run->failed_snapshots++;
    run->begun_step = -1;
    error_print("%s; the run goes on without this snapshot", error->text);
}

/* Of a run without an interval. It has nothing to copy for: training waits anyway. */
static int make_late_writer(Run *run)
{
    Error error;
    SnapshotWriterConfig config = writer_config(run);
    config.is_direct = 1;
    run->writer = snapshot_writer_create(&config, &error);
    if (!run->writer) {
        tell_failure(run, &error);
    }
    return run->writer ? 0 : -1;
}

void run_save(Run *run)
{
    if (!run->is_writer || run->begun_step == run->step || run->saved_step == run->step ||
        (run->bad_steps > 0 && !has_progress(run))) {
        return;
    }
    if (!run->writer && make_late_writer(run) != 0) {
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
    char *characters = run->vocabulary.characters ? characters_to_json(run->vocabulary.characters) : NULL;
    info.characters = characters;
    run_save_finish(run);
    snapshot_writer_start(run->writer, &info);
    run->begun_step = run->step;
    run->is_unjudged = 1;
    run->is_save_owed = 0;
    memory_free(characters);
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
    run->is_unjudged = 0;
    if (result.has_failed) {
        tell_failure(run, &result.error);
        log_snapshot_failed(&run->log, result.step, name, result.error.text);
        return;
    }
    if (result.is_dropped) {
        run->has_dropped = 1;
        run->dropped_step = result.step;
        log_dropped(&run->log, result.step, name, run->drop_reason ? run->drop_reason : result.error.text);
        return;
    }
    log_snapshot(&run->log, result.step, name, result.bytes, result.stall_ms, result.write_ms);
    run->saved_step = result.step;
    error_set_way_out("newest good snapshot: %s; run again to go on from it", name);
}

void run_save_finish(Run *run)
{
    if (!run->writer) {
        return;
    }
    if (run->is_unjudged) {
        judge(run, test_weights(run), "a loss that was computed from it is not finite");
    }
    snapshot_writer_wait(run->writer);
    run_save_poll(run);
}
