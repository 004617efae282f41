#define _GNU_SOURCE
#include "llmc/run/run.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/base/format.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/base/memory_room.h"
#include "llmc/comm/comm.h"
#include "llmc/run/agree.h"
#include "llmc/run/inputs.h"
#include "llmc/run/notices.h"
#include "llmc/run/origin.h"
#include "llmc/run/sample.h"
#include "llmc/run/status_line.h"
#include "llmc/run/stop.h"
#include "llmc/snapshot/export.h"
#include "llmc/snapshot/snapshot.h"

enum { SAMPLES_STANDARD = 10 /* nanoGPT's, for sample_only */ };

/* ---- opening ------------------------------------------------------------------------------------------ */

static int create_model(Run *run, const Origin *origin, const Backend *backend, Error *error)
{
    const Options *options = &run->options;
    ModelConfig config = {.shape = options_shape(options),
                          .batch_size = options->sample_only ? 1 : (int)options->batch_size,
                          .sequence_tokens = (int)options->block_size,
                          .slots_per_step = (int)options->gradient_accumulation_steps,
                          .dtype = (DType)options->dtype,
                          .residual = (DType)options->residual,
                          .reduce = (ReduceMode)options->reduce,
                          .dropout = (float)options->dropout,
                          .seed = (uint64_t)options->seed,
                          .is_inference = !run->is_training,
                          .is_distributed = run->rank_count > 1,
                          .uses_graph = options->cuda_graph};
    const char *recorded = origin->info ? origin->info->plans : NULL;
    return run_create_model(run, backend, &config, recorded, error);
}

/* What else a user should know of snapshots. */
static void print_safety(const Run *run)
{
    if (run->writer && snapshot_writer_is_direct(run->writer)) {
        MemoryRoom room;
        memory_room(&room);
        printf("notice: snapshots are written from the model's own memory, and training waits meanwhile: %s "
               "has no room for a copy of %" PRId64 " MiB\n",
               room.owner, run->model.table.arena_count * 12 >> 20);
    }
    if (run->lock.is_weak && run->is_training) {
        printf("notice: the file system of out_dir=%s has no locks; let no other run use it\n",
               run->options.out_dir);
    }
}

static void print_data(const Run *run)
{
    char tokens[FORMAT_COUNT_BYTES];
    if (run->train_set) {
        printf("data: %s tokens to train on", format_count(tokens, data_set_tokens(run->train_set)));
    }
    if (run->val_set) {
        printf("%s%s %sto evaluate",
               run->train_set ? ", " : "data: ", format_count(tokens, data_set_tokens(run->val_set)),
               run->train_set ? "" : "tokens ");
    }
    if (run->train_set || run->val_set) {
        putchar('\n');
        notices_print_evaluation(&run->options, run->train_set ? data_set_windows(run->train_set) : 0,
                                 run->val_set ? data_set_windows(run->val_set) : 0, stdout);
    }
    if (run->hellaswag.count > 0) {
        run_print_hellaswag(run, stdout);
    }
}

static void print_run(const Run *run)
{
    const Options *options = &run->options;
    const RunModel *model = &run->model;
    char parameters[FORMAT_COUNT_BYTES], bytes[FORMAT_COUNT_BYTES], tokens[FORMAT_COUNT_BYTES];
    ModelFacts facts;
    model->backend->describe(&facts, model->model);
    options_print_summary(options, stdout);
    notices_print(options, stdout);
    if (facts.shape_notice) {
        printf("notice: %s\n", facts.shape_notice);
    }
    size_t own_bytes = facts.memory_bytes + (facts.host_bytes > 0 ? run->snapshot_bytes : 0);
    printf("model: %s parameters on %s, %d threads, %s MiB",
           format_count(parameters, model_shape_parameters(&model->table.shape)), model->backend->name,
           omp_get_max_threads(), format_count(bytes, (int64_t)(own_bytes >> 20)));
    if (run->snapshot_bytes > 0) {
        printf(facts.host_bytes > 0 ? ", %s of them for snapshots"
                                    : ", and %s of the machine's for snapshots",
               format_count(bytes, (int64_t)(run->snapshot_bytes >> 20)));
    }
    putchar('\n');
    print_safety(run);
    print_data(run);
    vocabulary_print(&run->vocabulary, options, stdout);
    int64_t step_tokens = options->gradient_accumulation_steps * options->batch_size * options->block_size;
    if (run->is_training) {
        printf("step: %" PRId64 " x %" PRId64 " x %" PRId64 " = %s tokens, %.2f%% of an epoch, on %d %s\n",
               options->gradient_accumulation_steps, options->batch_size, options->block_size,
               format_count(tokens, step_tokens),
               100.0 * (double)step_tokens /
                   ((double)data_set_windows(run->train_set) * (double)options->block_size),
               run->rank_count, run->rank_count == 1 ? "rank" : "ranks");
    }
    if (!run->is_training && !options->eval_only && !options->sample_only) {
        printf("nothing left to train: %" PRId64 " updates made, max_iters=%" PRId64 "\n", run->step,
               options->max_iters);
    }
    if (run->is_training && facts.peak_flops > 0) {
        printf("mfu: tokens/s x %.4g operations (6 x parameters without wpe + 12 L C T), of a peak of %.4g a "
               "second\n",
               model_shape_flops_per_token(&model->table.shape, (int)options->block_size), facts.peak_flops);
    }
    fflush(stdout);
}

/* The log belongs to whoever writes to out_dir. An evaluation beside a run that trains leaves it alone. */
static int open_log(Run *run, const Origin *origin, Error *error)
{
    const Options *options = &run->options;
    int is_written = run->is_training || options->eval_only;
    if (run->is_training && run_own_out_dir(run, origin, error) != 0) {
        return -1;
    }
    if (run->rank != 0) {
        return 0;
    }
    if (options->eval_only && path_is_folder(options->out_dir)) {
        FolderLock lock;
        Error refusal;
        if (folder_lock_take(&lock, options->out_dir, 0, &refusal) == FOLDER_IN_USE) {
            printf("notice: log.jsonl is not written: another run trains in out_dir=%s\n", options->out_dir);
            is_written = 0;
        }
        folder_lock_release(&lock);
    }
    if (log_init(&run->log, is_written ? options->out_dir : NULL, error) != 0) {
        return -1;
    }
    if (run->is_training && options->tensorboard) {
        log_open_tensorboard(&run->log, options->out_dir, run->step);
    }
    if (run->is_training && options->status_line) {
        status_line_open();
    }
    return 0;
}

static int64_t sample_count(const Options *options)
{
    return options->num_samples == 0 && options->sample_only ? SAMPLES_STANDARD : options->num_samples;
}

/* What is used at the end is looked at before the first update. */
static int open_prompt(Run *run, Error *error)
{
    const Characters *characters = run->vocabulary.characters;
    int has_samples = run->rank == 0 && sample_count(&run->options) > 0;
    return has_samples ? prompt_init(&run->prompt, &run->options, characters, error) : 0;
}

static int check_exports(const Run *run, Error *error)
{
    const Options *options = &run->options;
    if (run->rank != 0) {
        return 0;
    }
    if (options->export_hf[0] && export_check_hugging_face(options->export_hf, &run->model.table.shape,
                                                           run->vocabulary.characters, error) != 0) {
        return error_prefix(error, "export_hf");
    }
    if (options->export_llmc[0] && export_check_llmc(options->export_llmc, error) != 0) {
        return error_prefix(error, "export_llmc");
    }
    return 0;
}

/* max_epochs, told as max_iters: the update that completes the last epoch is the last. */
static void limit_epochs(Run *run)
{
    Options *options = &run->options;
    double samples = options->max_epochs * (double)data_set_windows(run->train_set);
    double iters =
        ceil(samples / ((double)options->gradient_accumulation_steps * (double)options->batch_size));
    if (iters < (double)options->max_iters) {
        options->max_iters = (int64_t)iters;
        run->is_training = run->is_training && run->step < options->max_iters;
    }
}

static int open_parts(Run *run, Origin *origin, const Backend *backend, Error *error)
{
    Options *options = &run->options;
    run->is_training = !options->eval_only && !options->sample_only && run->step < options->max_iters;
    if (run->is_training && run->rank_count > options->gradient_accumulation_steps) {
        return error_set(error,
                         "gradient_accumulation_steps=%" PRId64 ": expected at least the number of ranks, %d",
                         options->gradient_accumulation_steps, run->rank_count);
    }
    int is_evaluating = options->eval_only || (run->is_training && options->eval_interval > 0);
    if ((run->is_training || is_evaluating) &&
        inputs_open(&run->train_set, &run->val_set, options, is_evaluating, error) != 0) {
        return -1;
    }
    if (run->train_set && options->max_epochs > 0) {
        limit_epochs(run);
    }
    if (vocabulary_open(&run->vocabulary, options, origin, run->train_set, run->val_set, error) != 0 ||
        (is_evaluating && run_open_hellaswag(run, error) != 0)) {
        return -1;
    }
    if (run->train_set || run->val_set) {
        run->data_fingerprint =
            data_set_fingerprint(run->train_set ? run->train_set : run->val_set) ^ run->vocabulary.data_hash;
    }
    if (open_prompt(run, error) != 0 || create_model(run, origin, backend, error) != 0 ||
        run_save_open(run, error) != 0 || check_exports(run, error) != 0 ||
        open_log(run, origin, error) != 0) {
        return -1; /* a model that does not fit leaves no folder behind */
    }
    if (run->rank == 0) {
        print_run(run);
        origin_print(origin, options, stdout);
    }
    run_print_plans(run, stdout);
    const SnapshotInfo *info = origin->info;
    if (info && run->is_training && run->rank == 0 && info->data_fingerprint != run->data_fingerprint) {
        printf("notice: the training data are not those that the snapshot was made with\n");
    }
    fflush(stdout);
    return origin_load(origin, &run->model, (uint64_t)options->seed, !run->is_training, error);
}

/* Where ranks round differently, their sums are still the same on all of them, but not those of one rank. */
static void compare_devices(const Run *run)
{
    ModelFacts facts;
    run->model.backend->describe(&facts, run->model.model);
    uint64_t *kinds = memory_alloc((size_t)run->rank_count, sizeof(*kinds), "devices of ranks");
    comm_gather_uint64(hash_bytes(facts.device, strlen(facts.device), 0), kinds);
    int other = 0;
    while (other < run->rank_count && kinds[other] == kinds[0]) {
        other++;
    }
    memory_free(kinds);
    if (run->rank == 0 && other < run->rank_count) {
        printf("notice: rank %d computes on another kind of device, or with another version of its library, "
               "than "
               "rank 0 (%s): the weights will not be those of ranks of one kind\n",
               other, facts.device);
    }
}

/* Before the first update all ranks must have the same shape, data and weights. */
static int check_ranks(const Run *run, Error *error)
{
    if (run->rank_count == 1) {
        return 0;
    }
    uint64_t shape = hash_bytes(&run->model.table.shape, sizeof(run->model.table.shape), (uint64_t)run->step);
    const char *way_out = "let all ranks see the same files";
    compare_devices(run);
    if (agree_on(shape, "the model's shape or the updates made", way_out, error) != 0 ||
        agree_on(run->data_fingerprint, "the training data (names, sizes, token counts)", way_out, error) !=
            0 ||
        agree_on(hellaswag_hash(&run->hellaswag), "the items of HellaSwag", way_out, error) != 0) {
        return -1;
    }
    return agree_on(run_model_hash(&run->model), "the weights at start", way_out, error);
}

int run_open(Run *run, const Options *options, const Backend *backend, Error *error)
{
    memset(run, 0, sizeof(*run));
    run->options = *options;
    run->rank = comm_rank();
    run->rank_count = comm_rank_count();
    if (options->threads > 0) {
        omp_set_num_threads((int)options->threads);
    }
    run->lock = FOLDER_LOCK_NONE;
    run->is_writer =
        run->rank == 0 || (options->snapshot_on == SNAPSHOT_ON_EVERY_NODE && comm_local_rank() == 0);
    Origin origin;
    if (run_open_origin(&origin, run, error) != 0) {
        run_close(run);
        return -1;
    }
    run->step = run->first_step = run->changed_step = origin.step;
    run->saved_step = origin.snapshot ? origin.step : -1; /* on this rank's disk */
    run->begun_step = run->saved_step;
    run->best_loss = origin.best_loss;
    run->evaluated_step = -1;
    run->bad_steps = origin.bad_steps;
    if (run->rank != 0) { /* only rank 0 hears of snapshots when they are written */
        error_set_way_out("run again to go on from the newest snapshot");
    } else if (origin.info) {
        error_set_way_out("newest good snapshot: step-%08" PRId64 ".snap%s; run again to go on from it",
                          run->step, origin.snapshot ? "" : " of another rank");
    }
    int status = open_parts(run, &origin, backend, error);
    origin_close(&origin);
    if (status == 0) {
        status = check_ranks(run, error);
    }
    if (status != 0) {
        run_close(run);
        return -1;
    }
    ModelFacts facts;
    run->model.backend->describe(&facts, run->model.model);
    LogStart start = {.version = PROGRAM_VERSION,
                      .backend = run->model.backend->name,
                      .kernel = facts.kernel,
                      .ranks = run->rank_count,
                      .parameters = model_shape_parameters(&run->model.table.shape),
                      .data_fingerprint = run->data_fingerprint,
                      .options = &run->options};
    log_start(&run->log, &start);
    if (run->is_training && run->plans_origin != PLANS_NONE) {
        log_plans(&run->log, run->step, run->plans, run->plans_origin == PLANS_REPEATED);
    }
    return 0;
}

void run_close(Run *run)
{
    snapshot_writer_free(run->writer);
    run->writer = NULL;
    log_release(&run->log);
    prompt_release(&run->prompt);
    vocabulary_release(&run->vocabulary);
    data_set_free(run->train_set);
    data_set_free(run->val_set);
    hellaswag_release(&run->hellaswag);
    run_model_release(&run->model);
    folder_lock_release(&run->lock);
    memory_free(run->plans);
    run->train_set = NULL;
    run->val_set = NULL;
    run->plans = NULL;
}

/* ---- what a run does besides training ------------------------------------------------------------------ */

int run_sample(Run *run, Error *error)
{
    const Options *options = &run->options;
    int64_t samples = sample_count(options);
    if (samples == 0 || run->rank != 0) {
        return 0;
    }
    int status = sample(stdout, options, samples, &run->prompt, &run->model, error);
    if (status != 0 && !options->sample_only) {
        error_print("%s; the run goes on", error->text); /* the console does not end what was trained */
        status = 0;
    }
    return status;
}

int run_export(Run *run, Error *error)
{
    const Options *options = &run->options;
    if (run->rank != 0) {
        return 0;
    }
    StateSource source = run_model_source(&run->model);
    if (options->export_hf[0]) {
        ExportFacts facts = {.updates = run->step,
                             .update_tokens = options->gradient_accumulation_steps * options->batch_size *
                                              options->block_size,
                             .val_loss = run->evaluated_step == run->step ? run->val_loss : NAN,
                             .best_loss = run->best_loss};
        if (export_hugging_face(options->export_hf, &run->model.table, &source, run->vocabulary.characters,
                                &facts, error) != 0) {
            return -1;
        }
        printf("exported %s (Hugging Face)\n", options->export_hf);
    }
    if (options->export_llmc[0]) {
        if (export_llmc(options->export_llmc, &run->model.table, &source, error) != 0) {
            return -1;
        }
        printf("exported %s (llm.c)\n", options->export_llmc);
    }
    return 0;
}
