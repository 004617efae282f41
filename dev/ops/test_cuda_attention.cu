/* Attention on the GPU (or on host_cuda) against the textbook in double. Each value has a bound of its own,
 * summed from the roundings on its way: to bf16 of weights, of gradients of scores and of results, 2^-8 each,
 * and of fp32 sums, 2^-24 times a few and the root of their length, since roundings there have either
 * sign. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include <cmocka.h>
}

#include <vector>

#include "llmc/base/cuda/cuda_check.h"
#include "llmc/base/random.h"
#include "llmc/compute/cuda/attention.cuh"

typedef std::vector<double> Doubles;

struct Case {
    int B, T, NH, HS;
    DType dtype;
    float dropout;
    float deviation = 1; /* of queries, keys and values: large ones make maxima rise late */
};

static const Case cases[] = {
    {1, 200, 2, 64, DTYPE_BF16, 0, 4}, {1, 200, 1, 96, DTYPE_BF16, 0.1f, 4},
    {1, 1, 1, 64, DTYPE_BF16, 0},      {2, 17, 3, 32, DTYPE_BF16, 0},
    {1, 63, 2, 64, DTYPE_BF16, 0.1f},  {1, 64, 1, 64, DTYPE_BF16, 0},
    {2, 65, 1, 64, DTYPE_BF16, 0},     {1, 130, 2, 64, DTYPE_BF16, 0},
    {1, 200, 1, 64, DTYPE_BF16, 0.1f}, {1, 65, 1, 96, DTYPE_BF16, 0.1f},
    {1, 130, 1, 96, DTYPE_BF16, 0},    {1, 130, 1, 128, DTYPE_BF16, 0},
    {1, 63, 1, 128, DTYPE_BF16, 0.1f}, {1, 130, 1, 32, DTYPE_BF16, 0.1f},
    {1, 17, 2, 40, DTYPE_BF16, 0.1f},  {2, 70, 2, 48, DTYPE_BF16, 0},
    {1, 130, 3, 80, DTYPE_BF16, 0.1f}, {1, 65, 2, 112, DTYPE_BF16, 0},
    {2, 33, 3, 8, DTYPE_BF16, 0},      {1, 200, 1, 16, DTYPE_BF16, 0.1f},
    {1, 65, 2, 120, DTYPE_BF16, 0.1f}, {1, 33, 2, 12, DTYPE_BF16, 0.1f},
    {1, 20, 1, 136, DTYPE_BF16, 0},    {1, 33, 1, 256, DTYPE_BF16, 0},
    {1, 1, 2, 5, DTYPE_FP32, 0},       {2, 17, 2, 33, DTYPE_FP32, 0.1f},
    {1, 65, 1, 64, DTYPE_FP32, 0},     {1, 64, 1, 80, DTYPE_FP32, 0.4f},
};

/* What rounds: results and operands of the tensor cores to dtype, sums in fp32. */
struct Rounding {
    double dtype, fp32;
};

/* A tensor in double, with the bound of each element's error. */
struct Expected {
    Doubles value, bound;
};

static Expected expected_zeros(size_t count)
{
    return {Doubles(count), Doubles(count)};
}

/* One head in double: (T,HS) each. */
struct HeadValues {
    Doubles q, k, v, d_out;
};

struct HeadExpected {
    Expected out, d_q, d_k, d_v, lse;
};

/* ---- the textbook ------------------------------------------------------------------------------------ */

static double dot(const double *a, const double *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static double absolute_dot(const double *a, const double *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += fabs(a[i] * b[i]);
    }
    return sum;
}

/* (HS) += factor times in, of which each term has this relative error and its factor this absolute one. */
static void add_scaled(Expected *out, int row, double factor, double factor_error, double relative_error,
                       const double *in, int HS)
{
    for (int i = 0; i < HS; i++) {
        out->value[row * HS + i] += factor * in[i];
        out->bound[row * HS + i] += (fabs(factor) * relative_error + factor_error) * fabs(in[i]);
    }
}

/* A query's weights before dropout; the relative error of each in fp32 comes from its score's. */
static double query_weights(Doubles *weights, HeadExpected *expected, const HeadValues *head, int t, int HS,
                            double fp32)
{
    double scale = 1 / sqrt(HS), maximum = -INFINITY, sum = 0, spread = 0;
    const double *q = &head->q[t * HS];
    for (int j = 0; j <= t; j++) {
        (*weights)[j] = scale * dot(q, &head->k[j * HS], HS);
        maximum = fmax(maximum, (*weights)[j]);
        spread = fmax(spread, scale * absolute_dot(q, &head->k[j * HS], HS));
    }
    for (int j = 0; j <= t; j++) {
        (*weights)[j] = exp((*weights)[j] - maximum);
        sum += (*weights)[j];
    }
    for (int j = 0; j <= t; j++) {
        (*weights)[j] /= sum;
    }
    expected->lse.value[t] = maximum + log(sum);
    expected->lse.bound[t] = fp32 * (spread + fabs(expected->lse.value[t]) + 1);
    return expected->lse.bound[t];
}

/* kept (T): dropout's factor of each key. */
static void query_expected(HeadExpected *e, const HeadValues *head, const Doubles &kept, int t, int HS,
                           Rounding rounding)
{
    const double *d_out = &head->d_out[t * HS];
    double scale = 1 / sqrt(HS), delta = 0, delta_error = 0;
    Doubles weights(t + 1), d_weights(t + 1);
    double weight_error = 2 * query_weights(&weights, e, head, t, HS, rounding.fp32);
    double seen_error = rounding.dtype + weight_error + rounding.fp32;
    for (int j = 0; j <= t; j++) {
        double seen = weights[j] * kept[j];
        add_scaled(&e->out, t, seen, 0, seen_error, &head->v[j * HS], HS);
        add_scaled(&e->d_v, j, seen, 0, seen_error, d_out, HS);
        d_weights[j] = kept[j] * dot(d_out, &head->v[j * HS], HS);
        delta += weights[j] * d_weights[j];
    }
    for (int i = 0; i < HS; i++) {
        double error = e->out.bound[t * HS + i] + rounding.dtype * fabs(e->out.value[t * HS + i]);
        delta_error += fabs(d_out[i]) * (error + rounding.fp32 * fabs(e->out.value[t * HS + i]));
    }
    for (int j = 0; j <= t; j++) {
        double d_score = weights[j] * (d_weights[j] - delta);
        double d_weight_error = rounding.fp32 * kept[j] * absolute_dot(d_out, &head->v[j * HS], HS);
        double error = fabs(d_score) * weight_error + weights[j] * (d_weight_error + delta_error);
        add_scaled(&e->d_q, t, d_score * scale, error * scale, rounding.dtype + rounding.fp32,
                   &head->k[j * HS], HS);
        add_scaled(&e->d_k, j, d_score * scale, error * scale, rounding.dtype + rounding.fp32,
                   &head->q[t * HS], HS);
    }
}

static double kept_factor(const Dropout *dropout, uint64_t element)
{
    uint32_t numbers[4];
    if (dropout->probability == 0) {
        return 1;
    }
    random_block(numbers, &dropout->key, dropout_block(dropout->site, element));
    bool is_kept = random_uniform_from(numbers[element % 4]) >= dropout->probability;
    return is_kept ? 1 / (1 - (double)dropout->probability) : 0;
}

static HeadExpected head_expected(const HeadValues *head, const Case *c, const Dropout *dropout, int item)
{
    size_t count = (size_t)c->T * c->HS;
    HeadExpected e = {expected_zeros(count), expected_zeros(count), expected_zeros(count),
                      expected_zeros(count), expected_zeros((size_t)c->T)};
    Rounding rounding = {c->dtype == DTYPE_BF16 ? 0x1p-8 : 0, 0x1p-24 * (8 + sqrt(c->T) + sqrt(c->HS))};
    Doubles kept(c->T);
    for (int t = 0; t < c->T; t++) {
        for (int j = 0; j <= t; j++) {
            kept[j] = kept_factor(dropout, ((uint64_t)item * c->T + t) * c->T + j);
        }
        query_expected(&e, head, kept, t, c->HS, rounding);
    }
    /* The last rounding, and room for products of errors. */
    for (Expected *each : {&e.out, &e.d_q, &e.d_k, &e.d_v}) {
        for (size_t i = 0; i < count; i++) {
            each->bound[i] = 1.02 * (each->bound[i] + rounding.dtype * fabs(each->value[i])) + 1e-30;
        }
    }
    return e;
}

/* ---- running and comparing --------------------------------------------------------------------------- */

/* Device memory, filled with bytes that are no number. */
static void *device_alloc(size_t bytes)
{
    void *memory;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    CUDA_CHECK(cudaMemset(memory, 0xff, bytes));
    return memory;
}

static size_t tensor_bytes(const std::vector<float> &values, DType dtype)
{
    return values.size() * (size_t)dtype_bytes(dtype);
}

/* Normal values, rounded to dtype, on the device; `values` has the same in fp32. */
static void *device_normal(std::vector<float> *values, DType dtype, uint32_t stream, float deviation)
{
    RandomKey key = {42, RANDOM_TEST, 0, stream};
    random_normal(values->data(), (int64_t)values->size(), deviation, &key, 0);
    std::vector<bf16> rounded(values->size());
    for (size_t i = 0; i < values->size() && dtype == DTYPE_BF16; i++) {
        rounded[i] = bf16_from_float((*values)[i]);
        (*values)[i] = bf16_to_float(rounded[i]);
    }
    void *memory = device_alloc(tensor_bytes(*values, dtype));
    const void *from = dtype == DTYPE_BF16 ? (const void *)rounded.data() : (const void *)values->data();
    CUDA_CHECK(cudaMemcpy(memory, from, tensor_bytes(*values, dtype), cudaMemcpyHostToDevice));
    return memory;
}

static void from_device(std::vector<float> *values, const void *memory, DType dtype)
{
    if (dtype == DTYPE_FP32) {
        CUDA_CHECK(cudaMemcpy(values->data(), memory, values->size() * 4, cudaMemcpyDeviceToHost));
        return;
    }
    std::vector<bf16> rounded(values->size());
    CUDA_CHECK(cudaMemcpy(rounded.data(), memory, values->size() * 2, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < values->size(); i++) {
        (*values)[i] = bf16_to_float(rounded[i]);
    }
}

struct Results {
    std::vector<float> out, lse, d_qkv, d_bias;
};

/* What d_bias holds before, where it is added to. */
static const float BIAS_BEFORE = 3;

static Results run_case(const Case *c, const void *qkv, const void *d_out, const Dropout *dropout,
                        int accumulates)
{
    size_t rows = (size_t)c->B * c->T, C = (size_t)c->NH * c->HS;
    Results r = {std::vector<float>(rows * C), std::vector<float>(rows * c->NH),
                 std::vector<float>(rows * 3 * C), std::vector<float>(3 * C, BIAS_BEFORE)};
    CudaAttention shape = {c->B, c->T, c->NH, c->HS, c->dtype};
    void *out = device_alloc(tensor_bytes(r.out, c->dtype));
    void *d_qkv = device_alloc(tensor_bytes(r.d_qkv, c->dtype));
    float *lse = (float *)device_alloc(r.lse.size() * sizeof(float));
    void *scratch = device_alloc((size_t)attention_scratch_bytes(&shape));
    float *d_bias = (float *)device_alloc(r.d_bias.size() * sizeof(float));
    float *partial = (float *)device_alloc((size_t)attention_partial_count(&shape) * sizeof(float));
    if (accumulates) {
        CUDA_CHECK(
            cudaMemcpy(d_bias, r.d_bias.data(), r.d_bias.size() * sizeof(float), cudaMemcpyHostToDevice));
    }
    attention_forward_cuda(out, lse, qkv, &shape, dropout, 0);
    CudaAttentionBackward backward = {d_qkv,   d_out,  qkv,     out,         lse,
                                      scratch, d_bias, partial, accumulates, dropout};
    attention_backward_cuda(&backward, &shape, 0);
    CUDA_CHECK(cudaDeviceSynchronize());
    from_device(&r.out, out, c->dtype);
    from_device(&r.d_qkv, d_qkv, c->dtype);
    from_device(&r.lse, lse, DTYPE_FP32);
    from_device(&r.d_bias, d_bias, DTYPE_FP32);
    for (void *each : {out, d_qkv, (void *)lse, scratch, (void *)d_bias, (void *)partial}) {
        CUDA_CHECK(cudaFree(each));
    }
    return r;
}

/* The part of a head in a tensor whose rows are `stride` apart. */
static void compare(const float *found, int64_t stride, const Expected &expected, int columns, const Case *c,
                    const char *name)
{
    for (size_t i = 0; i < expected.value.size(); i++) {
        double value = found[(int64_t)(i / columns) * stride + (int64_t)(i % columns)];
        if (!(fabs(value - expected.value[i]) <= expected.bound[i])) {
            fail_msg(
                "B %d, T %d, NH %d, HS %d, %s, dropout %g: %s[%zu]: expected %.9g, found %.9g, bound %.3g",
                c->B, c->T, c->NH, c->HS, c->dtype == DTYPE_BF16 ? "bf16" : "fp32", c->dropout, name, i,
                expected.value[i], value, expected.bound[i]);
        }
    }
}

static Doubles head_rows(const float *first, int64_t stride, int T, int HS)
{
    Doubles rows;
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < HS; i++) {
            rows.push_back(first[t * stride + i]);
        }
    }
    return rows;
}

/* bias (3C) += what the head's gradients sum to over tokens. */
static void add_bias(Expected *bias, const Expected &d, const Case *c, int64_t first)
{
    for (size_t i = 0; i < d.value.size(); i++) {
        bias->value[(size_t)first + i % (size_t)c->HS] += d.value[i];
        bias->bound[(size_t)first + i % (size_t)c->HS] +=
            d.bound[i] + 0x1p-24 * (c->B * c->T + 2) * fabs(d.value[i]);
    }
}

static void check_head(Expected *bias, const Case *c, const float *qkv, const float *d_out, const Results *r,
                       const Dropout *dropout, int item)
{
    int64_t C = (int64_t)c->NH * c->HS, b = item / c->NH, h = item % c->NH;
    int64_t q = b * c->T * 3 * C + h * c->HS, out = b * c->T * C + h * c->HS;
    HeadValues head = {head_rows(qkv + q, 3 * C, c->T, c->HS), head_rows(qkv + q + C, 3 * C, c->T, c->HS),
                       head_rows(qkv + q + 2 * C, 3 * C, c->T, c->HS),
                       head_rows(d_out + out, C, c->T, c->HS)};
    HeadExpected e = head_expected(&head, c, dropout, item);
    compare(&r->lse[(size_t)item * c->T], 1, e.lse, 1, c, "lse");
    compare(&r->out[out], C, e.out, c->HS, c, "out");
    compare(&r->d_qkv[q], 3 * C, e.d_q, c->HS, c, "d_q");
    compare(&r->d_qkv[q + C], 3 * C, e.d_k, c->HS, c, "d_k");
    compare(&r->d_qkv[q + 2 * C], 3 * C, e.d_v, c->HS, c, "d_v");
    add_bias(bias, e.d_q, c, h * c->HS);
    add_bias(bias, e.d_k, c, C + h * c->HS);
    add_bias(bias, e.d_v, c, 2 * C + h * c->HS);
}

static void check_case(const Case *c)
{
    size_t rows = (size_t)c->B * c->T, C = (size_t)c->NH * c->HS;
    Dropout dropout = {c->dropout, {3, RANDOM_DROPOUT, 1, 0}, 4};
    std::vector<float> qkv(rows * 3 * C), d_out(rows * C);
    void *device_qkv = device_normal(&qkv, c->dtype, 1, c->deviation);
    void *device_d_out = device_normal(&d_out, c->dtype, 2, 1);
    Results first = run_case(c, device_qkv, device_d_out, &dropout, 0);
    Expected bias = expected_zeros(3 * C);
    for (int item = 0; item < c->B * c->NH; item++) {
        check_head(&bias, c, qkv.data(), d_out.data(), &first, &dropout, item);
    }
    compare(first.d_bias.data(), (int64_t)(3 * C), bias, (int)(3 * C), c, "d_bias");
    Results second = run_case(c, device_qkv, device_d_out, &dropout, 1);
    assert_memory_equal(first.out.data(), second.out.data(), first.out.size() * sizeof(float));
    assert_memory_equal(first.lse.data(), second.lse.data(), first.lse.size() * sizeof(float));
    assert_memory_equal(first.d_qkv.data(), second.d_qkv.data(), first.d_qkv.size() * sizeof(float));
    for (size_t i = 0; i < 3 * C; i++) { /* the same parts, added to what was there */
        assert_true(fabs(second.d_bias[i] - BIAS_BEFORE - first.d_bias[i]) <=
                    0x1p-23 * (c->B * c->T + 2) * (BIAS_BEFORE + fabs(first.d_bias[i])));
    }
    CUDA_CHECK(cudaFree(device_qkv));
    CUDA_CHECK(cudaFree(device_d_out));
}

static void check_cases(bool is_tensor)
{
    for (const Case &c : cases) {
        CudaAttention shape = {c.B, c.T, c.NH, c.HS, c.dtype};
        bool is_eligible = c.dtype == DTYPE_BF16 && c.HS % 8 == 0 && c.HS <= 128;
        assert_int_equal(attention_is_on_tensor_cores(&shape), is_eligible);
        if (is_eligible == is_tensor) {
            check_case(&c);
        }
    }
}

static void test_tensor_cores_against_textbook(void **state)
{
    (void)state;
    check_cases(true);
}

static void test_plain_path_against_textbook(void **state)
{
    (void)state;
    check_cases(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tensor_cores_against_textbook),
                                       cmocka_unit_test(test_plain_path_against_textbook)};
    attention_prepare();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
