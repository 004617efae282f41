/* HellaSwag: its two files, the scores of endings against those of transformers, and the same result however
 * items are dealt out to batches and ranks.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/compute/cpu_levels.h"
#include "llmc/run/hellaswag.h"
#include "llmc/run/stop.h"

#define FOLDER "dev/test/hellaswag/"

enum { ITEMS = 20, SCORES = ITEMS * HELLASWAG_ENDINGS, V = 50257, SMALL_V = 131 };

static void open_items(HellaSwagSet *set, const char *path)
{
    Error error = {.text = ""};
    memset(set, 0, sizeof(*set));
    if (hellaswag_open(set, path, V, &error) != 0) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(set->count, ITEMS);
}

/* ---- a device whose losses are known ------------------------------------------------------------------- */

enum { NOT_A_NUMBER = 50000, NEVER = 1 << 30 };

struct Model {
    int calls;
    int signal_call; /* which call, counted from 0, sends SIGTERM */
    int tokens_max;  /* of a batch */
};

/* A token's loss is its number, so that an ending's score is the mean of its tokens. */
static void fake_losses(Model *model, float *losses, const int32_t *tokens, const int32_t *targets, int rows,
                        int row_tokens)
{
    assert_true(rows * row_tokens == model->tokens_max);
    if (model->calls++ == model->signal_call) {
        kill(getpid(), SIGTERM);
        while (!stop_requested()) {
            sched_yield(); /* until the thread that takes signals has it */
        }
    }
    for (int i = 0; i < rows * row_tokens; i++) {
        assert_in_range(tokens[i], 0, V - 1);
        if (i % row_tokens < row_tokens - 1 && targets[i + 1] != 0) { /* within what a row holds */
            assert_int_equal(targets[i], tokens[i + 1]);
        }
        losses[i] = targets[i] == NOT_A_NUMBER ? NAN : (float)targets[i] / 1000.0f;
    }
}

static const Backend fake_backend = {.name = "fake", .losses = fake_losses};

/* The same by the definition. */
static double expected_score(const HellaSwagSet *set, const HellaSwagItem *item, int e, int T)
{
    int64_t end = item->first_token + item->context_tokens;
    for (int i = 0; i <= e; i++) {
        end += item->ending_tokens[i];
    }
    int count = item->ending_tokens[e] < T ? item->ending_tokens[e] : T;
    double sum = 0;
    for (int64_t t = end - count; t < end; t++) {
        sum += (float)set->tokens.tokens[t] / 1000.0f;
    }
    return sum / count;
}

static void check_batches(const HellaSwagSet *set, int B, int T)
{
    Model model = {.signal_call = NEVER, .tokens_max = B * T};
    RunModel run_model = {.backend = &fake_backend, .model = &model};
    double scores[SCORES] = {0};
    HellaSwagArgs args = {&run_model, set, B, T, 0, 1, scores};
    HellaSwagResult result;
    hellaswag_score(&result, &args);
    assert_true(result.is_complete && result.items == ITEMS);
    double loss = 0;
    int64_t correct = 0;
    for (int i = 0; i < ITEMS; i++) {
        const HellaSwagItem *item = &set->items[i];
        int chosen = 0;
        for (int e = 0; e < HELLASWAG_ENDINGS; e++) {
            double expected = expected_score(set, item, e, T), found = scores[i * HELLASWAG_ENDINGS + e];
            if (found != expected) {
                fail_msg("B=%d T=%d, item %d, ending %d: expected %.17g, found %.17g", B, T, i, e, expected,
                         found);
            }
            chosen = found < scores[i * HELLASWAG_ENDINGS + chosen] ? e : chosen;
        }
        correct += chosen == item->label;
        loss += scores[i * HELLASWAG_ENDINGS + item->label] / ITEMS;
    }
    assert_int_equal(result.correct, correct);
    assert_true(fabs(result.loss - loss) < 1e-12);
}

/* Whatever fits: rows of the whole, of a half, of a quarter .. of block_size; items longer than it. */
static void test_any_batch(void **state)
{
    (void)state;
    HellaSwagSet set;
    open_items(&set, FOLDER "items.jsonl");
    const int Ts[] = {1, 2, 31, 32, 33, 64, 96, 100, 256};
    for (size_t i = 0; i < sizeof(Ts) / sizeof(Ts[0]); i++) {
        for (int B = 1; B <= 13; B++) {
            check_batches(&set, B, Ts[i]);
        }
    }
    assert_true(hellaswag_cut_items(&set, 1) == ITEMS && hellaswag_cut_items(&set, 1000) == 0);
    assert_int_equal(hellaswag_cut_items(&set, 64), 2);
    hellaswag_release(&set);
}

/* An ending without a number is never chosen; of equal ones the first is. */
static void test_choices(void **state)
{
    (void)state;
    static const struct {
        uint16_t endings[HELLASWAG_ENDINGS];
        int label, is_correct, has_loss;
    } cases[] = {{{7, 5, 6, 8}, 1, 1, 1},
                 {{7, 5, 6, 8}, 2, 0, 1},
                 {{5, 5, 5, 5}, 0, 1, 1},
                 {{5, 5, 5, 5}, 3, 0, 1},
                 {{NOT_A_NUMBER, 9, 9, 8}, 3, 1, 1},
                 {{5, NOT_A_NUMBER, 6, 8}, 1, 0, 0},
                 {{NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER}, 0, 0, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint16_t tokens[5] = {100};
        memcpy(tokens + 1, cases[i].endings, sizeof(cases[i].endings));
        HellaSwagItem item = {0, 1, {1, 1, 1, 1}, cases[i].label};
        HellaSwagSet set = {&item, 1, 1, {tokens, 5, 5}};
        Model model = {.signal_call = NEVER, .tokens_max = 8};
        RunModel run_model = {.backend = &fake_backend, .model = &model};
        HellaSwagArgs args = {&run_model, &set, 4, 2, 0, 1, NULL};
        HellaSwagResult result;
        hellaswag_score(&result, &args);
        assert_int_equal(result.correct, cases[i].is_correct);
        assert_int_equal(!isnan(result.loss), cases[i].has_loss);
    }
}

/* Sends a signal, after which nothing is scored in this process: the last test. */
static void test_signal_ends_it_at_once(void **state)
{
    (void)state;
    HellaSwagSet set;
    open_items(&set, FOLDER "items.jsonl");
    Model model = {.signal_call = 1, .tokens_max = 2 * 64};
    RunModel run_model = {.backend = &fake_backend, .model = &model};
    HellaSwagArgs args = {&run_model, &set, 2, 64, 0, 1, NULL};
    HellaSwagResult result;
    hellaswag_score(&result, &args);
    assert_false(result.is_complete);
    assert_int_equal(model.calls, 2); /* the batch at hand was finished */
    hellaswag_release(&set);
}

/* ---- the model of dev/reference/hellaswag_reference.py ------------------------------------------------- */

/* In [-1, 1), exact in fp32. */
static float uniform(int tensor, int64_t element)
{
    uint32_t x = (uint32_t)element * 2654435761u + (uint32_t)(tensor + 1) * 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return ((float)(int32_t)(x >> 8) - 0x1p23f) / 0x1p23f;
}

static void open_model(RunModel *model, const Backend *backend, int B, int vocab_size, DType dtype)
{
    Error error = {.text = ""};
    ModelConfig config = {
        .shape = {.block_size = 64, .vocab_size = vocab_size, .n_layer = 2, .n_head = 2, .n_embd = 16},
        .batch_size = B,
        .sequence_tokens = 64,
        .slots_per_step = 1,
        .dtype = dtype,
        .is_inference = 1};
    if (run_model_init(model, backend, &config, &error) != 0) {
        fail_msg("%s", error.text);
    }
    for (int i = 0; i < model->table.count; i++) {
        const ParamSpec *spec = &model->table.specs[i];
        int64_t count = param_file_count(spec);
        int is_matrix = spec->dimensions == 2, is_centred = is_matrix || strstr(spec->name, "bias");
        float scale = i == params_wte_index() ? 1.0f : is_matrix ? 0.5f : is_centred ? 0.125f : 0.25f;
        float *values = memory_alloc((size_t)count, sizeof(float), "weights");
        for (int64_t e = 0; e < count; e++) {
            values[e] = uniform(i, e) * scale + (is_centred ? 0.0f : 1.0f);
        }
        backend->write_state(model->model, STATE_WEIGHTS, spec->offset, values, count);
        memory_free(values);
    }
}

static void read_expected(double *scores, int64_t *correct)
{
    FILE *file = fopen(FOLDER "expected.txt", "r");
    assert_non_null(file);
    *correct = 0;
    for (int i = 0; i < ITEMS; i++) {
        double *s = scores + i * HELLASWAG_ENDINGS;
        int chosen, label;
        assert_int_equal(fscanf(file, "%lf %lf %lf %lf %d %d", s, s + 1, s + 2, s + 3, &chosen, &label), 6);
        *correct += chosen == label;
    }
    fclose(file);
}

/* Losses near 10, whose fp32 sums have at most 64 terms, through two blocks: 2^-24 for each of
 * some hundred roundings on the way. */
static void test_scores_are_those_of_transformers(void **state)
{
    (void)state;
    const CpuLevel *levels[CPU_LEVELS_MAX]; /* which compute the same bits in fp32 */
    double expected[SCORES], scores[SCORES];
    int64_t correct;
    HellaSwagSet set;
    RunModel model;
    HellaSwagResult result;
    assert_true(cpu_levels(levels) > 0);
    open_items(&set, FOLDER "items.bin");
    read_expected(expected, &correct);
    open_model(&model, levels[0]->backend, 12, V, DTYPE_FP32);
    HellaSwagArgs args = {&model, &set, 12, 64, 0, 1, scores};
    hellaswag_score(&result, &args);
    for (int i = 0; i < SCORES; i++) {
        if (!(fabs(scores[i] - expected[i]) <= 10 * 100 * 0x1p-24)) {
            fail_msg("item %d, ending %d: expected %.9f, found %.9f", i / 4, i % 4, expected[i], scores[i]);
        }
    }
    assert_int_equal(result.correct, correct);
    run_model_release(&model);
    hellaswag_release(&set);
}

/* The sums of ranks 0 .. N-1, each of which has some of the units, and all scores. */
static void score_by_ranks(HellaSwagResult *result, double scores[SCORES], RunModel *model,
                           const HellaSwagSet *set, int B, int N)
{
    *result = (HellaSwagResult){0};
    for (int rank = 0; rank < N; rank++) {
        HellaSwagArgs share = {model, set, B, 64, rank, N, scores};
        HellaSwagResult part;
        hellaswag_score(&part, &share);
        result->correct += part.correct;
        result->loss += part.loss;
    }
}

/* Any number of ranks: the same scores bit for bit. In fp32 any batch too. */
static void check_shares(const Backend *backend, DType dtype)
{
    double first[SCORES] = {0};
    HellaSwagSet set;
    open_items(&set, FOLDER "items.jsonl");
    for (size_t t = 0; t < set.tokens.count; t++) { /* for a model that takes less time */
        set.tokens.tokens[t] %= SMALL_V;
    }
    for (int B = 1; B <= 6; B += B < 3 ? 2 : 3) {
        RunModel model;
        HellaSwagResult whole, result;
        double expected[SCORES] = {0};
        open_model(&model, backend, B, SMALL_V, dtype);
        score_by_ranks(&whole, expected, &model, &set, B, 1);
        for (int N = 2; N <= 7; N += N < 3 ? 1 : 4) {
            double scores[SCORES] = {0};
            score_by_ranks(&result, scores, &model, &set, B, N);
            assert_int_equal(result.correct, whole.correct);
            assert_memory_equal(scores, expected, sizeof(scores));
            assert_true(fabs(result.loss - whole.loss) < 1e-15 * N * whole.loss); /* sums of doubles */
        }
        if (dtype == DTYPE_FP32 && B > 1) {
            assert_memory_equal(expected, first, sizeof(first));
        }
        memcpy(first, expected, sizeof(first));
        run_model_release(&model);
    }
    hellaswag_release(&set);
}

static void test_ranks_share_the_items(void **state)
{
    (void)state;
    const CpuLevel *levels[CPU_LEVELS_MAX];
    assert_true(cpu_levels(levels) > 0);
    check_shares(levels[0]->backend, DTYPE_FP32);
    check_shares(levels[0]->backend, DTYPE_BF16);
}

/* ---- the seam ------------------------------------------------------------------------------------------ */

/* A token's loss is the same in shorter rows, and their mean is what evaluate gives, also afterwards. */
static void check_losses(const Backend *backend)
{
    enum { B = 3, T = 24, SHORT = 12, COUNT = B * T };
    Error error;
    ModelConfig config = {
        .shape = {.block_size = T, .vocab_size = 131, .n_layer = 2, .n_head = 3, .n_embd = 30},
        .batch_size = B,
        .sequence_tokens = T,
        .slots_per_step = 1};
    RunModel model;
    assert_int_equal(run_model_init(&model, backend, &config, &error), 0);
    run_model_draw_weights(&model, 3);
    int32_t tokens[COUNT], targets[COUNT], short_tokens[COUNT] = {0}, short_targets[COUNT] = {0};
    float losses[COUNT], short_losses[COUNT];
    for (int i = 0; i < COUNT; i++) {
        uint32_t numbers[4];
        random_block(numbers, &(RandomKey){.seed = 9, .purpose = RANDOM_TEST}, (uint64_t)i);
        tokens[i] = (int32_t)(numbers[0] % 131);
        targets[i] = (int32_t)(numbers[1] % 131);
    }
    double mean = backend->evaluate(model.model, tokens, targets, NULL), sum = 0;
    backend->losses(model.model, losses, tokens, targets, B, T);
    for (int i = 0; i < COUNT; i++) {
        sum += losses[i];
    }
    assert_true(sum / COUNT == mean);
    for (int row = 0; row < B; row++) {
        memcpy(short_tokens + row * SHORT, tokens + row * T, SHORT * sizeof(int32_t));
        memcpy(short_targets + row * SHORT, targets + row * T, SHORT * sizeof(int32_t));
    }
    for (int rows = B; rows <= 2 * B; rows++) {
        backend->losses(model.model, short_losses, short_tokens, short_targets, rows, SHORT);
        for (int row = 0; row < B; row++) {
            assert_memory_equal(short_losses + row * SHORT, losses + row * T, SHORT * sizeof(float));
        }
    }
    assert_true(backend->evaluate(model.model, tokens, targets, NULL) == mean);
    run_model_release(&model);
}

static void test_losses_of_shorter_rows(void **state)
{
    (void)state;
    const CpuLevel *levels[CPU_LEVELS_MAX];
    int count = cpu_levels(levels);
    for (int i = 0; i < count; i++) {
        check_losses(levels[i]->backend);
    }
}

int main(void)
{
    stop_install();
    stop_in_order();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_batch),
                                       cmocka_unit_test(test_choices),
                                       cmocka_unit_test(test_losses_of_shorter_rows),
                                       cmocka_unit_test(test_scores_are_those_of_transformers),
                                       cmocka_unit_test(test_ranks_share_the_items),
                                       cmocka_unit_test(test_signal_ends_it_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
