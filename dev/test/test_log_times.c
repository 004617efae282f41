/* Where the time of an update goes: as the log tells it, and which rank is the slowest. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/test/log_fixture.h"

static void assert_numbers(const json_t *json, const char *keys, const double *values)
{
    char key[64];
    for (int used; sscanf(keys, " %63s%n", key, &used) == 1; keys += used, values++) {
        if (number_of(json, key) != *values) {
            fail_msg("%s: expected %g, found %g", key, *values, number_of(json, key));
        }
    }
}

static void test_times_are_told(void **state)
{
    (void)state;
    Captured captured;
    remove_log();
    open_captured(&captured);
    LogStep step = {
        .iter = 12,
        .loss = 4.5,
        .learning_rate = 6e-4,
        .norm = 1.25,
        .ms = 600,
        .epoch = 1.504,
        .times = {.data_ms = 1, .compute_ms = 500, .comm_ms = 70, .exposed_ms = 40, .update_ms = 20},
        .slowest = {.rank = 3, .times = {.data_ms = 2, .compute_ms = 700, .update_ms = 21}},
        .slowest_host = "node\"4",
        .tokens_per_second = 1000,
        .left_ms = -1};
    log_step(&captured.log, &step);
    step.times.forward_ms = step.slowest.times.forward_ms = 200;
    log_step(&captured.log, &step);
    close_captured(&captured);
    assert_string_equal(
        captured.console,
        "iter 12: loss 4.5000, lr 6.00e-04, norm 1.25, time 600.00ms, 1,000 tok/s, epoch 1.50, "
        "compute 500, exposed 40, update 20, data 1ms, slowest rank 3 (node\"4) 723ms\n"
        "iter 12: loss 4.5000, lr 6.00e-04, norm 1.25, time 600.00ms, 1,000 tok/s, epoch 1.50, "
        "forward 200, backward 300, exposed 40, update 20, data 1ms, slowest rank 3 (node\"4) "
        "723ms\n");
    free(captured.console);
    for (int has_forward = 0; has_forward < 2; has_forward++) {
        json_t *json = read_line(has_forward);
        assert_numbers(json, "epoch data_ms compute_ms comm_ms exposed_ms update_ms",
                       (const double[]){1.504, 1, 500, 70, 40, 20});
        assert_numbers(json, "slowest_rank slowest_data_ms slowest_compute_ms slowest_update_ms",
                       (const double[]){3, 2, 700, 21});
        assert_string_equal(json_string_value(json_object_get(json, "slowest_host")), "node\"4");
        if (has_forward) {
            assert_numbers(json, "forward_ms backward_ms slowest_forward_ms slowest_backward_ms",
                           (const double[]){200, 300, 200, 500});
        } else {
            assert_null(json_object_get(json, "forward_ms"));
            assert_null(json_object_get(json, "slowest_backward_ms"));
        }
        json_decref(json);
    }
}

/* One rank: what it notes is what it is told, with the reason. */
static void test_slowest_is_found(void **state)
{
    (void)state;
    Stragglers stragglers;
    stragglers_init(&stragglers, 0, 1);
    assert_int_equal(stragglers_agree(&stragglers, 15, 1), 15);
    assert_int_equal(stragglers.slowest.rank, -1); /* nothing was noted yet */
    StepTimes times = {
        .data_ms = 1.5, .forward_ms = 20.25, .compute_ms = 60.5, .update_ms = 3, .exposed_ms = 99};
    stragglers_note(&stragglers, 7, &times);
    assert_int_equal(stragglers_agree(&stragglers, 0, 0), 0);
    assert_int_equal(stragglers.slowest.rank, -1); /* nobody asked */
    assert_int_equal(stragglers_agree(&stragglers, 0, 1), 0);
    assert_int_equal(stragglers.slowest.rank, 0);
    assert_int_equal(stragglers.slowest.iter, 7);
    assert_true(step_times_busy_ms(&stragglers.slowest.times) == 65);
    assert_true(stragglers.slowest.times.forward_ms == 20.25);
    stragglers_release(&stragglers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times_are_told),
                                       cmocka_unit_test(test_slowest_is_found)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
