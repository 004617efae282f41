/* What crosses the seam as a whole: initial weights, and the hash that names a result. The device is an
 * array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/run/run_model.h"

struct Model {
    float *weights;
    int64_t count;
};

static Model *array_create(const ModelConfig *config, Error *error)
{
    (void)error;
    ParamTable table;
    params_init(&table, &config->shape);
    Model *model = memory_alloc(1, sizeof(*model), "model");
    model->count = table.arena_count;
    model->weights = memory_alloc_zeroed((size_t)table.arena_count, sizeof(float), "weights");
    params_release(&table);
    return model;
}

static void array_release(Model *model)
{
    memory_free(model->weights);
    memory_free(model);
}

static void array_write(Model *model, StateKind kind, int64_t offset, const float *values, int64_t count)
{
    assert_int_equal(kind, STATE_WEIGHTS);
    assert_true(offset >= 0 && offset + count <= model->count);
    memcpy(model->weights + offset, values, (size_t)count * sizeof(float));
}

static void array_read(const Model *model, StateKind kind, int64_t offset, float *values, int64_t count)
{
    assert_int_equal(kind, STATE_WEIGHTS);
    assert_true(offset >= 0 && offset + count <= model->count);
    memcpy(values, model->weights + offset, (size_t)count * sizeof(float));
}

static const Backend array_backend = {.name = "array",
                                      .create = array_create,
                                      .release = array_release,
                                      .write_state = array_write,
                                      .read_state = array_read};

/* Tensors of less than a chunk, of several chunks, and with padding rows. */
static void open_model(RunModel *model)
{
    ModelConfig config = {
        .shape = {.block_size = 5, .vocab_size = 1000, .n_layer = 2, .n_head = 1, .n_embd = 300}};
    Error error;
    assert_int_equal(run_model_init(model, &array_backend, &config, &error), 0);
}

static void test_draw_is_the_tables(void **state)
{
    (void)state;
    RunModel model;
    open_model(&model);
    run_model_draw_weights(&model, 7);
    for (int i = 0; i < model.table.count; i++) {
        const ParamSpec *spec = &model.table.specs[i];
        int64_t count = param_file_count(spec);
        float *expected = memory_alloc((size_t)count, sizeof(float), "expected");
        params_draw_initial(expected, &model.table, i, 0, count, 7);
        assert_memory_equal(expected, model.model->weights + spec->offset, (size_t)count * sizeof(float));
        memory_free(expected);
        for (int64_t j = count; j < spec->arena_count; j++) {
            assert_true(model.model->weights[spec->offset + j] == 0);
        }
    }
    run_model_release(&model);
}

static void test_hash(void **state)
{
    (void)state;
    RunModel model;
    open_model(&model);
    run_model_draw_weights(&model, 7);
    uint64_t hash = run_model_hash(&model);
    int threads = omp_get_max_threads();
    for (int n = 1; n <= 5; n += 2) {
        omp_set_num_threads(n);
        assert_true(run_model_hash(&model) == hash);
    }
    omp_set_num_threads(threads);
    float *weights = model.model->weights;
    const ParamSpec *wte = &model.table.specs[params_wte_index()];
    weights[wte->offset + param_file_count(wte)] = 1; /* padding does not count */
    assert_true(run_model_hash(&model) == hash);
    for (int i = 0; i < model.table.count; i++) { /* the last bit of the last value of every tensor does */
        const ParamSpec *spec = &model.table.specs[i];
        uint32_t *last = (uint32_t *)(weights + spec->offset + param_file_count(spec) - 1);
        *last ^= 1;
        assert_true(run_model_hash(&model) != hash);
        *last ^= 1;
    }
    float first = weights[0]; /* order counts */
    weights[0] = weights[1];
    weights[1] = first;
    assert_true(run_model_hash(&model) != hash);
    run_model_release(&model);
}

static void test_seeds_differ(void **state)
{
    (void)state;
    RunModel model;
    open_model(&model);
    run_model_draw_weights(&model, 7);
    uint64_t hash = run_model_hash(&model);
    run_model_draw_weights(&model, 8);
    assert_true(run_model_hash(&model) != hash);
    run_model_draw_weights(&model, 7);
    assert_true(run_model_hash(&model) == hash);
    run_model_release(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw_is_the_tables),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_seeds_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
