/* Learning rates: nanoGPT's formula at each of its corners, and the other schedules at theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "llmc/run/schedule.h"

static Options options_of(LrSchedule kind)
{
    static Options options;
    options_set_defaults(&options);
    options.lr_schedule = (int)kind;
    options.learning_rate = 1e-3;
    options.min_lr = 1e-4;
    options.warmup_iters = 10;
    options.lr_decay_iters = 110;
    return options;
}

static void assert_rate(const Options *options, int64_t iter, double expected)
{
    double found = schedule_learning_rate(options, iter);
    if (!(fabs(found - expected) <= 1e-15)) {
        fail_msg("iter %lld: expected %.17g, found %.17g", (long long)iter, expected, found);
    }
}

static void test_warm_up(void **state)
{
    (void)state;
    for (int kind = LR_COSINE; kind <= LR_WSD; kind++) {
        Options options = options_of((LrSchedule)kind);
        assert_rate(&options, 0, 1e-3 * 1 / 11);
        assert_rate(&options, 9, 1e-3 * 10 / 11);
        assert_rate(&options, 10, 1e-3);
        options.warmup_iters = 0;
        assert_rate(&options, 0, 1e-3);
    }
}

static void test_cosine(void **state)
{
    (void)state;
    Options options = options_of(LR_COSINE);
    assert_rate(&options, 60, 5.5e-4);
    assert_rate(&options, 35, 1e-4 + 9e-4 * 0.5 * (1 + sqrt(0.5)));
    assert_rate(&options, 110, 1e-4);
    assert_rate(&options, 99999999, 1e-4);
}

static void test_linear(void **state)
{
    (void)state;
    Options options = options_of(LR_LINEAR);
    assert_rate(&options, 35, 1e-4 + 9e-4 * 0.75);
    assert_rate(&options, 109, 1e-4 + 9e-4 * 0.01);
    assert_rate(&options, 110, 1e-4);
    assert_rate(&options, 111, 1e-4);
}

static void test_constant(void **state)
{
    (void)state;
    Options options = options_of(LR_CONSTANT);
    assert_true(schedule_learning_rate(&options, 10) == 1e-3);
    assert_true(schedule_learning_rate(&options, 99999999) == 1e-3);
}

static void test_wsd(void **state)
{
    (void)state;
    Options options = options_of(LR_WSD);
    assert_true(schedule_learning_rate(&options, 88) == 1e-3); /* the last fifth begins here */
    assert_rate(&options, 99, 1e-4 + 9e-4 * (1 - sqrt(0.5)));
    assert_rate(&options, 110, 1e-4);
}

/* A warm-up that ends after the decay has no room for a curve: no division by zero, no jump up. */
static void test_warm_up_beyond_decay(void **state)
{
    (void)state;
    for (int kind = LR_COSINE; kind <= LR_WSD; kind++) {
        Options options = options_of((LrSchedule)kind);
        options.warmup_iters = 110;
        assert_rate(&options, 109, 1e-3 * 110 / 111);
        assert_rate(&options, 110, kind == LR_CONSTANT ? 1e-3 : 1e-4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warm_up), cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_linear),  cmocka_unit_test(test_constant),
        cmocka_unit_test(test_wsd),     cmocka_unit_test(test_warm_up_beyond_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
