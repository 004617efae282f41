/* The very bits of each fp32 operation: every level, compiler and CPU must find the same ones. The values to
 * be found stand in the table at the end; they change only with the definition of an operation.
 */
#include "dev/ops/test_ops.h"

#include <inttypes.h>

#include "llmc/base/hash.h"
#include "llmc/compute/cpu/adamw.h"
#include "llmc/compute/cpu/attention.h"
#include "llmc/compute/cpu/classifier.h"
#include "llmc/compute/cpu/columns.h"
#include "llmc/compute/cpu/embedding.h"
#include "llmc/compute/cpu/exact.h"
#include "llmc/compute/cpu/gelu.h"
#include "llmc/compute/cpu/layernorm.h"
#include "llmc/compute/cpu/linear.h"
#include "llmc/compute/cpu/sums.h"

enum { POINTS = 1 << 16 };

static uint64_t hash_floats(const float *values, int64_t count, uint64_t seed)
{
    return hash_bytes(values, (size_t)count * sizeof(float), seed);
}

static Tensor fp32(float *values)
{
    return (Tensor){values, DTYPE_FP32};
}

/* Floats of every magnitude and sign; some are infinite, none is NaN. */
static float *all_magnitudes(void)
{
    float *values = test_zeros(POINTS);
    for (uint32_t i = 0; i < POINTS; i++) {
        uint32_t bits = i * 65521u;
        bits = (bits & 0x7fffffffu) > 0x7f800000u ? bits & 0xff800000u : bits;
        memcpy(&values[i], &bits, sizeof(bits));
    }
    return values;
}

static uint64_t hash_exp_and_gelu(void)
{
    enum { KINDS = 4 };
    float *values = all_magnitudes();
    float *near = test_values(POINTS, 4.0f, 1);
    float *out = test_zeros(KINDS * POINTS);
    for (int i = 0; i < POINTS; i++) {
        out[i] = exp_of(values[i]);
        out[POINTS + i] = exp_of(near[i]);
        out[2 * POINTS + i] = gelu_of(near[i]);
        out[3 * POINTS + i] = gelu_slope_of(near[i]);
    }
    uint64_t hash = hash_floats(out, KINDS * POINTS, 0);
    memory_free(values);
    memory_free(near);
    memory_free(out);
    return hash;
}

static uint64_t hash_fma(void)
{
    float *values = all_magnitudes();
    float *near = test_values(POINTS + 2, 1.0f, 1);
    float *out = test_zeros(2 * POINTS);
    for (int i = 0; i < POINTS; i++) {
        float large = fma_of(values[i], near[i], -values[i] * near[i + 1]);
        out[i] = large == large ? large : 0.0f; /* a NaN's bits are free */
        out[POINTS + i] = fma_of(near[i], near[i + 1], near[i + 2]);
    }
    uint64_t hash = hash_floats(out, 2 * POINTS, 0);
    memory_free(values);
    memory_free(near);
    memory_free(out);
    return hash;
}

static uint64_t hash_sums(void)
{
    enum { COUNT = 1100 };
    float *a = test_values(COUNT, 1.0f, 2);
    float *b = test_values(COUNT, 1.0f, 3);
    uint64_t hash = 0;
    for (int count = 0; count <= COUNT; count = count < 100 ? count + 1 : count * 5 / 4) {
        float sums[] = {sum_of(a, count), dot_of(a, b, count), squares_of(a, 0.1f, count),
                        max_of(b, count, -INFINITY)};
        hash = hash_floats(sums, 4, hash);
    }
    const float zeros[] = {-0.0f, 0.0f, -0.0f, -1.0f, -0.0f};
    float maximum = max_of(zeros, 5, -INFINITY);
    memory_free(a);
    memory_free(b);
    return hash_floats(&maximum, 1, hash);
}

static uint64_t hash_layernorm_of(int64_t rows, int64_t C)
{
    float *inp = test_values(rows * C, 1.0f, 4);
    float *weight = test_values(2 * C, 1.0f, 5);
    float *d_out = test_values(rows * C, 1.0f, 6);
    float *d_inp = test_values(rows * C, 1.0f, 7);
    float *out = test_zeros(rows * C);
    float *vectors = test_zeros(2 * rows + 2 * C);
    float *partial = test_zeros(2 * column_blocks(rows) * C);
    layernorm_forward(fp32(out), vectors, vectors + rows, inp, weight, weight + C, rows, C);
    LayernormBackward backward = {.d_inp = d_inp,
                                  .d_weight = vectors + 2 * rows,
                                  .d_bias = vectors + 2 * rows + C,
                                  .d_out = d_out,
                                  .inp = inp,
                                  .mean = vectors,
                                  .rstd = vectors + rows,
                                  .weight = weight,
                                  .partial = partial,
                                  .rows = rows,
                                  .C = C,
                                  .accumulates = 1};
    layernorm_backward(&backward);
    uint64_t hash = hash_floats(out, rows * C, hash_floats(d_inp, rows * C, 0));
    hash = hash_floats(vectors, 2 * rows + 2 * C, hash);
    float *blocks[] = {inp, weight, d_out, d_inp, out, vectors, partial};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        memory_free(blocks[i]);
    }
    return hash;
}

static uint64_t hash_layernorm(void)
{
    return hash_layernorm_of(3, 1) ^ hash_layernorm_of(70, 39) ^ hash_layernorm_of(5, 768) ^
           hash_layernorm_of(2, 1300);
}

static uint64_t hash_attention_of(const AttentionShape *shape, float probability)
{
    int64_t C = (int64_t)shape->NH * shape->HS;
    int64_t rows = (int64_t)shape->B * shape->T;
    float *qkv = test_values(rows * 3 * C, 1.0f, 8);
    float *d_out = test_values(rows * C, 1.0f, 9);
    float *out = test_zeros(rows * C);
    float *d_qkv = test_zeros(rows * 3 * C);
    float *lse = test_zeros(rows * shape->NH);
    float *scratch = test_zeros(shape->threads * attention_scratch_count(shape->T, shape->HS));
    Dropout dropout = {probability, {.seed = 1, .purpose = RANDOM_DROPOUT}, 3};
    attention_forward(fp32(out), lse, fp32(qkv), shape, &dropout, scratch);
    AttentionBackward backward = {fp32(d_qkv), fp32(d_out), fp32(qkv), fp32(out), lse, &dropout, scratch};
    attention_backward(&backward, shape);
    uint64_t hash = hash_floats(out, rows * C, hash_floats(lse, rows * shape->NH, 0));
    hash = hash_floats(d_qkv, rows * 3 * C, hash);
    float *blocks[] = {qkv, d_out, out, d_qkv, lse, scratch};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        memory_free(blocks[i]);
    }
    return hash;
}

static uint64_t hash_attention(void)
{
    const AttentionShape shapes[] = {
        {2, 1, 1, 5, 1}, {1, 65, 3, 7, 2}, {2, 130, 1, 64, 2}, {1, 40, 2, 72, 1}};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        hash = hash * 3 + hash_attention_of(&shapes[i], 0.0f);
        hash = hash * 3 + hash_attention_of(&shapes[i], 0.2f);
    }
    return hash;
}

static uint64_t hash_classifier(void)
{
    enum { ROWS = 5, V = 3011, Vp = 3072 };
    float *logits = test_values(ROWS * Vp, 5.0f, 10);
    float *same = test_values(ROWS * Vp, 5.0f, 10);
    float losses[2 * ROWS];
    const int32_t targets[ROWS] = {0, 3010, 17, 1024, 2222};
    Classifier classifier = {losses, fp32(logits), logits, targets, ROWS, V, Vp, 1.0f / 3};
    classifier_rows(&classifier);
    Classifier loss_only = {losses + ROWS, fp32(NULL), same, targets, ROWS, V, Vp, 1.0f / 3};
    classifier_rows(&loss_only);
    assert_memory_equal(losses, losses + ROWS, ROWS * sizeof(float));
    uint64_t hash = hash_floats(logits, ROWS * Vp, hash_floats(losses, ROWS, 0));
    memory_free(logits);
    memory_free(same);
    return hash;
}

static uint64_t hash_columns_and_embedding(void)
{
    enum { B = 3, T = 67, C = 333 };
    float *d_out = test_values(B * T * C, 1.0f, 11);
    float *wte = test_values(B * T * C, 1.0f, 12);
    float *out = test_zeros(B * T * C);
    float *sums = test_zeros(C + T * C);
    float *partial = test_zeros(column_blocks(B * T) * C);
    int32_t tokens[B * T];
    for (int i = 0; i < B * T; i++) {
        tokens[i] = i * 7 % (B * T);
    }
    Dropout dropout = {0.1f, {.seed = 1, .purpose = RANDOM_DROPOUT}, 3};
    embedding_forward(out, tokens, wte, d_out, B, T, C, &dropout);
    embedding_backward_positions(sums + C, d_out, B, T, C, 0);
    column_sums(sums, fp32(d_out), B * T, C, 0, partial);
    uint64_t hash = hash_floats(out, B * T * C, hash_floats(sums, C + T * C, 0));
    memory_free(d_out);
    memory_free(wte);
    memory_free(out);
    memory_free(sums);
    memory_free(partial);
    return hash;
}

static uint64_t hash_linear_of(int64_t rows, int inputs, int outputs)
{
    float *inp = test_values(rows * inputs, 1.0f, 17);
    float *weight = test_values((int64_t)outputs * inputs, 1.0f / sqrtf((float)inputs), 18);
    float *bias = test_values(outputs, 1.0f, 19);
    float *d_out = test_values(rows * outputs, 1.0f, 20);
    float *out = test_values(3 * rows * outputs, 1.0f, 21);
    float *d_inp = test_zeros(3 * rows * inputs);
    float *d_weight = test_values((int64_t)outputs * inputs, 1.0f, 22);
    Dropout dropout = {0.1f, {.seed = 1, .purpose = RANDOM_DROPOUT}, 3};
    Linear linear = {fp32(inp), fp32(weight), bias, rows, inputs, outputs};
    linear_gelu_forward(fp32(out), fp32(out + rows * outputs), &linear);
    linear_residual_forward(out + 2 * rows * outputs, out + rows * outputs, &dropout, &linear);
    linear_backward_input(d_inp, fp32(d_out), fp32(weight), rows, inputs, outputs);
    linear_backward_input_as(fp32(d_inp + rows * inputs), fp32(d_out), fp32(weight), rows, inputs, outputs);
    linear_backward_gelu(fp32(d_inp + 2 * rows * inputs), fp32(inp), fp32(d_out), fp32(weight), rows, inputs,
                         outputs);
    linear_backward_weight(d_weight, fp32(d_out), fp32(inp), rows, inputs, outputs, 1);
    uint64_t hash = hash_floats(d_weight, (int64_t)outputs * inputs, 0);
    hash = hash_floats(out, 3 * rows * outputs, hash_floats(d_inp, 3 * rows * inputs, hash));
    float *blocks[] = {inp, weight, bias, d_out, out, d_inp, d_weight};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        memory_free(blocks[i]);
    }
    return hash;
}

static uint64_t hash_linear(void)
{
    return hash_linear_of(5, 3, 7) * 3 + hash_linear_of(70, 300, 131) * 5 + hash_linear_of(33, 1300, 17) * 7 +
           hash_linear_of(517, 64, 192);
}

static uint64_t hash_adamw(void)
{
    enum { COUNT = 10007 };
    float *state[3];
    for (int i = 0; i < 3; i++) {
        state[i] = test_values(COUNT, 0.01f, 13 + (uint32_t)i);
    }
    float *gradients = test_values(COUNT, 1e-3f, 16);
    for (int i = 0; i < COUNT; i++) {
        state[2][i] = fabsf(state[2][i]);
        gradients[i] = exact_round(gradients[i] * ldexpf(1.0f, -(i % 40)));
    }
    AdamwRange range = {.weights = state[0],
                        .moment1 = state[1],
                        .moment2 = state[2],
                        .gradients = gradients,
                        .count = COUNT};
    AdamwFactors factors = {1.0f, 0.99f, 0.9f, 0.95f, 6e-4f, 1.3f, 1e-8f};
    adamw_update(&range, &factors);
    uint64_t hash = hash_floats(gradients, COUNT, 0);
    for (int i = 0; i < 3; i++) {
        hash = hash_floats(state[i], COUNT, hash);
        memory_free(state[i]);
    }
    memory_free(gradients);
    return hash;
}

typedef struct Golden {
    const char *name;
    uint64_t (*hash)(void);
    uint64_t expected;
} Golden;

static const Golden goldens[] = {
    {"exp and GELU", hash_exp_and_gelu, 0x1742f39f2d1ce44f},
    {"fused multiply-add", hash_fma, 0xa43a1988321323b9},
    {"sums and maxima", hash_sums, 0x0ebb0c9b69b1074c},
    {"layer norm", hash_layernorm, 0xbfbdaa5c646ae490},
    {"attention", hash_attention, 0x1a9e4643feb03150},
    {"softmax and cross entropy", hash_classifier, 0x471ad32bf12d3ddf},
    {"column sums and embedding", hash_columns_and_embedding, 0xf6268b9d9e2228b8},
    {"linear layers", hash_linear, 0x639d1ebb8206c1f1},
    {"AdamW and exact rounding", hash_adamw, 0xb632e8c5970cc110},
};

static void test_same_bits(void **state)
{
    const Golden *golden = *state;
    uint64_t found = golden->hash();
    if (found != golden->expected) {
        fail_msg("%s: expected 0x%016" PRIx64 ", found 0x%016" PRIx64, golden->name, golden->expected, found);
    }
}

/* The fused multiply-add is libm's, which is exact: no other level may differ from it. */
static void test_fma_is_exact(void **state)
{
    (void)state;
    float *near = test_values(POINTS + 1, 1.0f, 1);
    for (int i = 0; i < POINTS; i++) {
        /* where the sum nearly cancels, and where the third term decides how a tie is rounded */
        float product = near[i] * near[i + 1];
        float tie = (float)(1 + i % 4096) * 0x1p-12f + 1.0f;
        float tiny = near[i] * 0x1p-60f;
        float step = (float)((i & 4095) * 2 + 1) * 0x1p-24f;
        assert_true(fma_of(near[i], near[i + 1], -product) == fmaf(near[i], near[i + 1], -product));
        assert_true(fma_of(tie, 1.0f + step, tiny) == fmaf(tie, 1.0f + step, tiny));
        assert_true(fma_of(near[i], 0x1p-130f, near[i + 1] * 0x1p-140f) ==
                    fmaf(near[i], 0x1p-130f, near[i + 1] * 0x1p-140f));
    }
    memory_free(near);
}

int main(void)
{
    enum { GOLDENS = sizeof(goldens) / sizeof(goldens[0]) };
    struct CMUnitTest tests[GOLDENS + 1] = {cmocka_unit_test(test_fma_is_exact)};
    for (int i = 0; i < GOLDENS; i++) {
        tests[i + 1] = (struct CMUnitTest){goldens[i].name, test_same_bits, NULL, NULL, (void *)&goldens[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
