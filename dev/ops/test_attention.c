/* Attention against the textbook: scores, softmax and their derivatives in double, with and without dropout.
 */
#include "dev/ops/test_ops.h"

#include <omp.h>

#include "llmc/compute/cpu/attention.h"

typedef struct Case {
    int B, T, NH, HS;
    float dropout;
} Case;

static const Case cases[] = {{1, 1, 1, 5, 0},   {2, 7, 3, 16, 0},    {1, 64, 2, 64, 0},
                             {2, 65, 1, 64, 0}, {1, 130, 2, 80, 0},  {1, 200, 1, 128, 0},
                             {3, 63, 2, 33, 0}, {1, 70, 2, 64, 0.4f}};

/* One head in double: out (T,HS), and d_q, d_k, d_v for d_out. kept (T,T) holds dropout's factors. */
typedef struct Oracle {
    double *out, *d_q, *d_k, *d_v;
} Oracle;

static double dot(const double *a, const double *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void add_scaled(double *out, double factor, const double *in, int count)
{
    for (int i = 0; i < count; i++) {
        out[i] += factor * in[i];
    }
}

static void oracle_query(Oracle *o, const double *q, const double *k, const double *v, const double *d_out,
                         const float *kept, int t, int HS)
{
    double scale = 1 / sqrt(HS);
    double *p = calloc((size_t)t + 1, sizeof(double));
    double *d_p = calloc((size_t)t + 1, sizeof(double));
    double maximum = -INFINITY, sum = 0, total = 0;
    for (int j = 0; j <= t; j++) {
        p[j] = scale * dot(q + t * HS, k + j * HS, HS);
        maximum = fmax(maximum, p[j]);
    }
    for (int j = 0; j <= t; j++) {
        p[j] = exp(p[j] - maximum);
        sum += p[j];
    }
    for (int j = 0; j <= t; j++) {
        p[j] /= sum;
        add_scaled(o->out + t * HS, p[j] * kept[j], v + j * HS, HS);
        add_scaled(o->d_v + j * HS, p[j] * kept[j], d_out + t * HS, HS);
        d_p[j] = kept[j] * dot(d_out + t * HS, v + j * HS, HS);
        total += p[j] * d_p[j];
    }
    for (int j = 0; j <= t; j++) {
        double d_score = p[j] * (d_p[j] - total) * scale;
        add_scaled(o->d_q + t * HS, d_score, k + j * HS, HS);
        add_scaled(o->d_k + j * HS, d_score, q + t * HS, HS);
    }
    free(p);
    free(d_p);
}

static double *head_in_double(const float *in, int T, int row, int first, int HS)
{
    double *out = calloc((size_t)T * (size_t)HS, sizeof(double));
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < HS; i++) {
            out[t * HS + i] = in[(int64_t)t * row + first + i];
        }
    }
    return out;
}

static void compare_head(const double *expected, const float *found, int T, int row, int first, int HS,
                         double bound, const char *name)
{
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < HS; i++) {
            assert_close(found[(int64_t)t * row + first + i], expected[t * HS + i], bound, name, t * HS + i);
        }
    }
}

/* Inputs are of order 1, so outputs are at most that; each is a sum of at most T terms of rounding eps. */
static void check_head(const Case *c, const float *qkv, const float *out, const float *d_out,
                       const float *d_qkv, int b, int h, const Dropout *dropout)
{
    int C = c->NH * c->HS;
    const float *own_qkv = qkv + (int64_t)b * c->T * 3 * C;
    const float *own_d_qkv = d_qkv + (int64_t)b * c->T * 3 * C;
    double *q = head_in_double(own_qkv, c->T, 3 * C, h * c->HS, c->HS);
    double *k = head_in_double(own_qkv, c->T, 3 * C, C + h * c->HS, c->HS);
    double *v = head_in_double(own_qkv, c->T, 3 * C, 2 * C + h * c->HS, c->HS);
    double *d_o = head_in_double(d_out + (int64_t)b * c->T * C, c->T, C, h * c->HS, c->HS);
    size_t count = (size_t)c->T * (size_t)c->HS;
    Oracle o = {calloc(count, 8), calloc(count, 8), calloc(count, 8), calloc(count, 8)};
    float *kept = test_zeros(c->T);
    for (int t = 0; t < c->T; t++) {
        for (int j = 0; j < c->T; j++) {
            kept[j] = 1;
        }
        dropout_apply(kept, dropout, (((int64_t)b * c->NH + h) * c->T + t) * c->T, c->T);
        oracle_query(&o, q, k, v, d_o, kept, t, c->HS);
    }
    double bound = 8 * sqrt(c->T) * sqrt(c->HS) * 0x1p-23;
    compare_head(o.out, out + (int64_t)b * c->T * C, c->T, C, h * c->HS, c->HS, bound, "out");
    compare_head(o.d_q, own_d_qkv, c->T, 3 * C, h * c->HS, c->HS, 4 * bound, "d_q");
    compare_head(o.d_k, own_d_qkv, c->T, 3 * C, C + h * c->HS, c->HS, 4 * bound, "d_k");
    compare_head(o.d_v, own_d_qkv, c->T, 3 * C, 2 * C + h * c->HS, c->HS, 4 * bound, "d_v");
    double *all[] = {q, k, v, d_o, o.out, o.d_q, o.d_k, o.d_v};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
    memory_free(kept);
}

static void run_case(const Case *c, int threads, float *out, float *lse, float *d_qkv, const float *qkv,
                     const float *d_out, const Dropout *dropout)
{
    AttentionShape shape = {c->B, c->T, c->NH, c->HS, threads};
    float *scratch = test_values(threads * attention_scratch_count(c->T, c->HS), 1.0f, 99); /* rubbish */
    attention_forward((Tensor){out, DTYPE_FP32}, lse, (Tensor){(void *)qkv, DTYPE_FP32}, &shape, dropout,
                      scratch);
    AttentionBackward backward = {.d_qkv = {d_qkv, DTYPE_FP32},
                                  .d_out = {(void *)d_out, DTYPE_FP32},
                                  .qkv = {(void *)qkv, DTYPE_FP32},
                                  .out = {out, DTYPE_FP32},
                                  .lse = lse,
                                  .dropout = dropout,
                                  .scratch = scratch};
    attention_backward(&backward, &shape);
    memory_free(scratch);
}

static void check_case(const Case *c)
{
    int C = c->NH * c->HS;
    int64_t BT = (int64_t)c->B * c->T;
    Dropout dropout = {
        .probability = c->dropout, .key = {.seed = 3, .purpose = RANDOM_DROPOUT, .step = 1}, .site = 4};
    float *qkv = test_values(BT * 3 * C, 1.0f, 1);
    float *d_out = test_values(BT * C, 1.0f, 2);
    float *out = test_zeros(BT * C), *lse = test_zeros(BT * c->NH), *d_qkv = test_zeros(BT * 3 * C);
    float *out3 = test_zeros(BT * C), *d_qkv3 = test_zeros(BT * 3 * C);
    run_case(c, 1, out, lse, d_qkv, qkv, d_out, &dropout);
    run_case(c, 3, out3, lse, d_qkv3, qkv, d_out, &dropout);
    assert_memory_equal(out, out3, (size_t)(BT * C) * sizeof(float));
    assert_memory_equal(d_qkv, d_qkv3, (size_t)(BT * 3 * C) * sizeof(float));
    for (int b = 0; b < c->B; b++) {
        for (int h = 0; h < c->NH; h++) {
            check_head(c, qkv, out, d_out, d_qkv, b, h, &dropout);
        }
    }
    float *all[] = {qkv, d_out, out, lse, d_qkv, out3, d_qkv3};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        memory_free(all[i]);
    }
}

static void test_attention_against_textbook(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_case(&cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention_against_textbook)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
