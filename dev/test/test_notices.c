/* Notices before the first update: what is allowed but probably not meant. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/run/notices.h"

/* What notices_print prints; the caller frees it. */
static char *print(const Options *options)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    notices_print(options, file);
    fclose(file);
    return text;
}

static void assert_notices(const Options *options, const char *expected)
{
    char *text = print(options);
    if (expected[0] ? !strstr(text, expected) : text[0] != '\0') {
        fail_msg("expected \"%s\", found \"%s\"", expected, text);
    }
    free(text);
}

static void set(Options *options, const char *name, const char *value)
{
    Error error;
    if (options_set(options, name, value, &error) != 0) {
        fail_msg("%s", error.text);
    }
}

static void test_notices(void **state)
{
    (void)state;
    Options options;
    options_set_defaults(&options);
    assert_notices(&options, "");
    set(&options, "lr_decay_iters", "100");
    assert_notices(&options, "warmup_iters=2000 is not below lr_decay_iters=100");
    set(&options, "min_lr", "1e-2");
    assert_notices(&options, "min_lr=0.01 is above learning_rate=0.0006: the rate rises");
    set(&options, "lr_schedule", "constant");
    assert_notices(&options, "");
    set(&options, "max_iters", "2000");
    assert_notices(&options,
                   "warmup_iters=2000 is not below max_iters=2000: the run ends during its warm-up, "
                   "at a rate of 0.0006");
    set(&options, "eval_only", "true");
    assert_notices(&options, "");

    options_set_defaults(&options);
    set(&options, "max_iters", "2001");
    assert_notices(&options,
                   "lr_decay_iters=600000 is far beyond max_iters=2001: the rate ends at 0.0006, not "
                   "at min_lr=6e-05");
    set(&options, "max_iters", "300001");
    assert_notices(&options, "");
    set(&options, "max_iters", "1");
    set(&options, "warmup_iters", "0");
    set(&options, "min_lr", "6e-4"); /* nothing to decay to */
    assert_notices(&options, "");
    set(&options, "reduce", "bf16");
    assert_notices(&options, "reduce is not exact");
}

static void test_notices_of_evaluation(void **state)
{
    (void)state;
    static const struct {
        int64_t train_windows, val_windows;
        const char *expected[2]; /* of training, of validation; NULL: not told */
    } cases[] = {
        {2400, 2400, {NULL, NULL}},
        {2400, 2399, {NULL, "are 2,400 windows, but the validation data have 2,399: all"}},
        {2399, 2400, {"are 2,400 windows, but the training data have 2,399", NULL}},
        {1, 1, {"training data have 1:", "validation data have 1:"}},
        {1, 0, {NULL, NULL}}, /* nothing is evaluated */
    };
    Options options;
    options_set_defaults(&options);
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            char *text = NULL;
            size_t bytes = 0;
            FILE *file = open_memstream(&text, &bytes);
            notices_print_evaluation(&options, cases[i].train_windows, cases[i].val_windows, file);
            fclose(file);
            for (int j = 0; j < 2; j++) {
                const char *expected = is_whole ? NULL : cases[i].expected[j];
                const char *split = j ? "validation data" : "training data";
                assert_true(expected ? strstr(text, expected) != NULL : strstr(text, split) == NULL);
            }
            free(text);
        }
        set(&options, "eval_iters", "0"); /* the whole of val is asked for */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notices),
        cmocka_unit_test(test_notices_of_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
