/* The whole CPU model through the seam, at every level that this machine runs: gradients against finite
 * differences (with dropout too), the same bits for any number of threads and any split of the slots, skipped
 * updates, decoding. */
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/compute/cpu_levels.h"

enum { B = 2, T = 19 };

static const ModelConfig small = {
    .shape = {.block_size = 24, .vocab_size = 131, .n_layer = 2, .n_head = 3, .n_embd = 30},
    .batch_size = B,
    .sequence_tokens = T,
    .slots_per_step = 1,
    .seed = 5};

static void draw_batch(int32_t *tokens, int32_t *targets, uint32_t slot)
{
    RandomKey key = {.seed = 9, .purpose = RANDOM_TEST, .slot = slot};
    for (int i = 0; i < B * T; i++) {
        uint32_t numbers[4];
        random_block(numbers, &key, (uint64_t)i);
        tokens[i] = (int32_t)(numbers[0] % 131);
        targets[i] = (int32_t)(numbers[1] % 131);
    }
}

/* Weights an order larger than GPT-2's, so that every part of the model bends the loss. */
static void draw_weights(const Backend *backend, Model *model, const ParamTable *table)
{
    float *values = memory_alloc_zeroed((size_t)table->arena_count, sizeof(float), "weights");
    for (int i = 0; i < table->count; i++) {
        const ParamSpec *spec = &table->specs[i];
        RandomKey key = {.seed = 1, .purpose = RANDOM_TEST, .step = 1, .slot = (uint32_t)i};
        random_normal(values + spec->offset, param_file_count(spec), 0.2f, &key, 0);
        for (int64_t e = 0; spec->init == INIT_ONE && e < param_file_count(spec); e++) {
            values[spec->offset + e] += 1.0f;
        }
    }
    backend->write_state(model, STATE_WEIGHTS, 0, values, table->arena_count);
    memory_free(values);
}

static Model *make_model(const Backend *backend, const ModelConfig *config, ParamTable *table)
{
    Error error;
    Model *model = backend->create(config, &error);
    assert_non_null(model);
    params_init(table, &config->shape);
    draw_weights(backend, model, table);
    return model;
}

static void run_slots(const Backend *backend, Model *model, uint32_t first, uint32_t end)
{
    int32_t tokens[B * T], targets[B * T];
    for (uint32_t slot = first; slot < end; slot++) {
        SlotContext context = {
            .step = 3, .slot = slot, .is_first = slot == first, .is_last = slot + 1 == end};
        draw_batch(tokens, targets, slot);
        backend->train_slot(model, tokens, targets, &context);
    }
}

static double loss_of(const Backend *backend, Model *model)
{
    run_slots(backend, model, 0, 1);
    GradientArena arena = backend->gradients(model);
    assert_int_equal(arena.tail[TAIL_BAD], 0);
    return (double)arena.tail[TAIL_LOSS] * 0x1p-52;
}

/* Loss along +-h times the gradient of one tensor falls and rises by h times its squared norm. Third
 * derivatives and the rounding of a loss near 5 (2^-24 of it, times the depth of the sums) leave less than
 * 1%. */
static void check_slopes(const Backend *backend, float dropout)
{
    ParamTable table;
    ModelConfig config = small;
    config.dropout = dropout;
    Model *model = make_model(backend, &config, &table);
    size_t count = (size_t)table.arena_count;
    float *weights = memory_alloc(count, sizeof(float), "weights");
    float *gradients = memory_alloc_zeroed(count, sizeof(float), "gradients");
    float *moved = memory_alloc(count, sizeof(float), "weights");
    loss_of(backend, model);
    backend->read_state(model, STATE_WEIGHTS, 0, weights, table.arena_count);
    for (int i = 0; i < table.count; i++) {
        const ParamSpec *spec = &table.specs[i];
        backend->read_state(model, STATE_GRADIENTS, spec->offset, gradients + spec->offset,
                            spec->arena_count);
    }
    for (int i = 0; i < table.count; i++) {
        const ParamSpec *spec = &table.specs[i];
        double norm = 0, losses[2];
        for (int64_t e = spec->offset; e < spec->offset + spec->arena_count; e++) {
            norm += (double)gradients[e] * gradients[e];
        }
        double h = 4e-3 / sqrt(norm);
        for (int side = 0; side < 2; side++) {
            memcpy(moved, weights, count * sizeof(float));
            for (int64_t e = spec->offset; e < spec->offset + spec->arena_count; e++) {
                moved[e] += (float)((side ? h : -h) * gradients[e]);
            }
            backend->write_state(model, STATE_WEIGHTS, 0, moved, table.arena_count);
            losses[side] = loss_of(backend, model);
        }
        double slope = (losses[1] - losses[0]) / (2 * h);
        if (!(fabs(slope - norm) <= 0.01 * norm + 2e-6 / h)) {
            fail_msg("%s: %s: slope of the loss %.9g, gradient says %.9g", backend->name, spec->name, slope,
                     norm);
        }
    }
    memory_free(weights);
    memory_free(gradients);
    memory_free(moved);
    params_release(&table);
    backend->release(model);
}

static void for_each_level(void (*check)(const Backend *backend))
{
    const CpuLevel *levels[CPU_LEVELS_MAX];
    int count = cpu_levels(levels);
    for (int i = 0; i < count; i++) {
        check(levels[i]->backend);
    }
}

static void check_gradients(const Backend *backend)
{
    check_slopes(backend, 0.0f);
}

static void test_gradients_are_slopes(void **state)
{
    (void)state;
    for_each_level(check_gradients);
}

static void check_gradients_with_dropout(const Backend *backend)
{
    check_slopes(backend, 0.25f);
}

static void test_gradients_are_slopes_under_dropout(void **state)
{
    (void)state;
    for_each_level(check_gradients_with_dropout);
}

/* Weights after three updates of one configuration; the caller frees. */
static float *train(const Backend *backend, ModelConfig config, int threads)
{
    omp_set_num_threads(threads);
    ParamTable table;
    Model *model = make_model(backend, &config, &table);
    for (int step = 0; step < 3; step++) {
        UpdateArgs args = {.learning_rate = 1e-3f,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .epsilon = 1e-8f,
                           .weight_decay = 0.1f,
                           .grad_clip = 1.0f,
                           .update_number = step + 1};
        StepResult result;
        run_slots(backend, model, 0, (uint32_t)config.slots_per_step);
        backend->update(model, &args, &result);
        assert_false(result.is_skipped);
    }
    float *weights = memory_alloc((size_t)table.arena_count, sizeof(float), "weights");
    backend->read_state(model, STATE_WEIGHTS, 0, weights, table.arena_count);
    for (int64_t i = 131 * 30; i < table.specs[0].arena_count; i++) {
        assert_true(weights[i] == 0.0f); /* vocabulary padding */
    }
    params_release(&table);
    backend->release(model);
    omp_set_num_threads(omp_get_num_procs());
    return weights;
}

static void check_threads(const Backend *backend)
{
    for (int variant = 0; variant < 8; variant++) {
        ModelConfig config = small;
        config.dtype = variant & 1 ? DTYPE_BF16 : DTYPE_FP32;
        config.slots_per_step = variant & 2 ? 3 : 1;
        config.reduce = variant & 4 ? REDUCE_FP32 : REDUCE_EXACT;
        config.dropout = variant & 2 ? 0.1f : 0.0f;
        ParamTable table;
        params_init(&table, &config.shape);
        float *one = train(backend, config, 1);
        for (int threads = 2; threads <= 3; threads++) {
            float *several = train(backend, config, threads);
            assert_memory_equal(one, several, (size_t)table.arena_count * sizeof(float));
            memory_free(several);
        }
        memory_free(one);
        params_release(&table);
    }
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    for_each_level(check_threads);
}

/* The sum over ranks of one model's arena, with its late rows added. */
static void add_arena(int64_t *sums, const Backend *backend, Model *model)
{
    GradientArena arena = backend->gradients(model);
    assert_true(arena.is_int64);
    for (int64_t i = 0; i < arena.count; i++) {
        sums[i] += ((int64_t *)arena.elements)[i];
    }
    for (int row = 0; row < arena.late.count; row++) {
        for (int c = 0; c < 30; c++) {
            sums[arena.late.tokens[row] * 30 + c] += arena.late.sums[row * 30 + c];
        }
    }
}

/* Two models do three and two of five slots, in the place of two ranks: the sum is what one model has. */
static void check_split(const Backend *backend)
{
    ModelConfig config = small;
    config.slots_per_step = 5;
    ParamTable table;
    Model *one = make_model(backend, &config, &table);
    params_release(&table);
    config.is_distributed = 1;
    Model *first = make_model(backend, &config, &table);
    params_release(&table);
    Model *second = make_model(backend, &config, &table);
    run_slots(backend, one, 0, 5);
    run_slots(backend, first, 0, 3);
    run_slots(backend, second, 3, 5);
    int64_t *sums = memory_alloc_zeroed((size_t)table.arena_count, sizeof(int64_t), "sums");
    add_arena(sums, backend, first);
    add_arena(sums, backend, second);
    GradientArena whole = backend->gradients(one), a = backend->gradients(first),
                  b = backend->gradients(second);
    assert_int_equal(whole.late.count, 0);
    assert_true(a.late.count > 0);
    for (int64_t i = 0; i < whole.count; i++) {
        if (sums[i] != ((int64_t *)whole.elements)[i]) {
            fail_msg("%s: sum %lld differs from %lld at %lld", backend->name, (long long)sums[i],
                     (long long)((int64_t *)whole.elements)[i], (long long)i);
        }
    }
    assert_int_equal(a.tail[TAIL_LOSS] + b.tail[TAIL_LOSS], whole.tail[TAIL_LOSS]);
    memory_free(sums);
    params_release(&table);
    backend->release(one);
    backend->release(first);
    backend->release(second);
}

static void test_split_of_slots_changes_no_bit(void **state)
{
    (void)state;
    for_each_level(check_split);
}

/* One step; returns the arena of `kind` after it. */
static float *after_step(StepResult *result, const Backend *backend, const ModelConfig *config,
                         StateKind kind)
{
    ParamTable table;
    Model *model = make_model(backend, config, &table);
    UpdateArgs args = {.learning_rate = 1e-3f, .epsilon = 1e-8f, .grad_clip = 0.1f, .update_number = 1};
    float *values = memory_alloc((size_t)table.arena_count, sizeof(float), "state");
    run_slots(backend, model, 0, (uint32_t)config->slots_per_step);
    backend->update(model, &args, result);
    backend->read_state(model, kind, 0, values, table.arena_count);
    params_release(&table);
    backend->release(model);
    return values;
}

/* The norm is that of the gradients that can be read, up to the rounding of sums in double: also of rows of
 * wte that changed after they were normed. A model that has to wait for other ranks finds the same one. */
static void check_norms(const Backend *backend)
{
    static const struct {
        ReduceMode reduce;
        int slots;
    } cases[] = {{REDUCE_EXACT, 1}, {REDUCE_EXACT, 3}, {REDUCE_FP32, 1}, {REDUCE_FP32, 3}};
    ParamTable table;
    params_init(&table, &small.shape);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ModelConfig config = small;
        StepResult early, late;
        config.reduce = cases[i].reduce;
        config.slots_per_step = cases[i].slots;
        float *gradients = after_step(&early, backend, &config, STATE_GRADIENTS);
        double squares = 0;
        for (int64_t e = 0; e < table.arena_count; e++) {
            squares += (double)gradients[e] * (double)gradients[e];
        }
        double bound = (double)table.arena_count * 0x1p-53 * sqrt(squares);
        if (!(fabs(early.norm - sqrt(squares)) <= bound)) {
            fail_msg("%s: expected norm %.17g, found %.17g", backend->name, sqrt(squares), early.norm);
        }
        memory_free(gradients);
        if (config.reduce == REDUCE_FP32 || config.slots_per_step == 1) { /* else late rows stand apart */
            float *weights = after_step(&early, backend, &config, STATE_WEIGHTS);
            config.is_distributed = 1;
            float *same = after_step(&late, backend, &config, STATE_WEIGHTS);
            assert_true(early.norm > 0.1 && early.norm == late.norm);
            assert_memory_equal(weights, same, (size_t)table.arena_count * sizeof(float));
            memory_free(weights);
            memory_free(same);
        }
    }
    params_release(&table);
}

static void test_norms_do_not_depend_on_when_they_are_taken(void **state)
{
    (void)state;
    for_each_level(check_norms);
}

typedef struct RangeLog {
    int64_t next_end; /* ranges come from the top of the arena down */
    int64_t top;      /* where the next one starts after the one that ends at 0 */
    int count;
} RangeLog;

static void log_range(void *context, int64_t offset, int64_t count)
{
    RangeLog *log = context;
    assert_int_equal(offset + count, log->next_end);
    log->next_end = offset == 0 && log->count == 0 ? log->top : offset;
    log->count++;
}

/* From the top of the arena down; a distributed exact model begins with wte, which is done before all
 * others. */
static void check_ranges(const Backend *backend)
{
    for (int is_distributed = 0; is_distributed <= 1; is_distributed++) {
        ParamTable table;
        ModelConfig config = small;
        config.slots_per_step = 2;
        config.is_distributed = is_distributed;
        Model *model = make_model(backend, &config, &table);
        RangeLog log = {.next_end = is_distributed ? table.specs[1].offset : table.arena_count};
        log.top = table.arena_count;
        int32_t tokens[B * T], targets[B * T];
        draw_batch(tokens, targets, 0);
        SlotContext context = {.is_first = 1, .is_last = 1, .range_done = log_range, .range_context = &log};
        backend->train_slot(model, tokens, targets, &context);
        assert_int_equal(log.next_end, is_distributed ? table.specs[1].offset : 0);
        assert_int_equal(log.count, small.shape.n_layer + 3);
        params_release(&table);
        backend->release(model);
    }
}

static void test_ranges_cover_the_arena_in_reverse(void **state)
{
    (void)state;
    for_each_level(check_ranges);
}

static void check_skip(const Backend *backend)
{
    for (int slots = 1; slots <= 2; slots++) {
        ModelConfig config = small;
        config.slots_per_step = slots;
        ParamTable table;
        Model *model = make_model(backend, &config, &table);
        size_t bytes = (size_t)table.arena_count * sizeof(float);
        float *before = memory_alloc(bytes, 1, "weights"), *after = memory_alloc(bytes, 1, "weights");
        float bad = NAN;
        backend->write_state(model, STATE_WEIGHTS, table.specs[params_block_index(1, FC_BIAS)].offset, &bad,
                             1);
        backend->read_state(model, STATE_WEIGHTS, 0, before, table.arena_count);
        UpdateArgs args = {
            .learning_rate = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .update_number = 1};
        StepResult result;
        run_slots(backend, model, 0, (uint32_t)slots);
        backend->update(model, &args, &result);
        assert_true(result.is_skipped);
        assert_false(result.is_out_of_range); /* a NaN is no large number */
        backend->read_state(model, STATE_WEIGHTS, 0, after, table.arena_count);
        assert_memory_equal(before, after, bytes);
        draw_weights(backend, model, &table);
        const float large = 1e6f; /* logits as large, and a loss that is more than exact sums hold */
        const ParamSpec *lnf = &table.specs[params_lnf_weight_index(&table)];
        for (int64_t i = 0; i < lnf->columns; i++) {
            backend->write_state(model, STATE_WEIGHTS, lnf->offset + i, &large, 1);
        }
        run_slots(backend, model, 0, (uint32_t)slots);
        backend->update(model, &args, &result);
        assert_true(result.is_skipped);
        assert_true(result.is_out_of_range);
        draw_weights(backend, model, &table); /* the next step is good again */
        run_slots(backend, model, 0, (uint32_t)slots);
        backend->update(model, &args, &result);
        assert_false(result.is_skipped);
        memory_free(before);
        memory_free(after);
        params_release(&table);
        backend->release(model);
    }
}

static void test_bad_gradients_skip_the_update(void **state)
{
    (void)state;
    for_each_level(check_skip);
}

/* Decoding in any cuts gives the logits of the whole; they differ by rounding only: depth 2 blocks, sums of
 * at most 120 terms, logits of order 10. */
static void check_decode(const Backend *backend)
{
    ModelConfig config = small;
    config.is_inference = 1;
    ParamTable table;
    Model *model = make_model(backend, &config, &table);
    int32_t tokens[B * T], targets[B * T];
    int V = config.shape.vocab_size;
    float *logits = memory_alloc((size_t)(B * T * V), sizeof(float), "logits");
    float *decoded = memory_alloc((size_t)V, sizeof(float), "logits");
    draw_batch(tokens, targets, 0);
    backend->evaluate(model, tokens, targets, logits);
    for (int prompt = 1; prompt < T; prompt += 5) {
        backend->decode(model, tokens, prompt, 0, decoded);
        for (int t = prompt; t <= T; t++) {
            for (int v = 0; v < V; v++) {
                float expected = logits[(t - 1) * V + v];
                if (!(fabsf(decoded[v] - expected) <= 2e-4f)) {
                    fail_msg("%s: token %d, logit %d: expected %.9g, found %.9g", backend->name, t - 1, v,
                             expected, decoded[v]);
                }
            }
            if (t < T) {
                backend->decode(model, tokens + t, 1, t, decoded);
            }
        }
    }
    memory_free(logits);
    memory_free(decoded);
    params_release(&table);
    backend->release(model);
}

static void test_decode_agrees_with_evaluate(void **state)
{
    (void)state;
    for_each_level(check_decode);
}

static void test_too_large_a_model_is_refused(void **state)
{
    (void)state;
    ModelConfig config = small;
    config.shape =
        (ModelShape){.block_size = 1 << 20, .vocab_size = 50257, .n_layer = 48, .n_head = 25, .n_embd = 1600};
    config.sequence_tokens = 1 << 20;
    config.batch_size = 64;
    Error error = {.text = ""};
    const CpuLevel *levels[CPU_LEVELS_MAX];
    cpu_levels(levels);
    assert_null(levels[0]->backend->create(&config, &error));
    assert_non_null(strstr(error.text, "batch_size"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_slopes),
        cmocka_unit_test(test_gradients_are_slopes_under_dropout),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_split_of_slots_changes_no_bit),
        cmocka_unit_test(test_norms_do_not_depend_on_when_they_are_taken),
        cmocka_unit_test(test_ranges_cover_the_arena_in_reverse),
        cmocka_unit_test(test_bad_gradients_skip_the_update),
        cmocka_unit_test(test_decode_agrees_with_evaluate),
        cmocka_unit_test(test_too_large_a_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
