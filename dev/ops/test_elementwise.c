/* exp, GELU, exact sums, AdamW, column sums and dropout against plain double arithmetic. */
#include "dev/ops/test_ops.h"

#include "llmc/compute/cpu/adamw.h"
#include "llmc/compute/cpu/columns.h"
#include "llmc/compute/cpu/dropout.h"
#include "llmc/compute/cpu/exact.h"
#include "llmc/compute/cpu/gelu.h"

static void test_exp_is_within_two_ulp(void **state)
{
    (void)state;
    for (float x = -86.9f; x < 87.9f; x += 0.00137f) {
        double expected = exp((double)x);
        assert_close(exp_of(x), expected, 2.0 * 0x1p-23 * expected, "exp", (int64_t)(x * 1000));
    }
    assert_true(exp_of(-INFINITY) == 0.0f);
    assert_true(exp_of(-1000.0f) == 0.0f);
    assert_true(exp_of(0.0f) == 1.0f);
    assert_true(isnan(exp_of(NAN)));
}

static double gelu_in_double(double x)
{
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void test_gelu_and_its_slope(void **state)
{
    (void)state;
    for (float x = -12.0f; x < 12.0f; x += 0.0113f) {
        double h = 1e-5;
        double slope = (gelu_in_double(x + h) - gelu_in_double(x - h)) / (2 * h);
        assert_close(gelu_of(x), gelu_in_double(x), 1e-6 * fabs(x) + 1e-12, "gelu", (int64_t)(x * 1000));
        assert_close(gelu_slope_of(x), slope, 3e-6, "gelu slope", (int64_t)(x * 1000));
    }
    assert_true(gelu_of(-1e30f) == 0.0f && gelu_of(1e30f) == 1e30f);
    assert_close(gelu_slope_of(-50.0f), 0, 1e-6, "gelu slope", -50);
    assert_close(gelu_slope_of(50.0f), 1, 1e-6, "gelu slope", 50);
}

static void test_exact_rounding_is_llrint(void **state)
{
    (void)state;
    float *values = test_values(200000, 1.0f, 1);
    for (int64_t i = 0; i < 200000; i++) {
        float value = values[i] * ldexpf(1.0f, (int)(i % 70) - 60);
        if (fabsf(value) > 0x1p10f) {
            continue;
        }
        assert_int_equal(exact_from_float(value), llrint((double)value * 0x1p52));
    }
    const float edges[] = {0x1p10f,  -0x1p10f,   0x1p-53f, 0x1.8p-52f, -0x1.8p-52f,
                           0x1p-52f, 0x1.4p-51f, 0.0f,     0x1p-149f};
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        assert_int_equal(exact_from_float(edges[i]), llrint((double)edges[i] * 0x1p52));
    }
    memory_free(values);
}

/* How many of the 2^23 values of an exponent, of either sign, exact_round rounds otherwise than llrint. */
static int64_t wrongly_rounded(uint32_t exponent, uint32_t stride)
{
    int64_t wrong = 0;
    for (uint32_t sign = 0; sign < 2; sign++) {
        for (uint32_t fraction = 0; fraction < 1u << 23; fraction += stride) {
            uint32_t bits = sign << 31 | exponent << 23 | fraction, found, expected;
            float x;
            memcpy(&x, &bits, sizeof(x));
            float found_value = exact_round(x);
            float expected_value = exact_to_float(exact_from_float(x));
            memcpy(&found, &found_value, sizeof(found));
            memcpy(&expected, &expected_value, sizeof(expected));
            wrong += found != expected;
        }
    }
    return wrong;
}

/* All values whose rounding is not plain: from 2^-55, below which all become 0, to 2^-27, from which on none
 * changes. Of the others every 1021st. */
static void test_exact_round_of_every_value(void **state)
{
    (void)state;
    for (uint32_t exponent = 0; exponent <= 127 + 9; exponent++) {
        int is_plain = exponent < 127 - 55 || exponent > 127 - 27;
        int64_t wrong = wrongly_rounded(exponent, is_plain ? 1021 : 1);
        if (wrong > 0) {
            fail_msg("%lld values of exponent %u are not rounded as llrint does", (long long)wrong, exponent);
        }
    }
    assert_true(exact_round(1024.0f) == 1024.0f && isnan(exact_round(NAN)));
}

static void test_exact_sums_become_floats(void **state)
{
    (void)state;
    RandomKey key = {.seed = 42, .purpose = RANDOM_TEST, .slot = 25};
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t numbers[4];
        random_block(numbers, &key, i);
        int64_t sum = (int64_t)((uint64_t)numbers[0] << 32 | numbers[1]) >> numbers[2] % 64;
        float expected = (float)((double)sum * 0x1p-52);
        if (exact_to_float(sum) != expected) {
            fail_msg("%lld: expected %.9g, found %.9g", (long long)sum, expected, exact_to_float(sum));
        }
    }
    const int64_t edges[] = {0, 1, -1, INT64_MAX, INT64_MIN, 0xffffffff, -0x100000000, 0x80000000};
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        assert_true(exact_to_float(edges[i]) == (float)((double)edges[i] * 0x1p-52));
    }
}

static void test_exact_sums_do_not_depend_on_order(void **state)
{
    (void)state;
    enum { SLOTS = 7, COUNT = 40000 };
    int64_t *rising = memory_alloc_zeroed(COUNT, sizeof(int64_t), "sums");
    int64_t *falling = memory_alloc_zeroed(COUNT, sizeof(int64_t), "sums");
    for (int s = 0; s < SLOTS; s++) {
        float *up = test_values(COUNT, 1e-3f, 10 + (uint32_t)s);
        float *down = test_values(COUNT, 1e-3f, 10 + SLOTS - 1 - (uint32_t)s);
        ExactFold fold = {rising, up, COUNT, 1.0f, s == 0};
        assert_int_equal(exact_fold(&fold), 0);
        assert_int_equal(exact_add(falling, down, COUNT, 1.0f), 0);
        memory_free(up);
        memory_free(down);
    }
    assert_memory_equal(rising, falling, COUNT * sizeof(int64_t));
    memory_free(rising);
    memory_free(falling);
}

static void test_exact_counts_bad_values(void **state)
{
    (void)state;
    float values[8] = {1.0f, NAN, INFINITY, -INFINITY, 25.7f, -25.7f, 25.6f, 0.0f};
    int64_t sums[8] = {0};
    assert_int_equal(exact_add(sums, values, 8, 1024.0f / 40), 5);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(sums[i], 0);
    }
    assert_int_equal(sums[0], (int64_t)1 << 52);
}

static void test_adamw_follows_its_formula(void **state)
{
    (void)state;
    enum { COUNT = 1003 };
    float *weights = test_values(COUNT, 1.0f, 20);
    float *gradients = test_values(COUNT, 0.1f, 21);
    float *m = test_values(COUNT, 0.01f, 22);
    float *v = test_values(COUNT, 0.01f, 23);
    bf16 low[COUNT];
    double lr = 1e-2, decay = 0.1, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double expected[COUNT];
    for (int i = 0; i < COUNT; i++) {
        v[i] = fabsf(v[i]);
        double g = gradients[i];
        double m1 = beta1 * m[i] + (1 - beta1) * g;
        double v1 = beta2 * v[i] + (1 - beta2) * g * g;
        double denominator = sqrt(v1 / (1 - pow(beta2, 3))) + epsilon;
        expected[i] = weights[i] * (1 - lr * decay) - lr / (1 - pow(beta1, 3)) * m1 / denominator;
    }
    AdamwFactors factors = {.clip = 1.0f,
                            .keep = (float)(1 - lr * decay),
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .step = (float)(lr / (1 - pow(beta1, 3))),
                            .inverse_root = (float)(1 / sqrt(1 - pow(beta2, 3))),
                            .epsilon = 1e-8f};
    AdamwRange range = {weights, m, v, low, NULL, gradients, 0, COUNT};
    adamw_update(&range, &factors);
    for (int i = 0; i < COUNT; i++) {
        assert_close(weights[i], expected[i], 1e-6 * (fabs(expected[i]) + lr), "weight", i);
        assert_int_equal(low[i], bf16_from_float(weights[i]));
    }
    memory_free(weights);
    memory_free(gradients);
    memory_free(m);
    memory_free(v);
}

/* However the gradient comes, the update has the same bits. */
static void test_adamw_reads_every_form_of_gradient(void **state)
{
    (void)state;
    enum { COUNT = 519, FORMS = 4 };
    float *raw = test_values(COUNT, 1e-9f, 24); /* so small that exact rounding changes most of them */
    float *rounded = test_zeros(COUNT);
    int64_t sums[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sums[i] = exact_from_float(raw[i]);
        rounded[i] = exact_round(raw[i]);
    }
    assert_memory_not_equal(raw, rounded, COUNT * sizeof(float));
    float *found[FORMS];
    for (int form = 0; form < FORMS; form++) {
        found[form] = test_zeros(3 * COUNT);
        AdamwRange range = {found[form], found[form] + COUNT, found[form] + 2 * COUNT, NULL, NULL, NULL, 0,
                            COUNT};
        range.sums = form == 0 ? sums : NULL;
        range.gradients = form == 1 ? raw : rounded;
        range.is_rounded = form < 3; /* rounding twice changes nothing */
        AdamwFactors factors = {0.7f, 0.99f, 0.9f, 0.95f, 6e-4f, 1.3f, 1e-8f};
        adamw_update(&range, &factors);
        assert_memory_equal(found[form], found[0], 3 * COUNT * sizeof(float));
    }
    for (int form = 0; form < FORMS; form++) {
        memory_free(found[form]);
    }
    memory_free(raw);
    memory_free(rounded);
}

static void test_column_sums(void **state)
{
    (void)state;
    enum { ROWS = 203, COLUMNS = 519 };
    float *in = test_values(ROWS * COLUMNS, 1.0f, 30);
    float *partial = test_zeros(column_blocks(ROWS) * COLUMNS);
    float *out = test_zeros(COLUMNS);
    column_sums(out, (Tensor){in, DTYPE_FP32}, ROWS, COLUMNS, 0, partial);
    column_sums(out, (Tensor){in, DTYPE_FP32}, ROWS, COLUMNS, 1, partial);
    for (int c = 0; c < COLUMNS; c++) {
        double sum = 0, magnitude = 0;
        for (int r = 0; r < ROWS; r++) {
            sum += 2.0 * in[r * COLUMNS + c];
            magnitude += 2.0 * fabsf(in[r * COLUMNS + c]);
        }
        assert_close(out[c], sum, 70 * 0x1p-24 * magnitude, "column", c);
    }
    memory_free(in);
    memory_free(partial);
    memory_free(out);
}

static void test_dropout_is_keyed_by_element(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    Dropout dropout = {
        .probability = 0.3f, .key = {.seed = 7, .purpose = RANDOM_DROPOUT, .step = 3, .slot = 2}, .site = 5};
    float *whole = test_zeros(COUNT);
    float *parts = test_zeros(COUNT);
    for (int i = 0; i < COUNT; i++) {
        whole[i] = parts[i] = 1.0f;
    }
    dropout_apply(whole, &dropout, 11, COUNT);
    for (int first = 0; first < COUNT; first += 37) {
        dropout_apply(parts + first, &dropout, 11 + first, COUNT - first < 37 ? COUNT - first : 37);
    }
    assert_memory_equal(whole, parts, COUNT * sizeof(float));
    double kept = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_true(whole[i] == 0.0f || fabsf(whole[i] - 1 / 0.7f) < 1e-6f);
        kept += whole[i] != 0;
    }
    assert_close(kept / COUNT, 0.7, 6 * sqrt(0.21 / COUNT), "share kept", 0);
    dropout.key.slot = 3;
    for (int i = 0; i < COUNT; i++) {
        parts[i] = 1.0f;
    }
    dropout_apply(parts, &dropout, 11, COUNT);
    assert_memory_not_equal(whole, parts, COUNT * sizeof(float));
    memory_free(whole);
    memory_free(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp_is_within_two_ulp),
        cmocka_unit_test(test_gelu_and_its_slope),
        cmocka_unit_test(test_exact_rounding_is_llrint),
        cmocka_unit_test(test_exact_round_of_every_value),
        cmocka_unit_test(test_exact_sums_become_floats),
        cmocka_unit_test(test_exact_sums_do_not_depend_on_order),
        cmocka_unit_test(test_exact_counts_bad_values),
        cmocka_unit_test(test_adamw_follows_its_formula),
        cmocka_unit_test(test_adamw_reads_every_form_of_gradient),
        cmocka_unit_test(test_column_sums),
        cmocka_unit_test(test_dropout_is_keyed_by_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
