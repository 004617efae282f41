/* What an unknown option is told to have meant. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/run/option_table.h"

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("expected \"%s\" in \"%s\"", part, text);
    }
}

/* *error is what is said of an argument that is no option. */
static void refuse(const char *argument, Error *error)
{
    static OptionErrors errors;
    Options options;
    char *arguments[] = {"train_gpt2", (char *)argument};
    assert_int_equal(options_parse(&options, 2, arguments, &errors), -1);
    assert_int_equal(errors.count, 1);
    *error = errors.items[0];
}

static void test_unknown_names_suggest_what_was_meant(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        /* by its letters */
        {"--batchsize=3", "did you mean batch_size?"},
        {"--batch-size=3", "did you mean batch_size?"},
        {"--learning_rat=3", "did you mean learning_rate?"},
        {"--learnign_rate=3", "did you mean learning_rate?"},
        {"--n_layers=3", "did you mean n_layer?"},
        {"--Seed=1", "did you mean seed?"},
        {"--wram_up_iters=1", "did you mean warmup_iters?"},
        /* by its meaning */
        {"--lr=1", "did you mean learning_rate?"},
        {"--steps=1", "did you mean max_iters?"},
        {"--steps", "did you mean max_iters?"},
        {"--num-iterations=1", "did you mean max_iters?"},
        {"--per_device_train_batch_size=1", "did you mean batch_size?"},
        {"--max_grad_norm=1", "did you mean grad_clip?"},
        {"--gradient_clip=1", "did you mean grad_clip?"},
        {"--warmup_steps=1", "did you mean warmup_iters?"},
        {"--sequence_length=1", "did you mean block_size?"},
        {"--hidden_size=1", "did you mean n_embd?"},
        {"--output_dir=1", "did you mean out_dir?"},
        {"--val_loss_every=1", "did you mean eval_interval?"},
        {"--fp16", "did you mean dtype?"},
        {"--prompt=x", "did you mean start?"},
        {"--epochs=3", "did you mean max_epochs?"},
        {"--num_train_epochs=3", "did you mean max_epochs?"},
        {"--total_batch_size=3", "gradient_accumulation_steps x batch_size x block_size"},
        {"--top_p=0.9", "temperature and top_k"},
        {"--config=x.py", "given by its name alone"},
        /* llm.c's */
        {"-b", "-b: expected --name=value; did you mean --batch_size?"},
        {"-lg=5", "-lg: expected --name=value"},
        {"-z=1", "holds the whole model"},
        {"-batch_size=3", "did you mean --batch_size?"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        Error error;
        refuse(pairs[i][0], &error);
        assert_contains(error.text, pairs[i][1]);
    }
    /* None is better than a wrong one. */
    static const char *const strangers[] = {"--foo=x", "--gamma=1", "--strive=1", "--x=1",
                                            "--model_parallel=2"};
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        Error error;
        refuse(strangers[i], &error);
        assert_contains(error.text, "unknown option; --help lists all");
    }
}

/* Every name that is suggested exists, and none stands twice: the second would never be found. */
static void test_suggestions_are_options(void **state)
{
    (void)state;
    for (int i = 0; i < option_spec_count; i++) {
        Error error;
        char name[128], wanted[160];
        snprintf(name, sizeof(name), "%sx", option_specs[i].name);
        snprintf(wanted, sizeof(wanted), "did you mean %s?", option_specs[i].name);
        assert_int_equal(option_fail_unknown(name, strlen(name), &error), -1);
        assert_contains(error.text, wanted);
    }
    const char *fault = option_names_find_fault();
    if (fault) {
        fail_msg("at \"%s\"", fault);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_names_suggest_what_was_meant),
        cmocka_unit_test(test_suggestions_are_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
