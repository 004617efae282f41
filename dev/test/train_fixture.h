/* A run on a fake device that remembers what it was asked. Include cmocka.h before. */
#ifndef DEV_TEST_TRAIN_FIXTURE_H
#define DEV_TEST_TRAIN_FIXTURE_H

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/run/stop.h"
#include "llmc/run/train.h"
#include "llmc/snapshot/snapshot.h"

enum { B = 3, T = 4, G = 5, WINDOWS = 17, EVENTS_MAX = 1000, NEVER = 1 << 30 };

/* ---- a fake device ------------------------------------------------------------------------------------- */

struct Model {
    SlotContext slots[EVENTS_MAX];
    int slot_count;
    UpdateArgs updates[EVENTS_MAX];
    int update_count;
    int queues_work;   /* as a GPU does */
    int is_pending;    /* the last update's result was not asked for yet */
    int overlap_count; /* slots that were begun meanwhile */
    int64_t tail[GRADIENT_TAIL];
    int bad_from, bad_to; /* updates that are skipped */
    int is_out_of_range;  /* as the backend says of them */
    int signal_slot;      /* which slot, counted from 0, sends SIGTERM */
    int loss_ends;        /* after so many updates an evaluation gives no finite loss */
};

static inline void fake_train_slot(Model *model, const int32_t *tokens, const int32_t *targets,
                                   const SlotContext *context)
{
    for (int i = 0; i < B * T; i++) {
        assert_int_equal(targets[i], tokens[i] + 1); /* the data count upwards */
    }
    assert_true(model->slot_count < EVENTS_MAX);
    if (model->slot_count == model->signal_slot) {
        kill(getpid(), SIGTERM);
        while (!stop_requested()) {
            sched_yield(); /* until the thread that takes signals has it */
        }
    }
    model->overlap_count += model->is_pending;
    model->slots[model->slot_count++] = *context;
}

static inline GradientArena fake_gradients(Model *model)
{
    return (GradientArena){.elements = NULL, .tail = model->tail, .count = 0, .is_int64 = 1};
}

static inline void fake_update(Model *model, const UpdateArgs *args, StepResult *result)
{
    if (args) {
        assert_true(model->update_count < EVENTS_MAX);
        assert_false(model->is_pending);
        model->is_pending = 1;
        model->updates[model->update_count++] = *args;
    }
    if (result) {
        int i = model->update_count - 1;
        assert_true(model->is_pending);
        model->is_pending = 0;
        *result = (StepResult){.loss = 1,
                               .norm = 1,
                               .is_skipped = i >= model->bad_from && i < model->bad_to,
                               .is_out_of_range = model->is_out_of_range};
    }
}

/* A loss that tells windows apart: the mean over the rows of their first token. */
static inline double fake_evaluate(Model *model, const int32_t *tokens, const int32_t *targets, float *logits)
{
    (void)targets;
    assert_null(logits);
    if (model->update_count >= model->loss_ends) {
        return NAN;
    }
    double sum = 0;
    for (int b = 0; b < B; b++) {
        sum += tokens[b * T];
    }
    return sum / B;
}

static inline void fake_read_state(const Model *model, StateKind kind, int64_t offset, float *values,
                                   int64_t count)
{
    (void)model;
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(offset + i + kind);
    }
}

static inline void fake_describe(ModelFacts *facts, const Model *model)
{
    *facts = (ModelFacts){.queues_work = model->queues_work};
}

/* Mark i is at i ms: update 1 to 2, slots from 3 on. */
static inline void fake_mark(Model *model, int index)
{
    (void)model;
    (void)index;
}

static inline double fake_mark_ms(const Model *model, int index)
{
    (void)model;
    return index;
}

/* Sums nothing: there is one process, whatever the number of ranks is said to be. */
static inline Reducer *fake_create(const ReducerConfig *config, Error *error)
{
    (void)error;
    return (Reducer *)config->tail;
}

static inline void fake_free(Reducer *reducer)
{
    (void)reducer;
}

static inline const char *fake_name(const Reducer *reducer)
{
    (void)reducer;
    return "fake";
}

static inline void fake_wait(Reducer *reducer, const ReducerRest *rest)
{
    (void)reducer;
    (void)rest;
}

static inline void fake_read_times(Reducer *reducer, ReducerTimes *times)
{
    (void)reducer;
    (void)times;
}

static const ReducerKind fake_reducer = {.create = fake_create,
                                         .free = fake_free,
                                         .name = fake_name,
                                         .wait = fake_wait,
                                         .read_times = fake_read_times};

static const Backend fake_backend = {.name = "fake",
                                     .train_slot = fake_train_slot,
                                     .gradients = fake_gradients,
                                     .update = fake_update,
                                     .evaluate = fake_evaluate,
                                     .read_state = fake_read_state,
                                     .describe = fake_describe,
                                     .mark = fake_mark,
                                     .mark_ms = fake_mark_ms,
                                     .reducer = &fake_reducer};

/* ---- a run on it --------------------------------------------------------------------------------------- */

typedef struct Fixture {
    char folder[64];
    Run run;
    Model model;
} Fixture;

static inline int set_up(void **state)
{
    Fixture *fixture = calloc(1, sizeof(*fixture));
    snprintf(fixture->folder, sizeof(fixture->folder), "test_train_XXXXXX");
    if (!mkdtemp(fixture->folder)) {
        return -1;
    }
    char path[128];
    snprintf(path, sizeof(path), "%s/tokens.bin", fixture->folder);
    FILE *file = fopen(path, "wb");
    for (uint16_t i = 0; i < WINDOWS * T + 1; i++) {
        fwrite(&i, sizeof(i), 1, file);
    }
    fclose(file);
    Run *run = &fixture->run;
    options_set_defaults(&run->options);
    snprintf(run->options.out_dir, sizeof(run->options.out_dir), "%s", fixture->folder);
    run->options.batch_size = B;
    run->options.block_size = T;
    run->options.gradient_accumulation_steps = G;
    run->options.warmup_iters = 3;
    run->options.max_iters = 7;
    run->options.eval_interval = 0;
    run->options.snapshot_interval = 0;
    run->rank_count = 1;
    run->is_writer = 1;
    run->best_loss = INFINITY;
    run->saved_step = -1;
    run->begun_step = -1;
    run->is_training = 1;
    fixture->model.bad_from = NEVER;
    fixture->model.signal_slot = NEVER;
    fixture->model.loss_ends = NEVER;
    ModelShape shape = {.block_size = T, .vocab_size = 100, .n_layer = 1, .n_head = 1, .n_embd = 2};
    params_init(&run->model.table, &shape);
    run->model.backend = &fake_backend;
    run->model.model = &fixture->model;
    run->options.vocab_size = shape.vocab_size;
    Error error;
    run->train_set = data_set_open(path, T, &error);
    run->val_set = data_set_open(path, T, &error);
    *state = fixture;
    return run->train_set && run->val_set ? 0 : -1;
}

static inline int set_up_queued(void **state)
{
    int status = set_up(state);
    Fixture *fixture = *state;
    fixture->model.queues_work = 1;
    return status;
}

static inline int tear_down(void **state)
{
    Fixture *fixture = *state;
    snapshot_writer_free(fixture->run.writer);
    data_set_free(fixture->run.train_set);
    data_set_free(fixture->run.val_set);
    params_release(&fixture->run.model.table);
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", fixture->folder);
    int status = system(command);
    free(fixture);
    return status;
}

static inline EndReason train_to_end(Run *run)
{
    EndReason reason;
    Error error;
    if (train(&reason, run, &error) != 0) {
        fail_msg("%s", error.text);
    }
    return reason;
}

/* Newest snapshot in the folder, -1 for none; *count of them. */
static inline int64_t newest_snapshot(const Fixture *fixture, int *count)
{
    int64_t *steps = NULL;
    Error error;
    *count = snapshot_list(&steps, fixture->folder, &error);
    int64_t newest = *count > 0 ? steps[0] : -1;
    free(steps);
    return newest;
}

#endif
