/* The training loop and evaluation, against a fake device that remembers what it was asked. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/test/train_fixture.h"
#include "llmc/run/evaluate.h"
#include "llmc/run/schedule.h"

static void test_slots_and_updates(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    const Model *model = &fixture->model;
    run->step = 2;
    assert_int_equal(train_to_end(run), END_DONE);
    assert_int_equal(run->step, 7);
    assert_int_equal(model->update_count, 5);
    assert_int_equal(model->slot_count, 5 * G);
    for (int i = 0; i < model->slot_count; i++) {
        const SlotContext *slot = &model->slots[i];
        assert_int_equal(slot->step, 2 + i / G);
        assert_int_equal(slot->slot, i % G);
        assert_int_equal(slot->is_first, i % G == 0);
        assert_int_equal(slot->is_last, i % G == G - 1);
    }
    for (int i = 0; i < model->update_count; i++) {
        const UpdateArgs *update = &model->updates[i];
        assert_int_equal(update->update_number, 3 + i);
        assert_true(update->learning_rate == (float)schedule_learning_rate(&run->options, 2 + i));
        assert_true(update->beta1 == 0.9f && update->beta2 == 0.95f && update->epsilon == 1e-8f);
        assert_true(update->weight_decay == 0.1f && update->grad_clip == 1.0f);
    }
    int count;
    assert_int_equal(newest_snapshot(fixture, &count), -1);
    /* after the last update nothing is left to begin */
    assert_int_equal(model->overlap_count, model->queues_work ? 4 : 0);
}

/* With one slot a step it is begun while the update before goes on: the device does not wait for the host. */
static void test_one_slot_is_queued_behind_the_update(void **state)
{
    Fixture *fixture = *state;
    fixture->run.options.gradient_accumulation_steps = 1;
    assert_int_equal(train_to_end(&fixture->run), END_DONE);
    assert_int_equal(fixture->model.update_count, 7);
    assert_int_equal(fixture->model.slot_count, 7);
    assert_int_equal(fixture->model.overlap_count, 6);

    /* also of a rank that has to agree with others on stopping */
    fixture->run.rank_count = 2;
    fixture->run.options.gradient_accumulation_steps = 2;
    fixture->run.options.check_interval = 0;
    fixture->run.step = 0;
    assert_int_equal(train_to_end(&fixture->run), END_DONE);
    assert_int_equal(fixture->model.overlap_count, 12);
}

static void test_snapshots_when_due_and_at_the_end(void **state)
{
    Fixture *fixture = *state;
    fixture->run.options.snapshot_interval = 2;
    fixture->run.options.milestone_interval = 4;
    fixture->run.options.keep_snapshots = 1;
    assert_int_equal(train_to_end(&fixture->run), END_DONE);
    int count;
    assert_int_equal(newest_snapshot(fixture, &count), 7);
    assert_int_equal(count, 2); /* and the milestone 4 */
    assert_int_equal(fixture->run.saved_step, 7);
    assert_int_equal(fixture->run.failed_snapshots, 0);
    /* none is begun before the update is over; after updates 1, 3 and 5 nothing is due */
    assert_int_equal(fixture->model.overlap_count, fixture->model.queues_work ? 3 : 0);
}

/* Bad updates count only in a row. */
static void test_bad_updates_in_a_row(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    run->options.max_bad_steps = 3;
    fixture->model.bad_from = 1;
    fixture->model.bad_to = 3;
    assert_int_equal(train_to_end(run), END_DONE);
    assert_int_equal(run->bad_steps, 0);

    fixture->model.update_count = 0;
    fixture->model.slot_count = 0;
    fixture->model.bad_to = NEVER;
    run->step = 0;
    run->saved_step = 0;
    assert_int_equal(train_to_end(run), END_BAD_STEPS);
    assert_int_equal(run->step, 4);
    assert_int_equal(fixture->model.update_count, 4); /* also where another step's slots were begun */
    Error error;
    assert_int_equal(run_finish(run, END_BAD_STEPS, &error), EXIT_FAULT);
    assert_non_null(strstr(error.text, "3 updates in a row"));
    assert_non_null(strstr(error.text, "newest good snapshot: step-00000000.snap"));
}

/* However small, it is a limit: 0 would be none. */
static void test_a_tiny_clip_is_no_0(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    const double clips[] = {0, 1e-300, 1e-45, 1e-38, 0.42, 1};
    for (int i = 0; i < 6; i++) {
        run->step = 0;
        run->options.max_iters = 1;
        run->options.grad_clip = clips[i];
        fixture->model.update_count = fixture->model.slot_count = 0;
        assert_int_equal(train_to_end(run), END_DONE);
        float found = fixture->model.updates[0].grad_clip;
        if ((found > 0) != (clips[i] > 0) || (clips[i] > 1e-37 && found != (float)clips[i])) {
            fail_msg("grad_clip=%g: %g", clips[i], found);
        }
    }
}

/* A snapshot that cannot be written costs nothing but itself, and is an error at the end. */
static void test_failed_snapshots(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    snprintf(run->options.out_dir, sizeof(run->options.out_dir), "%s/tokens.bin", fixture->folder);
    run->options.snapshot_interval = 3;
    assert_int_equal(train_to_end(run), END_DONE);
    assert_int_equal(run->step, 7);
    assert_int_equal(run->failed_snapshots, 3);
    Error error;
    assert_int_equal(run_finish(run, END_DONE, &error), EXIT_FAILED);
    assert_non_null(strstr(error.text, "could not be written (3 failed)"));
}

static void test_evaluation_counts_each_window_once(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    EvaluateArgs args = {.model = &run->model,
                         .batch_size = B,
                         .sequence_tokens = T,
                         .train_set = run->train_set,
                         .val_set = run->val_set,
                         .rank_count = 1};
    EvaluateResult result;
    Error error;
    for (int iters = 0; iters <= 8; iters++) {
        args.iters = iters;
        assert_int_equal(evaluate(&result, &args, &error), 0);
        int windows = iters == 0 || iters * B > WINDOWS ? WINDOWS : iters * B;
        double expected = T * (windows - 1) / 2.0; /* first tokens 0, T, 2T .. */
        assert_true(result.is_complete);
        if (!(fabs(result.val_loss - expected) < 1e-12)) {
            fail_msg("%d batches: expected %.17g, found %.17g", iters, expected, result.val_loss);
        }
        if (windows == WINDOWS) { /* all windows: a sample without replacement is everything */
            assert_true(fabs(result.train_loss - expected) < 1e-12);
        }
    }
}

static void test_best_loss_is_the_lowest(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    run->options.eval_iters = 4;
    Error error;
    assert_int_equal(run_evaluate(run, EVALUATE_ALL, -1, &error), 0);
    assert_true(run->best_loss == T * (4 * B - 1) / 2.0);
    double best = run->best_loss;
    run->options.eval_iters = 5; /* a higher loss */
    assert_int_equal(run_evaluate(run, EVALUATE_ALL, -1, &error), 0);
    assert_true(run->best_loss == best);
}

/* K updates are traced, with what was due after them. */
static void test_trace(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    run->options.trace = 2;
    run->options.eval_interval = 2;
    run->options.eval_iters = 1;
    run->step = 1;
    assert_int_equal(train_to_end(run), END_DONE);
    char path[128];
    snprintf(path, sizeof(path), "%s/trace.json", fixture->folder);
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const json_t *spans = json_object_get(json, "traceEvents");
    int updates = 0, slots = 0, evaluations = 0;
    for (size_t i = 0; i < json_array_size(spans); i++) {
        const json_t *span = json_array_get(spans, i);
        const char *name = json_string_value(json_object_get(span, "name"));
        if (strcmp(json_string_value(json_object_get(span, "ph")), "X") != 0) {
            continue; /* names of threads */
        }
        assert_true(json_number_value(json_object_get(span, "dur")) >= 0);
        int64_t iter = json_integer_value(json_object_get(json_object_get(span, "args"), "iter"));
        assert_true(iter == 1 || iter == 2);
        updates += strcmp(name, "update") == 0;
        slots += strcmp(name, "slot") == 0;
        evaluations += strcmp(name, "evaluate") == 0;
    }
    assert_int_equal(updates, 2);
    assert_int_equal(slots, 2 * G);
    assert_int_equal(evaluations, 1);
    json_decref(json);
}

/* Sends a signal, after which nothing in this process trains again: the last test. */
static void test_signal_throws_the_unfinished_step_away(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    fixture->model.signal_slot = 3 * G + 1;
    assert_int_equal(train_to_end(run), END_SIGNAL);
    assert_int_equal(run->step, 3);
    assert_int_equal(fixture->model.update_count, 3);
    assert_int_equal(fixture->model.slot_count, 3 * G + 2); /* the slot at hand was finished */
    int count;
    assert_int_equal(newest_snapshot(fixture, &count), 3);
    char path[PATH_BYTES_MAX];
    SnapshotInfo info;
    Error error;
    assert_int_equal(snapshot_path(path, fixture->folder, 3, &error), 0);
    assert_int_equal(snapshot_read_info(&info, path, &error), 0);
    assert_int_equal(info.step, 3);
    assert_int_equal(info.sample, 3 * G * B);
    snapshot_info_release(&info);
    assert_int_equal(run_finish(run, END_SIGNAL, &error), EXIT_RUN_AGAIN);
}

int main(void)
{
    stop_install();
    stop_in_order();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_slots_and_updates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_snapshots_when_due_and_at_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_updates_in_a_row, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failed_snapshots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_tiny_clip_is_no_0, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_evaluation_counts_each_window_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_best_loss_is_the_lowest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_trace, set_up, tear_down),
        {"test_slots_and_updates, queued", test_slots_and_updates, set_up_queued, tear_down, NULL},
        cmocka_unit_test_setup_teardown(test_one_slot_is_queued_behind_the_update, set_up_queued, tear_down),
        {"test_snapshots_when_due_and_at_the_end, queued", test_snapshots_when_due_and_at_the_end,
         set_up_queued, tear_down, NULL},
        {"test_bad_updates_in_a_row, queued", test_bad_updates_in_a_row, set_up_queued, tear_down, NULL},
        {"test_trace, queued", test_trace, set_up_queued, tear_down, NULL},
        cmocka_unit_test_setup_teardown(test_signal_throws_the_unfinished_step_away, set_up_queued,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
