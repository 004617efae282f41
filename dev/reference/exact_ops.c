#include "dev/reference/exact_ops.h"

#include <math.h>
#include <string.h>

#include "llmc/base/memory.h"

static const double norm_epsilon = 1e-5;
static const double function_units = 4.0; /* of exp, tanh and reciprocals, in sum_unit */

/* Uniform in [-1, 1).  Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators". */
static double random_sign_unit(Rounding *rounding)
{
    uint64_t z = (rounding->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)(int64_t)(z ^ (z >> 31)) * 0x1p-63;
}

double rounded(double x, double unit, Rounding *rounding)
{
    return unit > 0 ? x * (1.0 + unit * random_sign_unit(rounding)) : x;
}

static void round_all(double *x, int64_t count, double unit, Rounding *rounding)
{
    for (int64_t i = 0; unit > 0 && i < count; i++) {
        x[i] = rounded(x[i], unit, rounding);
    }
}

void round_stored(double *x, int64_t count, Rounding *rounding)
{
    round_all(x, count, rounding->storage_unit, rounding);
}

double added(double sum, double term, const Rounding *rounding)
{
    return rounding->sum_unit > 0 ? (double)((float)sum + (float)term) : sum + term;
}

/* A way through 0 .. count-1: from anywhere, up or down. */
typedef struct Order {
    int64_t first, step, count;
} Order;

static Order draw_order(int64_t count, Rounding *rounding)
{
    if (rounding->sum_unit == 0) {
        return (Order){0, 1, count};
    }
    double position = (random_sign_unit(rounding) + 1.0) / 2.0 * (double)count;
    int64_t first = (int64_t)position;
    return (Order){first < count ? first : 0, random_sign_unit(rounding) < 0 ? count - 1 : 1, count};
}

static int64_t in_order(const Order *order, int64_t i)
{
    return (order->first + i % order->count * order->step) % order->count;
}

static double function_unit(const Rounding *rounding)
{
    return function_units * rounding->sum_unit;
}

/* A product whose operands lie densely, in double or as fp32 has them. */
typedef struct DenseProduct {
    double *sum, *a, *b;
    float *sum_low, *a_low, *b_low;
    int64_t M, N, K;
    Order order; /* of the terms */
} DenseProduct;

enum {
    PRODUCT_ROWS = 4,            /* that share each read of b */
    PARALLEL_TERMS_MIN = 1 << 20 /* below, threads cost more than they bring */
};

static void rows_exact(const DenseProduct *product, int64_t first, int64_t last)
{
    int64_t N = product->N, K = product->K;
    for (int64_t k = 0; k < K; k++) {
        const double *restrict b = product->b + k * N;
        for (int64_t m = first; m < last; m++) {
            double *restrict sum = product->sum + m * N;
            double factor = product->a[m * K + k];
            for (int64_t n = 0; n < N; n++) {
                sum[n] += factor * b[n];
            }
        }
    }
}

static void rows_in_fp32(const DenseProduct *product, int64_t first, int64_t last)
{
    int64_t N = product->N, K = product->K;
    for (int64_t i = 0; i < K; i++) {
        int64_t k = in_order(&product->order, i);
        const float *restrict b = product->b_low + k * N;
        for (int64_t m = first; m < last; m++) {
            float *restrict sum = product->sum_low + m * N;
            float factor = product->a_low[m * K + k];
            for (int64_t n = 0; n < N; n++) {
                sum[n] += factor * b[n];
            }
        }
    }
}

static float *to_fp32(const double *values, int64_t count)
{
    float *low = memory_alloc((size_t)count, sizeof(*low), "operand in fp32");
    for (int64_t i = 0; i < count; i++) {
        low[i] = (float)values[i];
    }
    return low;
}

void product_add(const Product *product, Rounding *rounding)
{
    int64_t M = product->M, N = product->N, K = product->K;
    int is_exact = rounding->sum_unit == 0;
    DenseProduct dense = {.M = M, .N = N, .K = K, .order = draw_order(K, rounding)};
    dense.a = memory_alloc((size_t)(M * K), sizeof(double), "operand");
    dense.b = memory_alloc((size_t)(K * N), sizeof(double), "operand");
    dense.sum = memory_alloc_zeroed((size_t)(M * N), sizeof(double), "product");
    for (int64_t i = 0; i < M * K; i++) {
        dense.a[i] = product->a[i / K * product->row_stride + i % K * product->column_stride];
    }
    memcpy(dense.b, product->b, (size_t)(K * N) * sizeof(double));
    round_stored(dense.a, M * K, rounding);
    round_stored(dense.b, K * N, rounding);
    dense.a_low = is_exact ? NULL : to_fp32(dense.a, M * K);
    dense.b_low = is_exact ? NULL : to_fp32(dense.b, K * N);
    dense.sum_low = is_exact ? NULL : to_fp32(dense.sum, M * N);
#pragma omp parallel for schedule(static) if (M * N * K > PARALLEL_TERMS_MIN)
    for (int64_t m = 0; m < M; m += PRODUCT_ROWS) {
        int64_t last = m + PRODUCT_ROWS < M ? m + PRODUCT_ROWS : M;
        if (is_exact) {
            rows_exact(&dense, m, last);
        } else {
            rows_in_fp32(&dense, m, last);
        }
    }
    for (int64_t i = 0; i < M * N; i++) {
        product->out[i] += is_exact ? dense.sum[i] : (double)dense.sum_low[i];
    }
    memory_free(dense.sum_low);
    memory_free(dense.b_low);
    memory_free(dense.a_low);
    memory_free(dense.sum);
    memory_free(dense.b);
    memory_free(dense.a);
}

void linear_forward(double *out, const double *inp, const Linear *layer, int64_t M, Rounding *rounding)
{
    int64_t I = layer->I, O = layer->O;
    double *transposed = memory_alloc((size_t)(I * O), sizeof(*transposed), "transposed weight");
    for (int64_t o = 0; o < O; o++) {
        for (int64_t i = 0; i < I; i++) {
            transposed[i * O + o] = layer->weight[o * I + i];
        }
    }
    for (int64_t i = 0; i < M * O; i++) {
        out[i] = layer->bias ? layer->bias[i % O] : 0.0;
    }
    product_add(&(Product){out, inp, I, 1, transposed, M, O, I}, rounding);
    memory_free(transposed);
}

void linear_backward(double *d_inp, const double *d_out, const double *inp, const Linear *layer, int64_t M,
                     Rounding *rounding)
{
    int64_t I = layer->I, O = layer->O;
    product_add(&(Product){d_inp, d_out, O, 1, layer->weight, M, I, O}, rounding);
    product_add(&(Product){layer->d_weight, d_out, 1, O, inp, O, I, M}, rounding);
    Order order = draw_order(M, rounding);
    for (int64_t i = 0; layer->d_bias && i < M * O; i++) {
        double *d_bias = &layer->d_bias[i % O];
        *d_bias = added(*d_bias, d_out[in_order(&order, i / O) * O + i % O], rounding);
    }
}

/* What rounding x adds to it. */
static double rounding_of(double x, double unit, Rounding *rounding)
{
    return rounded(x, unit, rounding) - x;
}

/* xhat (C) = (x - mean) / deviation; returns 1 / deviation. Rounded as in programs that fold the mean into
 * an offset, x * scale - mean * scale, and that update mean and variance together: as inexact as x is large,
 * not as what is left of it. */
static double normalise(double *xhat, const double *x, int64_t C, Rounding *rounding)
{
    double mean = 0, square = 0, variance = 0;
    for (int64_t c = 0; c < C; c++) {
        mean += x[c] / (double)C;
        square += x[c] * x[c] / (double)C;
    }
    mean += rounding_of(sqrt(square), rounding->sum_unit, rounding);
    for (int64_t c = 0; c < C; c++) {
        variance += (x[c] - mean) * (x[c] - mean) / (double)C;
    }
    variance += rounding_of(2.0 * sqrt(square * variance), rounding->sum_unit, rounding);
    double scale = rounded(1.0 / sqrt(variance + norm_epsilon), function_unit(rounding), rounding);
    double offset = rounded(mean * scale, rounding->sum_unit, rounding);
    for (int64_t c = 0; c < C; c++) {
        xhat[c] = rounded(x[c] * scale, rounding->sum_unit, rounding) - offset;
    }
    return scale;
}

void norm_forward(double *out, const double *inp, const double *weight, const double *bias, int64_t M,
                  int64_t C, Rounding *rounding)
{
    for (int64_t m = 0; m < M; m++) {
        normalise(out + m * C, inp + m * C, C, rounding);
        for (int64_t c = 0; c < C; c++) {
            out[m * C + c] = out[m * C + c] * weight[c] + bias[c];
        }
    }
    round_stored(out, M * C, rounding);
}

void norm_backward(const NormBackward *norm, Rounding *rounding)
{
    int64_t C = norm->C, M = norm->M;
    double *xhat = memory_alloc((size_t)C, sizeof(*xhat), "normalised vector");
    Order order = draw_order(M, rounding);
    for (int64_t i = 0; i < M; i++) {
        int64_t m = in_order(&order, i);
        const double *d_out = norm->d_out + m * C;
        double scale = normalise(xhat, norm->inp + m * C, C, rounding);
        double d_mean = 0, d_deviation = 0;
        for (int64_t c = 0; c < C; c++) {
            double d_xhat = d_out[c] * norm->weight[c];
            d_mean = added(d_mean, d_xhat, rounding);
            d_deviation = added(d_deviation, d_xhat * xhat[c], rounding);
            norm->d_weight[c] = added(norm->d_weight[c], d_out[c] * xhat[c], rounding);
            norm->d_bias[c] = added(norm->d_bias[c], d_out[c], rounding);
        }
        for (int64_t c = 0; c < C; c++) {
            double d_xhat = rounded(d_out[c] * norm->weight[c], rounding->sum_unit, rounding);
            double along = rounded(xhat[c] * d_deviation / (double)C, rounding->sum_unit, rounding);
            norm->d_inp[m * C + c] +=
                rounded(scale * (d_xhat - d_mean / (double)C - along), rounding->sum_unit, rounding);
        }
    }
    memory_free(xhat);
}

static const double gelu_scale = 0.79788456080286535588; /* sqrt(2 / pi) */

static double gelu_tanh(double x, Rounding *rounding)
{
    return rounded(tanh(gelu_scale * (x + 0.044715 * x * x * x)), function_unit(rounding), rounding);
}

void gelu_forward_exact(double *out, const double *inp, int64_t count, Rounding *rounding)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = 0.5 * inp[i] * (1.0 + gelu_tanh(inp[i], rounding));
    }
    round_stored(out, count, rounding);
}

void gelu_backward_exact(double *d_inp, const double *d_out, const double *inp, int64_t count,
                         Rounding *rounding)
{
    for (int64_t i = 0; i < count; i++) {
        double x = inp[i], t = gelu_tanh(x, rounding);
        double slope = gelu_scale * (1.0 + 3.0 * 0.044715 * x * x);
        d_inp[i] = d_out[i] * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope);
    }
    round_stored(d_inp, count, rounding);
}

/* Sum of a[i] * b[i] over count. */
static double rounded_dot(const double *a, const double *b, int64_t count, Rounding *rounding)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum = added(sum, rounded(a[i] * b[i], rounding->sum_unit, rounding), rounding);
    }
    return sum;
}

/* p (t+1): what position t takes from each position before it and from itself. */
static void head_probabilities(double *p, const Head *head, int64_t t, Rounding *rounding)
{
    const double *q = head->qkv + t * 3 * head->C;
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        const double *k = head->qkv + j * 3 * head->C + head->C;
        p[j] = rounded_dot(q, k, head->HS, rounding) / sqrt((double)head->HS);
        p[j] = rounded(p[j], 2.0 * rounding->sum_unit, rounding);
        largest = p[j] > largest ? p[j] : largest;
    }
    for (int64_t j = 0; j <= t; j++) {
        p[j] = rounded(exp(p[j] - largest), function_unit(rounding), rounding);
        sum = added(sum, p[j], rounding);
    }
    sum = rounded(sum, function_unit(rounding), rounding);
    for (int64_t j = 0; j <= t; j++) {
        p[j] /= sum;
    }
    round_stored(p, t + 1, rounding);
}

void head_forward(const Head *head, Rounding *rounding)
{
    int64_t C = head->C, HS = head->HS;
    double *p = memory_alloc((size_t)head->T, sizeof(*p), "attention of one position");
    for (int64_t t = 0; t < head->T; t++) {
        double *out = head->out + t * C;
        memset(out, 0, (size_t)HS * sizeof(*out));
        head_probabilities(p, head, t, rounding);
        for (int64_t j = 0; j <= t; j++) {
            const double *v = head->qkv + j * 3 * C + 2 * C;
            for (int64_t c = 0; c < HS; c++) {
                out[c] = added(out[c], p[j] * v[c], rounding);
            }
        }
        round_stored(out, HS, rounding);
    }
    memory_free(p);
}

/* Position t's share of d_qkv: its own d_q, and what it adds to d_k and d_v of itself and those before it. */
static void head_backward_position(const Head *head, double *p, int64_t t, Rounding *rounding)
{
    int64_t C = head->C, HS = head->HS;
    const double *q = head->qkv + t * 3 * C;
    const double *d_out = head->d_out + t * C;
    double *d_q = head->d_qkv + t * 3 * C;
    head_probabilities(p, head, t, rounding);
    double mean = rounded_dot(d_out, head->out + t * C, HS, rounding);
    for (int64_t j = 0; j <= t; j++) {
        const double *k = head->qkv + j * 3 * C + C;
        double *d_k = head->d_qkv + j * 3 * C + C, *d_v = d_k + C;
        double d_p = rounded_dot(d_out, k + C, HS, rounding);
        double d_score = rounded(p[j] * (d_p - mean) / sqrt((double)HS), rounding->storage_unit, rounding);
        for (int64_t c = 0; c < HS; c++) {
            d_q[c] = added(d_q[c], d_score * k[c], rounding);
            d_k[c] = added(d_k[c], d_score * q[c], rounding);
            d_v[c] = added(d_v[c], p[j] * d_out[c], rounding);
        }
    }
}

void head_backward(const Head *head, Rounding *rounding)
{
    double *p = memory_alloc((size_t)head->T, sizeof(*p), "attention of one position");
    for (int64_t t = 0; t < head->T; t++) {
        head_backward_position(head, p, t, rounding);
    }
    for (int64_t t = 0; t < head->T; t++) {
        for (int64_t part = 0; part < 3; part++) {
            round_stored(head->d_qkv + (t * 3 + part) * head->C, head->HS, rounding);
        }
    }
    memory_free(p);
}
