/* Sampling: the draw itself, and what is asked of a model while text grows beyond its window. The model is a
 * fake that knows only the order of its tokens.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/run/sample.h"
#include "llmc/text/tokenizer.h"

/* ---- the draw ------------------------------------------------------------------------------------------ */

static void test_argmax(void **state)
{
    (void)state;
    const float logits[] = {1, 5, 3, 5, 4};
    int scratch[5];
    assert_int_equal(sample_token(logits, 5, 0, 0, 0.999, scratch), 1); /* of two equal ones the lower id */
    assert_int_equal(sample_token(logits, 5, 1, 1, 0.999, scratch), 1);
    assert_int_equal(sample_token(logits, 1, 1, 0, 0.5, scratch), 0);
    assert_int_equal(sample_token(logits, 5, 1e-300, 0, 0.4, scratch), 1);
}

/* Each token owns its share of [0, 1), likeliest first. */
static void test_shares(void **state)
{
    (void)state;
    const float logits[] = {logf(1), logf(4), logf(2), logf(1)};
    int scratch[4];
    assert_int_equal(sample_token(logits, 4, 1, 0, 0.0, scratch), 1);
    assert_int_equal(sample_token(logits, 4, 1, 0, 0.49, scratch), 1);
    assert_int_equal(sample_token(logits, 4, 1, 0, 0.51, scratch), 2);
    assert_int_equal(sample_token(logits, 4, 1, 0, 0.74, scratch), 2);
    assert_int_equal(sample_token(logits, 4, 1, 0, 0.76, scratch), 0);
    assert_int_equal(sample_token(logits, 4, 1, 0, 0.88, scratch), 3);
    /* top_k 2: 4/6 and 2/6 */
    assert_int_equal(sample_token(logits, 4, 1, 2, 0.66, scratch), 1);
    assert_int_equal(sample_token(logits, 4, 1, 2, 0.67, scratch), 2);
    /* temperature 0.5 squares: 16 of 22 */
    assert_int_equal(sample_token(logits, 4, 0.5, 0, 0.72, scratch), 1);
    assert_int_equal(sample_token(logits, 4, 0.5, 0, 0.74, scratch), 2);
}

static void test_top_k_keeps_the_likeliest(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    float logits[COUNT];
    int scratch[COUNT];
    uint32_t seed = 1;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525u + 1013904223u;
        logits[i] = (float)(seed >> 22); /* many ties */
    }
    for (int top_k = 1; top_k <= COUNT; top_k = top_k * 3 + 1) {
        sample_token(logits, COUNT, 1, top_k, 0.5, scratch);
        for (int i = 1; i < top_k; i++) {
            int a = scratch[i - 1];
            int b = scratch[i];
            assert_true(logits[a] > logits[b] || (logits[a] == logits[b] && a < b));
        }
        int better = 0;
        int last = scratch[top_k - 1];
        for (int i = 0; i < COUNT; i++) {
            better += logits[i] > logits[last] || (logits[i] == logits[last] && i < last);
        }
        assert_int_equal(better, top_k - 1);
    }
}

static void test_logits_that_are_no_numbers(void **state)
{
    (void)state;
    const float logits[] = {NAN, INFINITY, NAN, -INFINITY};
    int scratch[4];
    int token = sample_token(logits, 4, 0.8, 3, 0.5, scratch);
    assert_true(token >= 0 && token < 4);
}

/* ---- a fake model -------------------------------------------------------------------------------------- */

/* Remembers what it was asked to read; always wants the letter after the last token. */
struct Model {
    int32_t read[64];
    int read_count; /* of the sequence so far */
    int starts;     /* how often a sequence began */
    int block_size, vocab_size;
    int is_wrong;
};

static void fake_decode(Model *model, const int32_t *tokens, int count, int position, float *logits)
{
    model->is_wrong |= position > model->read_count || position + count > model->block_size || count < 1;
    model->starts += position == 0;
    memcpy(model->read + position, tokens, (size_t)count * sizeof(int32_t));
    model->read_count = position + count;
    for (int i = 0; i < model->vocab_size; i++) {
        logits[i] = 0;
    }
    logits[(tokens[count - 1] + 1) % model->vocab_size] = 100;
}

static const Backend fake_backend = {.name = "fake", .decode = fake_decode};

/* Sample from the fake model; the text, which the caller frees, or NULL with *error. */
static char *draw(Model *fake, int block_size, int vocab_size, const Options *options, int samples,
                  Error *error)
{
    *fake = (Model){.block_size = block_size, .vocab_size = vocab_size};
    RunModel model = {.backend = &fake_backend, .model = fake};
    model.table.shape = (ModelShape){.block_size = block_size, .vocab_size = vocab_size};
    char *text = NULL;
    size_t bytes = 0;
    Prompt prompt;
    static Options own;
    own = *options;
    own.vocab_size = vocab_size;
    if (prompt_init(&prompt, &own, NULL, error) != 0) {
        return NULL;
    }
    FILE *out = open_memstream(&text, &bytes);
    int status = sample(out, options, samples, &prompt, &model, error);
    fclose(out);
    prompt_release(&prompt);
    if (status != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static Options options_for(const char *start, int tokens)
{
    static Options options;
    Error error;
    options_set_defaults(&options);
    options.max_new_tokens = tokens;
    options.temperature = 0;
    if (options_set(&options, "start", start, &error) != 0) {
        fail_msg("%s", error.text);
    }
    return options;
}

/* GPT-2's ids 32 .. 57 are the letters A .. Z. */
static void test_text_and_separators(void **state)
{
    (void)state;
    Model fake;
    Error error;
    Options options = options_for("A", 5);
    char *text = draw(&fake, 16, 50257, &options, 2, &error);
    assert_string_equal(text, "ABCDEF\n---------------\nABCDEF\n---------------\n");
    assert_false(fake.is_wrong);
    assert_int_equal(fake.read_count, 5); /* the last token drawn need not be read */
    free(text);
}

/* A full window goes on with its second half, read again from position 0. */
static void test_window_slides(void **state)
{
    (void)state;
    for (int block_size = 1; block_size <= 6; block_size++) {
        Model fake;
        Error error;
        Options options = options_for("A", 20);
        char *text = draw(&fake, block_size, 50257, &options, 1, &error);
        assert_string_equal(text, "ABCDEFGHIJKLMNOPQRSTU\n---------------\n");
        assert_false(fake.is_wrong);
        for (int i = 1; i < fake.read_count; i++) {
            assert_int_equal(fake.read[i], fake.read[i - 1] + 1);
        }
        assert_int_equal(fake.read[fake.read_count - 1], 32 + 19);
        free(text);
    }
}

static void test_start_longer_than_the_window(void **state)
{
    (void)state;
    Model fake;
    Error error;
    Options options = options_for("1 2 3 4 5 6 7 8 A", 2);
    char *text = draw(&fake, 3, 50257, &options, 1, &error);
    assert_non_null(text);
    assert_memory_equal(text, "1 2 3 4 5 6 7 8 A", 17); /* printed whole, though read from its end only */
    assert_false(fake.is_wrong);
    free(text);
}

static void test_special_token(void **state)
{
    (void)state;
    Model fake;
    Error error;
    Options options = options_for("<|endoftext|>A<|endoftext|>", 1);
    char *text = draw(&fake, 16, 50257, &options, 1, &error);
    assert_int_equal(fake.read_count, 3);
    assert_int_equal(fake.read[0], TOKENIZER_EOT);
    assert_int_equal(fake.read[1], 32);
    assert_int_equal(fake.read[2], TOKENIZER_EOT);
    free(text);
}

/* Ids beyond GPT-2's vocabulary have no text, so they are never drawn. */
static void test_padded_vocabulary(void **state)
{
    (void)state;
    Model fake;
    Error error;
    Options options = options_for("<|endoftext|>", 3);
    char *text = draw(&fake, 16, 50304, &options, 1, &error); /* the fake wants 50257 after 50256 */
    assert_string_equal(text, "<|endoftext|>!\"#\n---------------\n");
    free(text);
}

static void test_start_beyond_a_small_vocabulary(void **state)
{
    (void)state;
    Model fake;
    Error error;
    Options options = options_for("\n", 3); /* token 198 */
    assert_null(draw(&fake, 16, 198, &options, 1, &error));
    assert_string_equal(error.text,
                        "start: token 198 is beyond the model's vocab_size=198; choose another start");
    char *text = draw(&fake, 16, 199, &options, 1, &error);
    assert_non_null(text);
    free(text);
}

static void test_start_from_a_file(void **state)
{
    (void)state;
    Model fake;
    Error error;
    char path[] = "test_sample_XXXXXX";
    int descriptor = mkstemp(path);
    FILE *file = fdopen(descriptor, "w");
    fputs("A", file);
    fflush(file);
    char start[64];
    snprintf(start, sizeof(start), "FILE:%s", path);
    Options options = options_for(start, 2);
    char *text = draw(&fake, 16, 50257, &options, 1, &error);
    assert_string_equal(text, "ABC\n---------------\n");
    free(text);
    assert_int_equal(ftruncate(descriptor, 0), 0);
    assert_null(draw(&fake, 16, 50257, &options, 1, &error));
    assert_non_null(strstr(error.text, "found an empty file"));
    fclose(file);
    remove(path);
    assert_null(draw(&fake, 16, 50257, &options, 1, &error));
    assert_non_null(strstr(error.text, "start: "));
}

/* Samples differ from each other by their number, and are the same when drawn again. */
static void test_samples_are_reproducible(void **state)
{
    (void)state;
    Model fake;
    Error error;
    Options options = options_for("A", 20);
    options.temperature = 100; /* all but uniform */
    char *first = draw(&fake, 64, 300, &options, 2, &error);
    char *again = draw(&fake, 64, 300, &options, 2, &error);
    assert_string_equal(first, again);
    options.seed = 1;
    char *other = draw(&fake, 64, 300, &options, 2, &error);
    assert_string_not_equal(first, other);
    char *second = strstr(first, "---------------\n") + 16;
    assert_int_not_equal(strncmp(first, second, 12), 0);
    free(first);
    free(again);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_argmax),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_top_k_keeps_the_likeliest),
        cmocka_unit_test(test_logits_that_are_no_numbers),
        cmocka_unit_test(test_text_and_separators),
        cmocka_unit_test(test_window_slides),
        cmocka_unit_test(test_start_longer_than_the_window),
        cmocka_unit_test(test_special_token),
        cmocka_unit_test(test_padded_vocabulary),
        cmocka_unit_test(test_start_beyond_a_small_vocabulary),
        cmocka_unit_test(test_start_from_a_file),
        cmocka_unit_test(test_samples_are_reproducible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
