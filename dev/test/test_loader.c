/* The loader hands out what the sample index says, wherever it starts and however slots are shared. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "dev/test/scratch.h"
#include "llmc/data/loader.h"
#include "llmc/data/sample_index.h"

enum { B = 3, T = 5, G = 7, VOCAB = 2000, TOKENS = 1000 };

static DataSet *open_set(void)
{
    Error error;
    uint16_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (uint16_t)i;
    }
    DataSet *set = data_set_open(scratch_write("tokens.bin", tokens, sizeof(tokens)), T, &error);
    if (!set) {
        fail_msg("%s", error.text);
    }
    return set;
}

/* Token i of the file is i, so a row tells which window it is. */
static void check_slot(const int32_t *tokens, const int32_t *targets, const LoaderConfig *config,
                       int64_t step, int slot)
{
    for (int b = 0; b < B; b++) {
        uint64_t n = ((uint64_t)step * G + (uint64_t)slot) * B + (uint64_t)b;
        int64_t window = sample_index(n, data_set_windows(config->set), config->seed, config->is_shuffled);
        for (int t = 0; t < T; t++) {
            int32_t expected = (int32_t)(window * T + t);
            if (tokens[b * T + t] != expected || targets[b * T + t] != expected + 1) {
                fail_msg("step %d slot %d row %d place %d: expected %d -> %d, found %d -> %d", (int)step,
                         slot, b, t, expected, expected + 1, tokens[b * T + t], targets[b * T + t]);
            }
        }
    }
}

/* Ranks of every division of G slots, from several steps, across the ends of epochs. */
static void test_slots_follow_the_sample_index(void **state)
{
    (void)state;
    DataSet *set = open_set();
    Error error;
    for (int ranks = 1; ranks <= G; ranks++) {
        for (int rank = 0; rank < ranks; rank++) {
            for (int is_shuffled = 0; is_shuffled < 2; is_shuffled++) {
                int first = rank * G / ranks;
                LoaderConfig config = {.set = set,
                                       .batch_size = B,
                                       .window_tokens = T,
                                       .slots_per_step = G,
                                       .first_slot = first,
                                       .slot_count = (rank + 1) * G / ranks - first,
                                       .first_step = 4 * ranks,
                                       .seed = 9,
                                       .is_shuffled = is_shuffled,
                                       .vocab_size = VOCAB};
                Loader *loader = loader_create(&config);
                for (int64_t step = config.first_step; step < config.first_step + 30; step++) {
                    for (int k = 0; k < config.slot_count; k++) {
                        const int32_t *tokens;
                        const int32_t *targets;
                        assert_int_equal(loader_next(loader, &tokens, &targets, &error), 0);
                        check_slot(tokens, targets, &config, step, first + k);
                    }
                }
                loader_free(loader);
            }
        }
    }
    data_set_free(set);
}

/* A batch stays as it is while the thread works ahead of it. */
static void test_batch_is_valid_until_the_next(void **state)
{
    (void)state;
    DataSet *set = open_set();
    Error error;
    LoaderConfig config = {.set = set,
                           .batch_size = B,
                           .window_tokens = T,
                           .slots_per_step = G,
                           .slot_count = G,
                           .seed = 1,
                           .is_shuffled = 1,
                           .vocab_size = VOCAB};
    Loader *loader = loader_create(&config);
    for (int i = 0; i < 10; i++) {
        const int32_t *tokens;
        const int32_t *targets;
        assert_int_equal(loader_next(loader, &tokens, &targets, &error), 0);
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
        check_slot(tokens, targets, &config, i / G, i % G);
    }
    loader_free(loader);
    data_set_free(set);
}

/* Slots before the bad token arrive; then each call reports it. */
static void test_bad_token_is_reported_where_it_is_met(void **state)
{
    (void)state;
    DataSet *set = open_set();
    LoaderConfig config = {.set = set,
                           .batch_size = 1,
                           .window_tokens = T,
                           .slots_per_step = 1,
                           .slot_count = 1,
                           .vocab_size = 500};
    Loader *loader = loader_create(&config);
    const int32_t *tokens;
    const int32_t *targets;
    Error error = {.text = ""};
    int made = 0;
    while (loader_next(loader, &tokens, &targets, &error) == 0) {
        made++;
        assert_in_range(made, 1, TOKENS);
    }
    assert_int_equal(made, 99); /* window 99 has 495 .. 499 as tokens and 500 as its last target */
    for (int i = 0; i < 3; i++) {
        assert_non_null(strstr(error.text, "tokens.bin: token 500 at position 500:"));
        error.text[0] = '\0';
        assert_int_equal(loader_next(loader, &tokens, &targets, &error), -1);
    }
    loader_free(loader);
    data_set_free(set);
}

/* Ending a loader never waits for slots that nobody takes. */
static void test_free_at_any_time(void **state)
{
    (void)state;
    DataSet *set = open_set();
    Error error;
    for (int i = 0; i < 200; i++) {
        LoaderConfig config = {.set = set,
                               .batch_size = B,
                               .window_tokens = T,
                               .slots_per_step = G,
                               .slot_count = G,
                               .vocab_size = VOCAB};
        Loader *loader = loader_create(&config);
        for (int taken = 0; taken < i % 7; taken++) {
            const int32_t *tokens;
            const int32_t *targets;
            assert_int_equal(loader_next(loader, &tokens, &targets, &error), 0);
            check_slot(tokens, targets, &config, 0, taken);
        }
        loader_free(loader);
    }
    data_set_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_follow_the_sample_index),
        cmocka_unit_test(test_batch_is_valid_until_the_next),
        cmocka_unit_test(test_bad_token_is_reported_where_it_is_met),
        cmocka_unit_test(test_free_at_any_time),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
