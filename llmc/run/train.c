#include "llmc/run/train.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/work.h"
#include "llmc/comm/comm.h"
#include "llmc/data/loader.h"
#include "llmc/run/agree.h"
#include "llmc/run/reduction.h"
#include "llmc/run/schedule.h"
#include "llmc/run/status_line.h"
#include "llmc/run/stop.h"
#include "llmc/run/trace.h"

/* nanoGPT's; it has no option for it. */
#define ADAMW_EPSILON 1e-8f

/* An update whose result is not known yet. */
typedef struct Pending {
    int is_there;
    int64_t iter;
    double begin_ms;
    double data_ms; /* waited for its batches */
} Pending;

/* A slot's tokens and targets, (B,T) each, until the loader is asked for the next. */
typedef struct Batch {
    int is_there;
    const int32_t *tokens, *targets;
} Batch;

/* What the loop needs besides the run. */
typedef struct Loop {
    Run *run;
    Loader *loader;
    ModelFacts facts;
    Pending pending;
    double result_ms;           /* when the last result came */
    int first_slot, slot_count; /* of this rank in each step */
    int agrees_late;            /* whether ranks agree on stopping behind their last slot */
    int stop_reason;            /* if they have: why, and the next step is not begun */
    Batch next;                 /* read before they agreed */
    Error failure;              /* of reading it */
    int64_t timed_step;         /* where the clock for the time left began: after the first update */
    double timed_ms;
    double data_ms; /* waited for batches since the last update was queued */
    Stragglers stragglers;
    Trace trace;
    Reduction reduction;
} Loop;

/* Rank r of N has slots floor(r*G/N) .. floor((r+1)*G/N)-1. -1 with *error; loop_release in any case. */
static int loop_init(Loop *loop, Run *run, Error *error)
{
    const Options *options = &run->options;
    int64_t G = options->gradient_accumulation_steps;
    int64_t N = run->rank_count;
    memset(loop, 0, sizeof(*loop));
    loop->run = run;
    run->model.backend->describe(&loop->facts, run->model.model);
    loop->first_slot = (int)(run->rank * G / N);
    loop->slot_count = (int)((run->rank + 1) * G / N) - loop->first_slot;
    loop->agrees_late = N > 1 && G == N && loop->facts.queues_work;
    LoaderConfig config = {.set = run->train_set,
                           .batch_size = (int)options->batch_size,
                           .window_tokens = (int)options->block_size,
                           .slots_per_step = (int)G,
                           .first_slot = loop->first_slot,
                           .slot_count = loop->slot_count,
                           .first_step = run->step,
                           .seed = (uint64_t)options->seed,
                           .is_shuffled = options->shuffle,
                           .vocab_size = (int)options->vocab_size};
    loop->loader = loader_create(&config);
    stragglers_init(&loop->stragglers, run->rank, run->rank_count);
    /* a step's spans: two for each slot, four for what comes after, and backward's ranges and buckets */
    int64_t buckets = 64 + run->model.table.arena_count * 8 / (int64_t)(options->bucket_cap_mb * 0x1p20 + 1);
    int64_t spans = 2 * loop->slot_count + 4 + options->n_layer + 3 + buckets;
    trace_init(&loop->trace, run->step, options->trace, spans);
    if (reduction_init(&loop->reduction, &run->model, options, run->rank_count, &loop->trace, error) != 0) {
        return -1;
    }
    if (loop->reduction.reducer) {
        log_reducer(&run->log, run->step, loop->reduction.kind->name(loop->reduction.reducer));
    }
    return 0;
}

static void loop_release(Loop *loop)
{
    reduction_release(&loop->reduction);
    trace_release(&loop->trace);
    stragglers_release(&loop->stragglers);
    loader_free(loop->loader);
}

/* Until the end of the run, after so many updates, judged by all the time since the first one; negative while
 * unknown. */
static double time_left_ms(const Loop *loop, int64_t made)
{
    const Run *run = loop->run;
    int64_t done = made - loop->timed_step;
    if (loop->timed_ms == 0 || done < 1) {
        return -1;
    }
    return (clock_ms() - loop->timed_ms) / (double)done * (double)(run->options.max_iters - made);
}

static void set_mark(const Loop *loop, int index, int64_t step)
{
    const RunModel *model = &loop->run->model;
    model->backend->mark(model->model, trace_mark(index, step));
}

/* ---- what an update came to ---------------------------------------------------------------------------- */

static double step_tokens(const Options *options)
{
    return (double)options->gradient_accumulation_steps * (double)options->batch_size *
           (double)options->block_size;
}

/* How the run stands once the pending update is over. */
static void show_status(const Loop *loop, double loss, double ms)
{
    const Options *options = &loop->run->options;
    int64_t made = loop->pending.iter + 1, interval = options->snapshot_interval;
    int64_t left = options->max_iters - made;
    int64_t until_snapshot = interval > 0 ? interval - made % interval : -1;
    Status status = {.made = made,
                     .max_iters = options->max_iters,
                     .loss = loss,
                     .tokens_per_second = step_tokens(options) / ms * 1e3,
                     .left_ms = time_left_ms(loop, made),
                     .snapshot_iters = until_snapshot < left ? until_snapshot : left};
    status_line_show(&status);
}

static void log_update(Loop *loop, const StepResult *result, double ms, const StepTimes *times)
{
    Run *run = loop->run;
    const Options *options = &run->options;
    int64_t iter = loop->pending.iter;
    double rate = step_tokens(options) / ms * 1e3;
    double peak = loop->facts.peak_flops * run->rank_count;
    double flops = model_shape_flops_per_token(&run->model.table.shape, (int)options->block_size);
    LogStep line = {.iter = iter,
                    .loss = result->loss,
                    .learning_rate = schedule_learning_rate(options, iter),
                    .norm = result->norm,
                    .ms = ms,
                    .epoch = (double)(iter + 1) * (double)options->gradient_accumulation_steps *
                             (double)options->batch_size / (double)data_set_windows(run->train_set),
                    .times = *times,
                    .slowest = loop->stragglers.slowest,
                    .slowest_host = comm_host_of(loop->stragglers.slowest.rank),
                    .tokens_per_second = rate,
                    .mfu = peak > 0 ? rate * flops / peak : 0,
                    .left_ms = time_left_ms(loop, iter + 1)};
    log_step(&run->log, &line);
}

/* Wait for the result of the pending update, if there is one; tell about it and count it. An update lasts
 * from its begin, or from the end of the one before, which a device may have been at meanwhile. */
static void finish_pending(Loop *loop)
{
    Run *run = loop->run;
    int64_t iter = loop->pending.iter, interval = run->options.log_interval;
    if (!loop->pending.is_there) {
        return;
    }
    StepResult result = {0};
    ReducerTimes reducer;
    StepTimes times;
    run->model.backend->update(run->model.model, NULL, &result);
    double begin_ms = loop->result_ms > loop->pending.begin_ms ? loop->result_ms : loop->pending.begin_ms;
    loop->result_ms = clock_ms();
    reduction_read_times(&loop->reduction, &reducer);
    step_times_read(&times, &run->model, iter, loop->slot_count, loop->pending.data_ms, result.forward_ms,
                    &reducer);
    stragglers_note(&loop->stragglers, iter, &times);
    trace_read_marks(&loop->trace, &run->model);
    run_save_judge(run, iter, result.is_skipped);
    if (result.is_skipped) {
        char reason[160];
        run->bad_steps++;
        run->is_out_of_range = result.is_out_of_range;
        run_name_range(reason, sizeof(reason), run, "loss or gradient");
        log_skip(&run->log, iter, result.is_out_of_range ? reason : "gradient not finite");
    } else {
        run->bad_steps = 0;
    }
    if (!result.is_skipped && interval > 0 && iter % interval == 0) {
        log_update(loop, &result, loop->result_ms - begin_ms, &times);
    }
    run_log_plans_notice(run, iter);
    show_status(loop, result.loss, loop->result_ms - begin_ms);
    if (loop->timed_ms == 0) {
        loop->timed_ms = loop->result_ms;
        loop->timed_step = iter + 1;
    }
    loop->pending.is_there = 0;
}

/* ---- one update ---------------------------------------------------------------------------------------- */

/* Whether any rank was asked to stop, and why: a signal's number or STOP_FAILED. Collective; where this
 * update is logged, ranks also tell each other how long the one before took them. */
static int why_stop(Loop *loop)
{
    const Run *run = loop->run;
    int64_t interval = run->options.log_interval;
    int tells_times = run->rank_count > 1 && interval > 0 && run->step % interval == 0;
    return (int)stragglers_agree(&loop->stragglers, stop_requested(), tells_times);
}

/* The batch of this rank's next slot, in loop->next. A failure asks all ranks for the end. */
static void read_batch(Loop *loop, int64_t step)
{
    double begin_ms = clock_ms();
    Batch *next = &loop->next;
    next->is_there = loader_next(loop->loader, &next->tokens, &next->targets, &loop->failure) == 0;
    if (!next->is_there) {
        stop_post_failure();
    }
    loop->data_ms += clock_ms() - begin_ms;
    trace_add(&loop->trace, TRACE_DATA, "load", step, begin_ms);
}

/* As run_slots returns: *error is empty on ranks that did not fail themselves. */
static int cut_step(const Loop *loop, int reason, Error *error)
{
    *error = loop->failure;
    return reason == STOP_FAILED ? -1 : 1;
}

/* Forward and backward of this rank's slots. When a rank is asked to stop, all soon know, and go no further
 * than the slot at hand. Some may have begun the last one, whose backward all-reduces. So ranks agree once in
 * each step, at the latest before the last slot: all cut this step, or none. A rank that cannot read its data
 * asks for the same.
 *
 * Where each rank has one slot, a device would stand idle meanwhile: the update before would have to
 * be over, as no rank may wait for others while they may wait for its device. So on devices that queue work
 * the ranks then agree behind that slot, while the device is at it and the next batch has been read: all make
 * this step and not the next.
 *
 * Returns 0 when all slots are done, 1 when the step is cut: then nothing was updated, and whoever resumes
 * repeats it; -1 when it is cut because a rank failed, with *error there. */
static int run_slots(Loop *loop, Error *error)
{
    RunModel *model = &loop->run->model;
    int64_t step = loop->run->step;
    if (loop->stop_reason) {
        return cut_step(loop, loop->stop_reason, error);
    }
    for (int k = 0; k < loop->slot_count; k++) {
        int is_last = k == loop->slot_count - 1, is_agreed = loop->next.is_there;
        if (!is_agreed) {
            read_batch(loop, step);
        }
        if (!is_agreed && (is_last || stop_requested())) {
            if (loop->run->rank_count > 1) {
                finish_pending(loop);
            }
            int reason = why_stop(loop);
            if (reason) {
                return cut_step(loop, reason, error);
            }
        }
        SlotContext context = {.step = (uint32_t)step,
                               .slot = (uint32_t)(loop->first_slot + k),
                               .is_first = k == 0,
                               .is_last = is_last,
                               .is_traced = trace_is_on(&loop->trace, step)};
        int index = MARK_SLOTS + 2 * k;
        if (is_last) {
            reduction_attach(&loop->reduction, &context, trace_mark(index, step),
                             MARK_SLOTS + 2 * loop->slot_count);
        }
        set_mark(loop, index, step);
        model->backend->train_slot(model->model, loop->next.tokens, loop->next.targets, &context);
        work_add();
        loop->next.is_there = 0;
        set_mark(loop, index + 1, step);
        trace_add_marked(&loop->trace, "slot", step, trace_mark(index, step), trace_mark(index + 1, step));
        finish_pending(loop); /* the device has the next work already */
    }
    if (loop->agrees_late && step + 1 < loop->run->options.max_iters) {
        read_batch(loop, step + 1);
        loop->stop_reason = why_stop(loop);
    }
    return 0;
}

/* As a float. What is smaller than one can be is still a limit: 0 would be none. */
static float clip_limit(double grad_clip)
{
    return grad_clip > 0 && grad_clip < FLT_MIN ? FLT_MIN : (float)grad_clip;
}

static UpdateArgs update_args(const Run *run)
{
    const Options *options = &run->options;
    return (UpdateArgs){.learning_rate = (float)schedule_learning_rate(options, run->step),
                        .beta1 = (float)options->beta1,
                        .beta2 = (float)options->beta2,
                        .epsilon = ADAMW_EPSILON,
                        .weight_decay = (float)options->weight_decay,
                        .grad_clip = clip_limit(options->grad_clip),
                        .update_number = run->step + 1};
}

static int is_due(int64_t step, int64_t interval)
{
    return interval > 0 && step % interval == 0;
}

/* Whether update `step`, which has been queued, must be over before anything else: something is due after it,
 * or its times are wanted, or the device queues nothing. */
static int is_awaited(const Loop *loop, int64_t step)
{
    const Options *options = &loop->run->options;
    int64_t made = step + 1;
    return !loop->facts.queues_work || made == options->max_iters || trace_is_on(&loop->trace, step) ||
           is_due(made, options->eval_interval) || is_due(made, options->snapshot_interval) ||
           loop->run->is_save_owed || (loop->run->rank_count > 1 && is_due(made, options->check_interval));
}

/* One update, whose result is known once it is not pending. Returns as run_slots does; 2 when too many
 * updates before it were bad: then it is not made. */
static int train_step(Loop *loop, Error *error)
{
    Run *run = loop->run;
    const Backend *backend = run->model.backend;
    int64_t step = run->step;
    double begin_ms = clock_ms();
    set_mark(loop, MARK_BEGIN, step);
    int status = run_slots(loop, error);
    finish_pending(loop);
    if (status >= 0 && run->bad_steps >= run->options.max_bad_steps) {
        return 2;
    }
    if (status != 0) {
        return status;
    }
    reduction_wait(&loop->reduction);
    run_save_copied(run);
    UpdateArgs args = update_args(run);
    set_mark(loop, MARK_UPDATE, step);
    backend->update(run->model.model, &args, NULL);
    set_mark(loop, MARK_UPDATE + 1, step);
    trace_add_marked(&loop->trace, "update", step, trace_mark(MARK_UPDATE, step),
                     trace_mark(MARK_UPDATE + 1, step));
    loop->pending = (Pending){.is_there = 1, .iter = step, .begin_ms = begin_ms, .data_ms = loop->data_ms};
    loop->data_ms = 0;
    run->step++;
    if (is_awaited(loop, step)) {
        finish_pending(loop);
    }
    return 0;
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

/* All ranks must hold the same weights: any other state is an error that no later step repairs. */
static int check_ranks(const Run *run, Error *error)
{
    char what[64];
    snprintf(what, sizeof(what), "the weights after %" PRId64 " updates", run->step);
    return agree_on(run_model_hash(&run->model), what, "resume from the newest snapshot", error);
}

/* A signal cuts an evaluation short; whoever resumes makes up for it if no update comes between. Returns 0;
 * 1 with *error when data cannot be read. */
static int evaluate_now(Loop *loop, int parts, double left_ms, Error *error)
{
    if (run_evaluate(loop->run, parts, left_ms, error) != 0) {
        return 1;
    }
    if (loop->agrees_late && !loop->stop_reason) {
        loop->stop_reason = why_stop(loop);
    }
    return 0;
}

/* What is due after an update, in the trace as part of that update. Returns 0; 1 with *error when data cannot
 * be read; -1 with *error when the weights are not what they should be. */
static int run_due(Loop *loop, Error *error)
{
    Run *run = loop->run;
    const Options *options = &run->options;
    int is_last = run->step == options->max_iters;
    if (options->eval_interval > 0 && (is_last || is_due(run->step, options->eval_interval))) {
        double begin_ms = clock_ms();
        if (evaluate_now(loop, EVALUATE_ALL, time_left_ms(loop, run->step), error) != 0) {
            return 1;
        }
        trace_add(&loop->trace, TRACE_TRAINING, "evaluate", run->step - 1, begin_ms);
    }
    if (run->rank_count > 1 && is_due(run->step, options->check_interval) && check_ranks(run, error) != 0) {
        return -1;
    }
    if (options->snapshot_interval > 0 &&
        (is_last || run->is_save_owed || is_due(run->step, options->snapshot_interval))) {
        double begin_ms = clock_ms();
        run_save(run);
        trace_add(&loop->trace, TRACE_TRAINING, "snapshot", run->step - 1, begin_ms);
    }
    return 0;
}

/* Returns as run_due does. A run that was stopped while it evaluated owes that evaluation; a fresh one
 * begins with one. */
static int evaluate_first(Loop *loop, Error *error)
{
    const Run *run = loop->run;
    const Options *options = &run->options;
    if (!is_due(run->step, options->eval_interval)) {
        return 0;
    }
    int parts = run->step > 0 ? run_evaluation_owed(run) : EVALUATE_ALL;
    return parts ? evaluate_now(loop, parts, -1, error) : 0;
}

int train(EndReason *reason, Run *run, Error *error)
{
    const Options *options = &run->options;
    Loop loop;
    *reason = END_DONE;
    error->text[0] = '\0';
    int status = loop_init(&loop, run, error);
    if (status == 0) {
        status = evaluate_first(&loop, error);
    }
    while (status == 0 && run->step < options->max_iters) {
        int is_cut = train_step(&loop, error);
        if (is_cut) {
            *reason = is_cut < 0 ? END_FAILED : is_cut == 2 ? END_BAD_STEPS : END_SIGNAL;
            break;
        }
        if (run->bad_steps >= options->max_bad_steps) {
            *reason = END_BAD_STEPS;
            break;
        }
        status = run_due(&loop, error);
        run_save_poll(run);
    }
    if (status > 0) {
        *reason = END_FAILED;
        status = 0;
    }
    if (status == 0 && *reason == END_SIGNAL) {
        run_save(run);
    }
    status_line_say("waiting for the last snapshot ..");
    run_save_finish(run);
    status_line_clear();
    Error trace_error;
    if (status == 0 && trace_write(&loop.trace, options->out_dir, &trace_error) != 0) {
        error_print("%s; the run goes on without its trace", trace_error.text);
    }
    loop_release(&loop);
    return status;
}
