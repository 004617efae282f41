/* Options: parsing of values, the table itself, and what is printed from it. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/run/option_table.h"
#include "llmc/run/options.h"

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("expected \"%s\" in \"%s\"", part, text);
    }
}

/* Parse arguments over the defaults. */
static int parse(Options *options, int count, const char *const *arguments, Error *error)
{
    static OptionErrors errors;
    char *items[16] = {"train_gpt2"};
    for (int i = 0; i < count; i++) {
        items[i + 1] = (char *)arguments[i];
    }
    error->text[0] = '\0';
    int status = options_parse(options, count + 1, items, &errors);
    if (status != 0) {
        assert_int_equal(errors.count, 1);
        *error = errors.items[0];
    }
    return status;
}

static int parse_one(Options *options, const char *argument, Error *error)
{
    return parse(options, 1, &argument, error);
}

static void test_defaults_are_nanogpts(void **state)
{
    (void)state;
    Options options;
    options_set_defaults(&options);
    assert_string_equal(options.out_dir, "out");
    assert_string_equal(options.init_from, "scratch");
    assert_string_equal(options.dataset, "openwebtext");
    assert_int_equal(options.eval_interval, 2000);
    assert_int_equal(options.eval_iters, 200);
    assert_int_equal(options.log_interval, 1);
    assert_int_equal(options.gradient_accumulation_steps, 40);
    assert_int_equal(options.batch_size, 12);
    assert_int_equal(options.block_size, 1024);
    assert_int_equal(options.n_layer, 12);
    assert_int_equal(options.n_head, 12);
    assert_int_equal(options.n_embd, 768);
    assert_int_equal(options.vocab_size, 50257);
    assert_int_equal(options.max_iters, 600000);
    assert_int_equal(options.warmup_iters, 2000);
    assert_int_equal(options.lr_decay_iters, 600000);
    assert_int_equal(options.lr_schedule, LR_COSINE);
    assert_int_equal(options.seed, 1337);
    assert_true(options.learning_rate == 6e-4);
    assert_true(options.min_lr == 6e-5);
    assert_true(options.weight_decay == 0.1);
    assert_true(options.beta1 == 0.9);
    assert_true(options.beta2 == 0.95);
    assert_true(options.grad_clip == 1.0);
    assert_true(options.dropout == 0.0);
    assert_string_equal(options.start, "\n");
    assert_true(options.temperature == 0.8);
    assert_int_equal(options.top_k, 200);
    assert_int_equal(options.max_new_tokens, 500);
}

/* The names that the documented contract lists. */
static void test_every_documented_name_exists(void **state)
{
    (void)state;
    static const char names[] =
        "out_dir init_from eval_only sample_only max_iters max_epochs eval_interval eval_iters log_interval "
        "tensorboard status_line "
        "snapshot_interval keep_snapshots snapshot_on milestone_interval seed dataset train_data val_data "
        "hellaswag "
        "shuffle "
        "batch_size block_size gradient_accumulation_steps n_layer n_head n_embd vocab_size dropout "
        "learning_rate lr_schedule warmup_iters lr_decay_iters min_lr weight_decay beta1 beta2 grad_clip "
        "dtype residual reduce bucket_cap_mb overlap cuda_graph share_gpus autotune threads check_interval "
        "max_bad_steps "
        "trace comm_timeout heartbeat_timeout join_timeout port_range start num_samples max_new_tokens "
        "temperature top_k export_hf export_llmc";
    int count = 0;
    for (const char *name = names; *name; count++) {
        size_t bytes = strcspn(name, " ");
        if (option_find(name, bytes) < 0) {
            fail_msg("%.*s is missing", (int)bytes, name);
        }
        name += bytes + (name[bytes] == ' ');
    }
    assert_int_equal(count, option_spec_count);
}

static void test_good_values(void **state)
{
    (void)state;
    Options options;
    Error error;
    assert_int_equal(parse_one(&options, "--batch_size=65536", &error), 0);
    assert_int_equal(options.batch_size, 65536);
    assert_int_equal(parse_one(&options, "--batch_size=1e2", &error), 0);
    assert_int_equal(options.batch_size, 100);
    assert_int_equal(parse_one(&options, "--max_iters=600_000", &error), 0);
    assert_int_equal(options.max_iters, 600000);
    assert_int_equal(parse_one(&options, "--max_iters=3.0", &error), 0);
    assert_int_equal(options.max_iters, 3);
    assert_int_equal(parse_one(&options, "--seed=9007199254740992", &error), 0);
    assert_true(options.seed == 9007199254740992);
    assert_int_equal(parse_one(&options, "--learning_rate=1e-3", &error), 0);
    assert_true(options.learning_rate == 1e-3);
    assert_int_equal(parse_one(&options, "--learning_rate=.5", &error), 0);
    assert_true(options.learning_rate == 0.5);
    assert_int_equal(parse_one(&options, "--shuffle=False", &error), 0);
    assert_int_equal(options.shuffle, 0);
    assert_int_equal(parse_one(&options, "--lr_schedule=wsd", &error), 0);
    assert_int_equal(options.lr_schedule, LR_WSD);
    assert_int_equal(parse_one(&options, "--start=a=b c\n", &error), 0);
    assert_string_equal(options.start, "a=b c\n");
    assert_int_equal(parse_one(&options, "--train_data=", &error), 0);
    assert_string_equal(options.train_data, "");
    assert_true(options_is_given(&options, "train_data"));
    assert_false(options_is_given(&options, "val_data"));
}

/* Each bad argument, and what its error must name: option, value, what was expected. */
static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *argument;
        const char *named[3];
    } cases[] = {
        {"--batch_size=0", {"batch_size=0", "an integer from 1 to 65536", ""}},
        {"--batch_size=-3", {"batch_size=-3", "1 to 65536", ""}},
        {"--batch_size=12x", {"batch_size=12x", "an integer", ""}},
        {"--batch_size= 12", {"batch_size= 12", "an integer", ""}},
        {"--batch_size=1e-2", {"batch_size=1e-2", "an integer", ""}},
        {"--batch_size=3.5", {"batch_size=3.5", "an integer", ""}},
        {"--batch_size=1__2", {"batch_size=1__2", "an integer", ""}},
        {"--batch_size=12_", {"batch_size=12_", "an integer", ""}},
        {"--batch_size=5 * 8", {"batch_size=5 * 8", "an integer", ""}},
        {"--batch_size=+-1", {"batch_size=+-1", "an integer", ""}},
        {"--batch_size=0x10", {"batch_size=0x10", "an integer", ""}},
        {"--batch_size=99999999999999999999999", {"batch_size=999", "an integer", ""}},
        {"--batch_size=", {"batch_size", "found none", ""}},
        {"--batch_size", {"--batch_size=value", "--batch_size value", "found no value"}},
        {"--shuffle=", {"shuffle=", "found none", ""}},
        {"--bias=False", {"bias=False: expected True", "biases", ""}},
        {"--decay_lr=maybe", {"decay_lr=maybe: expected True or False", "", ""}},
        {"--seed=-1", {"seed=-1", "from 0 to 9007199254740992", ""}},
        {"--seed=9007199254740993", {"seed", "from 0 to 9007199254740992", ""}},
        {"--learning_rate=nan", {"learning_rate=nan", "a number from 0 to 100", ""}},
        {"--learning_rate=inf", {"learning_rate=inf", "a number", ""}},
        {"--learning_rate=-inf", {"learning_rate=-inf", "a number", ""}},
        {"--learning_rate=1e999", {"learning_rate=1e999", "a number", ""}},
        {"--learning_rate=-1e-9", {"learning_rate=-1e-9", "from 0", ""}},
        {"--learning_rate=0x1p-3", {"learning_rate=0x1p-3", "a number", ""}},
        {"--learning_rate=6e-4e", {"learning_rate=6e-4e", "a number", ""}},
        {"--learning_rate=-", {"learning_rate=-", "a number", ""}},
        {"--beta2=1", {"beta2=1", "0.9999999", ""}},
        {"--dropout=1.0", {"dropout=1.0", "from 0 to 0.99", ""}},
        {"--temperature=-0.1", {"temperature=-0.1", "from 0 to 100", ""}},
        {"--shuffle=maybe", {"shuffle=maybe", "true or false", ""}},
        {"--shuffle=TRUE", {"shuffle=TRUE", "true or false", ""}},
        {"--dtype=fp16", {"dtype=fp16", "fp32|bf16", ""}},
        {"--dtype=fp", {"dtype=fp", "fp32|bf16", ""}},
        {"--lr_schedule=", {"lr_schedule", "found none", ""}},
        {"--lr_schedule=cosine|linear", {"lr_schedule=cosine|linear", "cosine|linear|constant|wsd", ""}},
        {"--out_dir=", {"out_dir", "found none", ""}},
        {"--port_range=29500", {"port_range=29500", "FIRST-LAST", ""}},
        {"--port_range=29600-29500", {"port_range=29600-29500", "the first not above the last", ""}},
        {"--port_range=0-100", {"port_range=0-100", "from 1 to 65535", ""}},
        {"--port_range=1-65536", {"port_range=1-65536", "from 1 to 65535", ""}},
        {"--port_range=1-5x", {"port_range=1-5x", "FIRST-LAST", ""}},
        {"--n_head=5", {"n_embd=768", "n_head=5", ""}},
        {"--vocab_size=65537", {"vocab_size=65537", "1 to 65536", ""}},
        {"--n_layer=1001", {"n_layer=1001", "1 to 1000", ""}},
        {"--max_iters=100000000", {"max_iters=100000000", "99999999", ""}},
        {"-x", {"-x", "--name=value", ""}},
        {"-batch_size=3", {"-batch_size: ", "--name=value", ""}},
        {"--=3", {"unknown option", "", ""}},
        {"--", {"unknown option", "", ""}},
        {"no_such_file.conf", {"no_such_file.conf", "config file", "no such file"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Options options;
        Error error;
        if (parse_one(&options, cases[i].argument, &error) != -1) {
            fail_msg("%s was accepted", cases[i].argument);
        }
        for (int j = 0; j < 3; j++) {
            assert_contains(error.text, cases[i].named[j]);
        }
    }
}

/* `--name value`, `--flag`, and what the next argument then is. */
static void test_values_that_stand_apart(void **state)
{
    (void)state;
    Options options;
    Error error;
    assert_int_equal(
        parse(&options, 4, (const char *[]){"--batch_size", "3", "--out_dir", "run.conf"}, &error), 0);
    assert_int_equal(options.batch_size, 3);
    assert_string_equal(options.out_dir, "run.conf");
    assert_int_equal(parse(&options, 4, (const char *[]){"--start", "-5", "--train_data", ""}, &error), 0);
    assert_string_equal(options.start, "-5");
    assert_true(options_is_given(&options, "train_data"));
    assert_int_equal(parse(&options, 2, (const char *[]){"--learning_rate", "-1"}, &error), -1);
    assert_contains(error.text, "learning_rate=-1: expected a number from 0");
    assert_int_equal(parse(&options, 2, (const char *[]){"--start=--batch_size", "--start=--x"}, &error), 0);
    assert_string_equal(options.start, "--x");

    assert_int_equal(parse(&options, 2, (const char *[]){"--eval_only", "--seed=2"}, &error), 0);
    assert_true(options.eval_only && options.seed == 2);
    assert_int_equal(parse(&options, 4, (const char *[]){"--shuffle", "False", "--overlap", "0"}, &error), 0);
    assert_true(!options.shuffle && !options.overlap);
    assert_int_equal(parse(&options, 2, (const char *[]){"--autotune", "true"}, &error), 0);
    assert_true(options.autotune);
    /* Not one of the six words: a config file. */
    assert_int_equal(parse(&options, 2, (const char *[]){"--eval_only", "run.conf"}, &error), -1);
    assert_contains(error.text, "run.conf: expected a config file or --name=value, found no such file");
    assert_int_equal(parse(&options, 2, (const char *[]){"--shuffle", "no"}, &error), -1);
    assert_contains(error.text, "no: expected a config file");
    /* A value that is missing is not made of the option behind it. */
    assert_int_equal(parse(&options, 2, (const char *[]){"--batch_size", "--seed=2"}, &error), -1);
    assert_contains(error.text,
                    "--batch_size: expected --batch_size=value or --batch_size value, found --seed=2");
    /* nanoGPT's names follow the same rules. */
    assert_int_equal(
        parse(&options, 6,
              (const char *[]){"--compile", "--decay_lr", "False", "--device", "cpu", "--wandb_log"}, &error),
        0);
    assert_string_equal(options.without_meaning, "compile, device, wandb_log");
    assert_int_equal(options.lr_schedule, LR_CONSTANT);
    assert_int_equal(parse(&options, 1, (const char *[]){"--device"}, &error), -1);
    assert_contains(error.text, "--device: expected --device=value");
    assert_int_equal(parse(&options, 2, (const char *[]){"--nothing", "5"}, &error), -1);
    assert_contains(error.text, "nothing: unknown option");
}

/* A refused value changes nothing. */
static void test_failed_set_leaves_options_alone(void **state)
{
    (void)state;
    Options before, after;
    Error error;
    options_set_defaults(&before);
    after = before;
    char long_text[OPTION_TEXT_BYTES + 1];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    assert_int_equal(options_set(&after, "out_dir", long_text, &error), -1);
    assert_int_equal(options_set(&after, "batch_size", "many", &error), -1);
    assert_int_equal(options_set(&after, "nothing", "1", &error), -1);
    assert_memory_equal(&before, &after, sizeof(before));
}

static void test_later_wins(void **state)
{
    (void)state;
    Options options;
    Error error;
    const char *arguments[] = {"--batch_size=3", "--seed=4", "--batch_size=5"};
    assert_int_equal(parse(&options, 3, arguments, &error), 0);
    assert_int_equal(options.batch_size, 5);
    assert_int_equal(options.seed, 4);
}

/* Everything that print writes into memory. */
static char *printed(void (*print)(const Options *, FILE *), const Options *options)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    print(options, file);
    fclose(file);
    return text;
}

static void test_json_holds_every_option(void **state)
{
    (void)state;
    Options options;
    Error error;
    options_set_defaults(&options);
    assert_int_equal(options_set(&options, "out_dir", "a \"b\" \\ \xff \xc3\xa9 \xed\xa0\x80", &error), 0);
    char *text = printed(options_print_json, &options);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    assert_int_equal(json_object_size(json), option_spec_count);
    assert_string_equal(json_string_value(json_object_get(json, "out_dir")),
                        "a \"b\" \\ \xc3\xbf \xc3\xa9 \xc3\xad\xc2\xa0\xc2\x80");
    assert_true(json_number_value(json_object_get(json, "learning_rate")) == 6e-4);
    assert_string_equal(json_string_value(json_object_get(json, "dtype")), "bf16");
    assert_string_equal(json_string_value(json_object_get(json, "start")), "\n");
    assert_true(json_is_true(json_object_get(json, "shuffle")));
    assert_null(strchr(text, '\n'));
    json_decref(json);
    free(text);
}

static void print_help(const Options *options, FILE *out)
{
    (void)options;
    Error error;
    assert_int_equal(options_print_help(out, "", 80, &error), 0);
}

static void test_help_and_summary_name_every_option(void **state)
{
    (void)state;
    Options options;
    options_set_defaults(&options);
    char *help = printed(print_help, &options);
    char *summary = printed(options_print_summary, &options);
    for (int i = 0; i < option_spec_count; i++) {
        char wanted[128];
        snprintf(wanted, sizeof(wanted), "--%s=", option_specs[i].name);
        assert_contains(help, wanted);
        snprintf(wanted, sizeof(wanted), " %s=", option_specs[i].name);
        assert_contains(summary, wanted);
    }
    free(help);
    free(summary);
}

static char *differences(const Options *options, const char *json, int *count)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    *count = options_print_differences(options, json, file);
    fclose(file);
    return text;
}

/* Only what changes results is told, and numbers compare as numbers. */
static void test_differences_from_a_snapshot(void **state)
{
    (void)state;
    Options options;
    Error error;
    int count;
    options_set_defaults(&options);
    char *json = printed(options_print_json, &options);
    char *text = differences(&options, json, &count);
    assert_int_equal(count, 0);
    assert_string_equal(text, "");
    free(text);

    assert_int_equal(options_set(&options, "batch_size", "4", &error), 0);
    assert_int_equal(options_set(&options, "dtype", "fp32", &error), 0);
    assert_int_equal(options_set(&options, "dropout", "0", &error), 0);
    assert_int_equal(options_set(&options, "max_iters", "7", &error), 0);
    text = differences(&options, json, &count);
    assert_int_equal(count, 2);
    assert_contains(text, "batch_size was 12 when the snapshot was written, is now 4");
    assert_contains(text, "dtype was \"bf16\" when the snapshot was written, is now \"fp32\"");
    free(text);
    free(json);
    free(differences(&options, "not json", &count));
    assert_int_equal(count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_nanogpts),
        cmocka_unit_test(test_every_documented_name_exists),
        cmocka_unit_test(test_good_values),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_values_that_stand_apart),
        cmocka_unit_test(test_failed_set_leaves_options_alone),
        cmocka_unit_test(test_later_wins),
        cmocka_unit_test(test_json_holds_every_option),
        cmocka_unit_test(test_help_and_summary_name_every_option),
        cmocka_unit_test(test_differences_from_a_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
