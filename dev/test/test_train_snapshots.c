/* Which snapshots the training loop keeps: those that a good update follows, or a finite loss. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/test/train_fixture.h"

/* The steps in the folder, newest first. */
static void expect_steps(const Fixture *fixture, const char *expected)
{
    char found[128] = "";
    int64_t *steps = NULL;
    Error error;
    int count = snapshot_list(&steps, fixture->folder, &error);
    for (int i = 0; i < count; i++) {
        snprintf(found + strlen(found), sizeof(found) - strlen(found), "%d ", (int)steps[i]);
    }
    free(steps);
    assert_string_equal(found, expected);
}

/* Snapshots that skipped updates follow are not kept, and none is deleted for them; the next that a good
 * update follows is. */
static void test_snapshots_of_bad_weights_are_dropped(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    run->options.snapshot_interval = 2;
    run->options.keep_snapshots = 1;
    run->options.max_bad_steps = 3;
    fixture->model.bad_from = 4;
    fixture->model.bad_to = 5;
    assert_int_equal(train_to_end(run), END_DONE);
    /* that after 4 updates was dropped, the next is made as soon as that is known, 7 is the last */
    expect_steps(fixture, "7 ");
    assert_int_equal(run->saved_step, 7);
    assert_int_equal(run->has_dropped, 1);
    assert_int_equal(run->dropped_step, 4);

    run->options.max_iters = 20;
    fixture->model.bad_from = fixture->model.update_count + 1; /* a good update, then no other */
    fixture->model.bad_to = NEVER;
    assert_int_equal(train_to_end(run), END_BAD_STEPS);
    expect_steps(fixture, "7 ");
    Error error;
    assert_int_equal(run_finish(run, END_BAD_STEPS, &error), EXIT_FAULT);
    assert_non_null(strstr(error.text, "newest good snapshot: step-00000007.snap"));
    assert_non_null(strstr(error.text, "not finite"));
    run->is_out_of_range = 1;
    assert_int_equal(run_finish(run, END_BAD_STEPS, &error), EXIT_FAULT);
    assert_non_null(strstr(error.text, "is finite, but beyond 204.8 (1024 / gradient_accumulation_steps)"));
    assert_non_null(strstr(error.text, "--reduce=fp32"));
}

/* The last snapshot is kept if a loss that is computed from it is finite. */
static void test_the_last_snapshot_is_tested(void **state)
{
    Fixture *fixture = *state;
    Run *run = &fixture->run;
    run->options.snapshot_interval = 3;
    fixture->model.loss_ends = 7;
    assert_int_equal(train_to_end(run), END_DONE);
    expect_steps(fixture, "6 3 ");
    Error error;
    assert_int_equal(run_finish(run, END_DONE, &error), EXIT_FAULT);
    assert_non_null(strstr(error.text, "the loss of the weights after 7 updates is not finite"));
    assert_non_null(strstr(error.text, "newest good snapshot: step-00000006.snap"));
}

int main(void)
{
    stop_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_snapshots_of_bad_weights_are_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_last_snapshot_is_tested, set_up, tear_down),
        {"test_snapshots_of_bad_weights_are_dropped, queued", test_snapshots_of_bad_weights_are_dropped,
         set_up_queued, tear_down, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
