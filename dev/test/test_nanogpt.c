/* What is taken of nanoGPT: its configs (Python), its names, its spellings. The texts have the syntax of its
 * config files. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llmc/run/config_file.h"
#include "llmc/run/nanogpt.h"
#include "llmc/run/notices.h"

static OptionErrors errors;

static int read_python(Options *options, const char *text)
{
    options_set_defaults(options);
    errors.count = 0;
    int status = config_file_read(options, "run.py", text, strlen(text), &errors);
    nanogpt_settle(options);
    return status;
}

static void read_good_python(Options *options, const char *text)
{
    if (read_python(options, text) != 0) {
        fail_msg("%s", errors.items[0].text);
    }
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("expected \"%s\" in \"%s\"", part, text);
    }
}

/* Imports, comments behind values, arithmetic, a name made of a call, True and False. */
static void test_a_config_in_python(void **state)
{
    (void)state;
    Options options;
    read_good_python(&options, "\"\"\"\nA recipe.\n\"\"\"\n"
                               "import time\n"
                               "from os import path # not used\n"
                               "\n"
                               "out_dir = 'out-books' # where to\n"
                               "eval_interval=5 # often\n"
                               "eval_only = True\n"
                               "wandb_log = False # feel free\n"
                               "wandb_run_name = 'ft-' + str(time.time())\n"
                               "wandb_entity = f\"{me} # {you}\" # not a comment\n"
                               "always_save_checkpoint = False\n"
                               "gradient_accumulation_steps = 5 * 8\n"
                               "batch_size = 12# no blank\n"
                               "max_iters = 600_000; lr_decay_iters = 6e5\n"
                               "learning_rate = 3e-4\n"
                               "min_lr = learning_rate / 10 # as it should be\n"
                               "weight_decay = 1e-1\r\n"
                               "warmup_iters = (max_iters //\n"
                               "                1000) # over two lines\n"
                               "n_embd = 128 \\\n"
                               "    * 6\n"
                               "start = 'a # b; c\\n'\n"
                               "device = 'cpu'\n"
                               "compile = False\n"
                               "wandb_log = True\n"
                               "bias = True\n"
                               "dtype = 'float32'");
    assert_string_equal(options.out_dir, "out-books");
    assert_int_equal(options.eval_interval, 5);
    assert_int_equal(options.eval_only, 1);
    assert_int_equal(options.gradient_accumulation_steps, 40);
    assert_int_equal(options.batch_size, 12);
    assert_int_equal(options.max_iters, 600000);
    assert_int_equal(options.lr_decay_iters, 600000);
    assert_true(options.learning_rate == 3e-4);
    assert_true(options.min_lr == 3e-4 / 10);
    assert_true(options.weight_decay == 0.1);
    assert_int_equal(options.warmup_iters, 600);
    assert_int_equal(options.n_embd, 768);
    assert_string_equal(options.start, "a # b; c\n");
    assert_int_equal(options.dtype, 0);
    assert_string_equal(options.without_meaning,
                        "wandb_log, wandb_run_name, wandb_entity, always_save_checkpoint, device, compile");
    assert_true(options_is_given(&options, "batch_size"));
    assert_false(options_is_given(&options, "vocab_size"));
}

/* All mistakes of a file in one go, each with the line on which its statement begins. */
static void test_every_mistake_is_told_with_its_line(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "run.py:2: n_layr: unknown option; did you mean n_layer?",
        "run.py:3: batch_size: expected a number, found text",
        "run.py:4: max_iters=2.5: expected an integer from 0",
        "run.py:5: out_dir: expected text in quotes, found a number",
        "run.py:6: expected name = value, import or a comment, found \"if eval_only:\"",
        "run.py:9: eval_only: expected True or False, found text",
        "run.py:10: dataset: expected a closing quote",
        "run.py:11: expected a line that begins in its first column, found blanks",
        "run.py:12: out_dir: expected a number, text in quotes, True or False, found \"str(1)\"",
        "run.py:13: seed: expected a closing bracket",
        "run.py:15: expected name = value, import or a comment, found \"seed += 1\"",
        "run.py:16: expected name = value, import or a comment, found \"seed == 1\"",
        "run.py:17: bias=False: expected True",
        "run.py:18: tokens: unknown option",
        "run.py:19: dropout=1: expected a number from 0 to 0.99",
    };
    Options options;
    assert_int_equal(read_python(&options, "batch_size = 8\n"
                                           "n_layr = 3\n"
                                           "batch_size = 'eight'\n"
                                           "max_iters = 5 / 2\n"
                                           "out_dir = 5\n"
                                           "if eval_only:\n"
                                           "    eval_iters = 500\n"
                                           "    seed = 3\n"
                                           "eval_only = 'True'\n"
                                           "dataset = 'open\n"
                                           "  seed = 4\n"
                                           "out_dir = 'a' + str(1)\n"
                                           "seed = (5 +\n"
                                           "  6]\n"
                                           "seed += 1\n"
                                           "seed == 1\n"
                                           "bias = False\n"
                                           "tokens = 5\n"
                                           "dropout = 1.0\n"),
                     -1);
    size_t count = sizeof(expected) / sizeof(expected[0]);
    for (size_t i = 0; i < count; i++) {
        assert_contains(errors.items[i].text, expected[i]);
    }
    assert_int_equal(errors.count, count);
    assert_int_equal(options.batch_size, 8);
}

/* Those that do not fit are counted. */
static void test_many_mistakes(void **state)
{
    (void)state;
    char text[16 * OPTION_ERRORS_MAX] = "";
    for (int i = 0; i < OPTION_ERRORS_MAX + 3; i++) {
        strcat(text, "nothing = 1\n");
    }
    Options options;
    assert_int_equal(read_python(&options, text), -1);
    assert_int_equal(errors.count, OPTION_ERRORS_MAX + 3);
}

/* In nanoGPT the rate is learning_rate from the first update on, whatever the other options say. */
static void test_decay_lr(void **state)
{
    (void)state;
    Options options;
    read_good_python(&options, "decay_lr = False\nlearning_rate = 3e-5\nwarmup_iters = 100\n");
    assert_int_equal(options.lr_schedule, LR_CONSTANT);
    assert_int_equal(options.warmup_iters, 0);
    assert_int_equal(options.unused_warmup_iters, 100);
    read_good_python(&options, "decay_lr = False\n");
    assert_int_equal(options.warmup_iters, 0);
    assert_int_equal(options.unused_warmup_iters, 0); /* a default is nobody's wish */
    read_good_python(&options, "decay_lr = False\ndecay_lr = True\n");
    assert_int_equal(options.lr_schedule, LR_COSINE);
    assert_int_equal(options.warmup_iters, 2000);
    read_good_python(&options, "decay_lr = False\nlr_schedule = 'constant'\n"); /* later wins */
    assert_int_equal(options.warmup_iters, 2000);
    read_good_python(&options, "lr_schedule = 'wsd'\ndecay_lr = True\n");
    assert_int_equal(options.lr_schedule, LR_WSD);
    read_good_python(&options, "lr_schedule = 'constant'\ndecay_lr = True\n");
    assert_int_equal(options.lr_schedule, LR_COSINE);
    assert_int_equal(read_python(&options, "decay_lr = 0.5\n"), -1);
    assert_contains(errors.items[0].text, "run.py:1: decay_lr: expected True or False, found a number");
}

static void test_spellings_of_dtype(void **state)
{
    (void)state;
    Options options;
    Error error;
    read_good_python(&options, "dtype = 'float32'\n");
    assert_int_equal(options.dtype, 0);
    read_good_python(&options, "dtype = 'float32'\ndtype = 'bfloat16'\n");
    assert_int_equal(options.dtype, 1);
    assert_int_equal(options_set(&options, "dtype", "float16", &error), -1);
    assert_contains(error.text, "dtype=float16: expected fp32|bf16 (float32, bfloat16)");
    assert_int_equal(options_set(&options, "dtype", "bfloat", &error), -1);
    assert_contains(error.text, "dtype=bfloat: expected fp32|bf16");
}

/* The list of names has an end; nothing is written beyond it. */
static void test_names_without_meaning_are_noted_once(void **state)
{
    (void)state;
    Options options;
    Error error;
    options_set_defaults(&options);
    assert_int_equal(options_set(&options, "wandb_log", "what", &error), 0);
    assert_int_equal(options_set(&options, "wandb", "x", &error), -1);
    assert_int_equal(options_set(&options, "wandb_", "x", &error), -1);
    for (int i = 0; i < 1000; i++) {
        char name[32];
        snprintf(name, sizeof(name), "wandb_%d", i % 500);
        assert_int_equal(options_set(&options, name, "x", &error), 0);
    }
    assert_int_equal(options_set(&options, "wandb_log", "x", &error), 0);
    assert_memory_equal(options.without_meaning, "wandb_log, wandb_0, wandb_1, ", 29);
    assert_true(strlen(options.without_meaning) < sizeof(options.without_meaning));
    assert_null(strstr(options.without_meaning + 9, "wandb_log"));
}

static void test_names_of_weights(void **state)
{
    (void)state;
    Error error;
    char folder[] = "test_nanogpt_XXXXXX", before[4096];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    char path[32] = "gpt2-xl";
    assert_int_equal(nanogpt_find_weights(path, sizeof(path), &error), -1);
    assert_contains(error.text, "init_from=gpt2-xl: expected OpenAI's weights in models/gpt2-xl");
    assert_contains(error.text, "curl ");
    assert_contains(error.text, "https://huggingface.co/openai-community/gpt2-xl/resolve/main/");
    char own_path[32] = "models/gpt2";
    assert_int_equal(nanogpt_find_weights(own_path, sizeof(own_path), &error), -1);
    assert_contains(error.text,
                    "init_from=models/gpt2: expected OpenAI's weights in models/gpt2, found no such");
    strcpy(own_path, "models/gpt3"); /* not known here: for the caller to refuse */
    assert_int_equal(nanogpt_find_weights(own_path, sizeof(own_path), &error), 0);
    assert_int_equal(mkdir("models", 0777) | mkdir("models/gpt2-xl", 0777), 0);
    assert_int_equal(nanogpt_find_weights(path, strlen("models/gpt2-xl"), &error), 0);
    assert_string_equal(path, "gpt2-xl"); /* no room */
    assert_int_equal(nanogpt_find_weights(path, sizeof(path), &error), 0);
    assert_string_equal(path, "models/gpt2-xl");
    assert_int_equal(nanogpt_find_weights(path, sizeof(path), &error), 0);
    assert_string_equal(path, "models/gpt2-xl");
    /* What has the very name is taken as it is. */
    assert_int_equal(mkdir("gpt2", 0777), 0);
    strcpy(path, "gpt2");
    assert_int_equal(nanogpt_find_weights(path, sizeof(path), &error), 0);
    assert_string_equal(path, "gpt2");
    assert_int_equal(rmdir("gpt2") | rmdir("models/gpt2-xl") | rmdir("models") | chdir(before), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_notice_of_what_is_left_aside(void **state)
{
    (void)state;
    Options options;
    char *text = NULL;
    size_t bytes = 0;
    read_good_python(&options, "compile = False\nwandb_log = False\ndecay_lr = False\nwarmup_iters = 9\n");
    FILE *file = open_memstream(&text, &bytes);
    notices_print(&options, file);
    fclose(file);
    assert_string_equal(text, "notice: left aside, without meaning here: compile, wandb_log\n"
                              "notice: warmup_iters=9 is left aside: decay_lr=False has no warm-up; "
                              "lr_schedule=constant would\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_config_in_python),
        cmocka_unit_test(test_every_mistake_is_told_with_its_line),
        cmocka_unit_test(test_many_mistakes),
        cmocka_unit_test(test_decay_lr),
        cmocka_unit_test(test_spellings_of_dtype),
        cmocka_unit_test(test_names_without_meaning_are_noted_once),
        cmocka_unit_test(test_names_of_weights),
        cmocka_unit_test(test_notice_of_what_is_left_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
