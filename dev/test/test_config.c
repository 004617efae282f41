/* Config files: what a line may be, and that every mistake is told with its file and line. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/run/config_file.h"
#include "llmc/run/options.h"

/* *error is the first of the file. */
static int read_bytes(Options *options, const char *text, size_t bytes, Error *error)
{
    static OptionErrors errors;
    errors.count = 0;
    error->text[0] = '\0';
    int status = config_file_read(options, "my.conf", text, bytes, &errors);
    if (status != 0) {
        *error = errors.items[0];
    }
    return status;
}

static int read_text(Options *options, const char *text, Error *error)
{
    options_set_defaults(options);
    return read_bytes(options, text, strlen(text), error);
}

static void test_lines(void **state)
{
    (void)state;
    Options options;
    Error error;
    const char *text = "# a recipe\n"
                       "\n"
                       "   batch_size = 3   # three rows\n"
                       "block_size=64\r\n"
                       "\tn_layer\t=\t2\n"
                       "out_dir = out-#1\n"
                       "dataset = 'shakespeare' # quoted as in Python\n"
                       "start = \"a # b\\n\\\"c\\\"\"\n"
                       "train_data = ''\n"
                       "shuffle = False\n"
                       "gradient_accumulation_steps = 5 * 8 # as in Python\n"
                       "max_iters = 600_000\n"
                       "lr_decay_iters = max_iters\n"
                       "min_lr = 1e-3 / 10\n"
                       "import time\n"
                       "wandb_run_name = 'ft-' + str(time.time())\n"
                       "learning_rate = 1e-3"; /* no line break at the end */
    if (read_text(&options, text, &error) != 0) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(options.batch_size, 3);
    assert_int_equal(options.block_size, 64);
    assert_int_equal(options.n_layer, 2);
    assert_string_equal(options.out_dir, "out-#1");
    assert_string_equal(options.dataset, "shakespeare");
    assert_string_equal(options.start, "a # b\n\"c\"");
    assert_string_equal(options.train_data, "");
    assert_int_equal(options.shuffle, 0);
    assert_int_equal(options.gradient_accumulation_steps, 40);
    assert_int_equal(options.max_iters, 600000);
    assert_int_equal(options.lr_decay_iters, 600000);
    assert_true(options.min_lr == 1e-4);
    assert_string_equal(options.without_meaning, "wandb_run_name");
    assert_true(options.learning_rate == 1e-3);
    assert_true(options_is_given(&options, "n_layer"));
    assert_false(options_is_given(&options, "n_head"));
}

static void test_later_line_wins(void **state)
{
    (void)state;
    Options options;
    Error error;
    assert_int_equal(read_text(&options, "seed = 1\nseed = 2\n", &error), 0);
    assert_int_equal(options.seed, 2);
}

static void test_bad_lines_name_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *place;
        const char *what;
    } cases[] = {
        {"batch_size\n", "my.conf:1: ", "expected name = value, found \"batch_size\""},
        {"\n\n= 3\n", "my.conf:3: ", "expected name = value"},
        {"# x\nbatch_size 3\n", "my.conf:2: ", "expected name = value"},
        {"seed = 1\nbatch_size =\n", "my.conf:2: ", "batch_size=: expected a value"},
        {"batch_size = # none\n", "my.conf:1: ", "batch_size=: expected a value"},
        {"batch_size = many\n", "my.conf:1: ", "batch_size=many: expected an integer from 1 to 65536"},
        {"batch_size = 12 * many\n", "my.conf:1: ", "batch_size=12 * many: expected an integer"},
        {"batch_size = 1 / 8\n", "my.conf:1: ", "batch_size=0.125: expected an integer"},
        {"dropout = 1.0\n", "my.conf:1: ", "dropout=1.0: expected a number from 0 to 0.99"},
        {"import = 3\n", "my.conf:1: ", "import: unknown option"},
        {"import\n", "my.conf:1: ", "expected name = value"},
        {"bias = False\n", "my.conf:1: ", "bias=False: expected True"},
        {"batchsize = 3\n", "my.conf:1: ", "did you mean batch_size?"},
        {"out_dir = 'open\n", "my.conf:1: ", "a closing quote"},
        {"out_dir = 'a' b\n", "my.conf:1: ", "expected the end of the line, found \"b\""},
        {"learning_rate = nan\n", "my.conf:1: ", "a number from 0 to 100"},
        {"[model]\n", "my.conf:1: ", "expected name = value"},
        {"--batch_size = 3\n", "my.conf:1: ", "unknown option"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Options options;
        Error error;
        if (read_text(&options, cases[i].text, &error) != -1) {
            fail_msg("\"%s\" was accepted", cases[i].text);
        }
        if (strncmp(error.text, cases[i].place, strlen(cases[i].place)) != 0 ||
            !strstr(error.text, cases[i].what)) {
            fail_msg("\"%s\": expected \"%s...%s\", found \"%s\"", cases[i].text, cases[i].place,
                     cases[i].what, error.text);
        }
    }
}

/* The lines after a bad one are looked at, too. */
static void test_all_bad_lines_are_told(void **state)
{
    (void)state;
    static OptionErrors errors;
    Options options;
    const char *text = "batchsize = 3\nblock_size = 64\nseed = -1\n[model]\n";
    options_set_defaults(&options);
    assert_int_equal(config_file_read(&options, "my.conf", text, strlen(text), &errors), -1);
    assert_int_equal(errors.count, 3);
    assert_non_null(strstr(errors.items[0].text, "my.conf:1: batchsize: unknown option"));
    assert_non_null(strstr(errors.items[1].text, "my.conf:3: seed=-1"));
    assert_non_null(strstr(errors.items[2].text, "my.conf:4: expected name = value"));
    assert_int_equal(options.block_size, 64);
}

static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    Options options;
    Error error;
    options_set_defaults(&options);
    assert_int_equal(read_bytes(&options, "seed = 1\n\0\n", 11, &error), -1);
    assert_string_equal(error.text, "my.conf:2: expected text, found a NUL byte");
    assert_int_equal(read_bytes(&options, "", 0, &error), 0);

    static char long_line[3 * OPTION_TEXT_BYTES];
    memset(long_line, 'a', sizeof(long_line));
    assert_int_equal(read_bytes(&options, long_line, sizeof(long_line), &error), -1);
    assert_non_null(strstr(error.text, "my.conf:1: expected a line of at most"));

    /* A value that is one byte too long, quoted and not. */
    memcpy(long_line, "out_dir = ", 10);
    assert_int_equal(read_bytes(&options, long_line, 10 + OPTION_TEXT_BYTES, &error), -1);
    assert_non_null(strstr(error.text, "of at most 4095 bytes"));
    assert_int_equal(read_bytes(&options, long_line, 9 + OPTION_TEXT_BYTES, &error), 0);
    assert_int_equal(strlen(options.out_dir), OPTION_TEXT_BYTES - 1);
    long_line[9] = '\'';
    long_line[10 + OPTION_TEXT_BYTES] = '\'';
    assert_int_equal(read_bytes(&options, long_line, 11 + OPTION_TEXT_BYTES, &error), -1);
}

static void test_config_file_and_arguments_in_order(void **state)
{
    (void)state;
    char path[] = "test_config_XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "w");
    fputs("batch_size = 3\nblock_size = 64\n", file);
    fclose(file);
    Options options;
    static OptionErrors errors;
    char *arguments[] = {"train_gpt2", "--batch_size=1", path, "--block_size=32"};
    int status = options_parse(&options, 4, arguments, &errors);
    remove(path);
    assert_int_equal(status, 0);
    assert_int_equal(options.batch_size, 3);
    assert_int_equal(options.block_size, 32);

    char *folder[] = {"train_gpt2", "."};
    assert_int_equal(options_parse(&options, 2, folder, &errors), -1);
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.items[0].text, "expected a regular file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_later_line_wins),
        cmocka_unit_test(test_bad_lines_name_file_and_line),
        cmocka_unit_test(test_all_bad_lines_are_told),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_config_file_and_arguments_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
