/* The CUDA model as a whole where its operations alone cannot tell: sampling from a long context, losses of
 * batches of other forms, and the limits at which it is refused. */
#include "dev/ops/test_cuda.cuh"

#include "llmc/compute/cuda/cuda_model.cuh"

static ModelConfig config_of(int block_size, int T)
{
    ModelConfig config = {};
    config.shape = ModelShape{block_size, 40, 1, 2, 16};
    config.batch_size = 1;
    config.sequence_tokens = T;
    config.slots_per_step = 1;
    config.is_inference = 1;
    return config;
}

static Model *create(const ModelConfig *config)
{
    Error error = {};
    Model *model = cuda_model_create(config, &error);
    if (!model) {
        fail_msg("%s", error.text);
    }
    for (int i = 0; i < model->table.count; i++) { /* scores of some size, which differ */
        const ParamSpec *spec = &model->table.specs[i];
        Floats values = normal_values((size_t)(spec->rows * spec->columns), 0.5f, (uint32_t)i);
        cuda_model_write_state(model, STATE_WEIGHTS, spec->offset, values.data(), (int64_t)values.size());
    }
    return model;
}

/* Logits of one row of a batch against those that decoding gives at the same place: sums of as many terms as
 * there are keys, in another order. */
static void check_row(const char *where, const float *found, const float *expected, int V, int keys)
{
    double largest = 0;
    for (int i = 0; i < V; i++) {
        largest = fmax(largest, fabs(expected[i]));
    }
    for (int i = 0; i < V; i++) {
        check_close(where, "logits", (size_t)i, found[i], expected[i],
                    FP32_ROUNDING * (keys + 100) * largest);
    }
}

/* Keys fill two tiles of decoding's attention. */
static void test_decoding_a_long_context(void **state)
{
    (void)state;
    const int T = 1100, V = 40;
    ModelConfig config = config_of(60000, T);
    Model *model = create(&config);
    std::vector<int32_t> tokens((size_t)T), targets((size_t)T, 0);
    for (int i = 0; i < T; i++) {
        tokens[(size_t)i] = (i * 7 + i * i % 11) % V;
    }
    Floats expected((size_t)T * V), found((size_t)V);
    cuda_model_evaluate(model, tokens.data(), targets.data(), expected.data());
    std::vector<int> ends = {1, 1000, 1023};
    for (int end = 1024; end <= T; end++) { /* some of which have their highest score in the second tile */
        ends.push_back(end);
    }
    int done = 0;
    for (int next : ends) {
        cuda_model_decode(model, &tokens[(size_t)done], next - done, done, found.data());
        done = next;
        char where[60];
        snprintf(where, sizeof(where), "after %d tokens", done);
        check_row(where, found.data(), &expected[(size_t)(done - 1) * V], V, done);
    }
    cuda_model_release(model);
}

/* Ten tensors on the way to a logit are stored in bf16, the stream three times: where decoding sums in
 * another order than the forward pass of a batch, each may be rounded the other way. */
static void test_decoding_with_a_stream_in_bf16(void **state)
{
    (void)state;
    const int T = 40, V = 40;
    ModelConfig config = config_of(T, T);
    config.dtype = config.residual = DTYPE_BF16;
    Model *model = create(&config);
    std::vector<int32_t> tokens((size_t)T), targets((size_t)T, 0);
    for (int i = 0; i < T; i++) {
        tokens[(size_t)i] = (i * 7 + i * i % 11) % V;
    }
    Floats expected((size_t)T * V), found((size_t)V);
    cuda_model_evaluate(model, tokens.data(), targets.data(), expected.data());
    for (int i = 0; i < T; i++) {
        cuda_model_decode(model, &tokens[(size_t)i], 1, i, found.data());
        double largest = 0;
        for (int k = 0; k < V; k++) {
            largest = fmax(largest, fabs(expected[(size_t)(i * V + k)]));
        }
        for (int k = 0; k < V; k++) {
            check_close("stream in bf16", "logits", (size_t)(i * V + k), found[(size_t)k],
                        expected[(size_t)(i * V + k)], 10 * 0x1p-8 * largest);
        }
    }
    cuda_model_release(model);
}

/* As few chunks as there is room for, all of whole tiles and as equal as those allow. */
static void test_chunks_of_logits(void **state)
{
    (void)state;
    ModelConfig config = config_of(1100, 1100);
    Model *model = create(&config);
    const int64_t row_bytes = (int64_t)model->Vp * (int64_t)sizeof(float), whole_bytes = model->logits_bytes;
    const int64_t cases[][2] = {{1, 1},     {200, 200},  {256, 256},  {300, 256},   {511, 256},
                                {600, 512}, {1000, 768}, {1099, 768}, {1100, 1100}, {5000, 1100}};
    assert_int_equal(whole_bytes, 1100 * row_bytes);
    for (const int64_t(&one)[2] : cases) {
        model->logits_bytes = one[0] * row_bytes;
        assert_int_equal(cuda_model_logit_rows(model, DTYPE_FP32), one[1]);
    }
    cuda_model_release(model);
}

/* log(sum of exp(logits)) - logits[target], and how far fp32 may be off: a rounding for each of the terms. */
static void check_loss(const char *where, float found, const float *logits, int target, int V, int keys)
{
    double sum = 0, largest = 0;
    for (int i = 0; i < V; i++) {
        sum += exp((double)logits[i]);
        largest = fmax(largest, fabs(logits[i]));
    }
    check_close(where, "losses", 0, found, log(sum) - logits[target],
                FP32_ROUNDING * (keys + 100 + V) * fmax(largest, 1));
}

/* A batch of other rows than the model was made for, of all that fit and of fewer: the losses are those of
 * the logits that evaluate gives; and the model is then what it was. */
static void test_losses_of_shorter_rows(void **state)
{
    (void)state;
    const int B = 2, T = 96, V = 40, forms[][2] = {{2, 96}, {6, 32}, {3, 64}, {1, 96}, {5, 17}, {192, 1}};
    ModelConfig config = config_of(T, T);
    config.batch_size = B;
    Model *model = create(&config);
    std::vector<int32_t> tokens((size_t)(B * T)), targets((size_t)(B * T)), first(tokens), second(targets);
    for (int i = 0; i < B * T; i++) {
        tokens[(size_t)i] = (i * 7 + i * i % 11) % V;
        targets[(size_t)i] = (i * 5 + i * i % 13) % V;
    }
    Floats logits((size_t)(B * T * V)), losses((size_t)(B * T));
    double mean = cuda_model_evaluate(model, tokens.data(), targets.data(), logits.data());
    for (const int(&form)[2] : forms) { /* every row is the beginning of one of the two */
        int rows = form[0], row_tokens = form[1];
        char where[60];
        snprintf(where, sizeof(where), "%d rows of %d", rows, row_tokens);
        for (int i = 0; i < rows * row_tokens; i++) {
            size_t from = (size_t)(i / row_tokens % B * T + i % row_tokens);
            first[(size_t)i] = tokens[from];
            second[(size_t)i] = targets[from];
        }
        cuda_model_losses(model, losses.data(), first.data(), second.data(), rows, row_tokens);
        for (int i = 0; i < rows * row_tokens; i++) {
            int from = i / row_tokens % B * T + i % row_tokens;
            check_loss(where, losses[(size_t)i], &logits[(size_t)from * V], targets[(size_t)from], V, T);
        }
    }
    assert_true(cuda_model_evaluate(model, tokens.data(), targets.data(), NULL) == mean);
    cuda_model_release(model);
}

static void test_too_long_rows_are_refused(void **state)
{
    (void)state;
    Error error = {};
    ModelConfig config = config_of(600000, 524281);
    assert_null(cuda_model_create(&config, &error));
    assert_string_equal(error.text, "block_size=524281: expected at most 524280 on a GPU");
    config.sequence_tokens = 524280;
    config.batch_size = 33;
    assert_null(cuda_model_create(&config, &error));
    assert_string_equal(error.text, "batch_size=33, block_size=524280: expected at most 16776960 tokens on a "
                                    "GPU, found 17301240");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_a_long_context), cmocka_unit_test(test_decoding_with_a_stream_in_bf16),
        cmocka_unit_test(test_chunks_of_logits), cmocka_unit_test(test_losses_of_shorter_rows),
        cmocka_unit_test(test_too_long_rows_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
