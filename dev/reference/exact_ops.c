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

double term_unit(int64_t K, const Rounding *rounding)
{
    return rounding->sum_unit * sqrt(1.0 + (double)K / 8.0);
}

static double result_unit(int64_t K, const Rounding *rounding)
{
    return rounding->sum_unit * sqrt((double)K) / 4.0;
}

static double function_unit(const Rounding *rounding)
{
    return function_units * rounding->sum_unit;
}

/* Rows first .. first + 3 (as many as there are) of a product whose a (M,K) is dense. */
static void product_rows(double *restrict out, const double *restrict a, const double *restrict b,
                         const Product *product, int64_t first)
{
    int64_t N = product->N, K = product->K;
    int64_t last = first + 4 < product->M ? first + 4 : product->M;
    for (int64_t k = 0; k < K; k++) {
        for (int64_t m = first; m < last; m++) {
            double factor = a[m * K + k];
            for (int64_t n = 0; n < N; n++) {
                out[m * N + n] += factor * b[k * N + n];
            }
        }
    }
}

void product_add(const Product *product, Rounding *rounding)
{
    int64_t M = product->M, N = product->N, K = product->K;
    double *a = memory_alloc((size_t)(M * K), sizeof(*a), "operand");
    double *sum = memory_alloc_zeroed((size_t)(M * N), sizeof(*sum), "product");
    double unit = sqrt(pow(term_unit(K, rounding), 2) + pow(rounding->storage_unit, 2));
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < K; k++) {
            a[m * K + k] = product->a[m * product->row_stride + k * product->column_stride];
        }
    }
    round_all(a, M * K, unit, rounding);
#pragma omp parallel for schedule(static)
    for (int64_t m = 0; m < M; m += 4) {
        product_rows(sum, a, product->b, product, m);
    }
    round_all(sum, M * N, result_unit(K, rounding), rounding);
    for (int64_t i = 0; i < M * N; i++) {
        product->out[i] += sum[i];
    }
    memory_free(sum);
    memory_free(a);
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
    double unit = term_unit(M, rounding);
    for (int64_t o = 0; layer->d_bias && o < O; o++) {
        double sum = 0;
        for (int64_t m = 0; m < M; m++) {
            sum += rounded(d_out[m * O + o], unit, rounding);
        }
        layer->d_bias[o] += rounded(sum, result_unit(M, rounding), rounding);
    }
}

/* xhat (C) = (x - mean) / deviation; returns 1 / deviation. */
static double normalise(double *xhat, const double *x, int64_t C, Rounding *rounding)
{
    double mean = 0, square = 0, variance = 0;
    for (int64_t c = 0; c < C; c++) {
        mean += x[c] / (double)C;
        square += x[c] * x[c] / (double)C;
    }
    /* A mean of cancelling terms is as inexact as the terms are large. */
    mean += rounded(sqrt(square), rounding->sum_unit, rounding) - sqrt(square);
    for (int64_t c = 0; c < C; c++) {
        xhat[c] = rounded(x[c] - mean, rounding->sum_unit, rounding);
        variance += xhat[c] * xhat[c] / (double)C;
    }
    double scale = rounded(1.0 / sqrt(variance + norm_epsilon), function_unit(rounding), rounding);
    for (int64_t c = 0; c < C; c++) {
        xhat[c] = rounded(xhat[c] * scale, rounding->sum_unit, rounding);
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
    double unit = term_unit(C, rounding), sum_unit = term_unit(M, rounding);
    for (int64_t m = 0; m < M; m++) {
        const double *d_out = norm->d_out + m * C;
        double scale = normalise(xhat, norm->inp + m * C, C, rounding);
        double d_mean = 0, d_deviation = 0;
        for (int64_t c = 0; c < C; c++) {
            double d_xhat = d_out[c] * norm->weight[c];
            d_mean += rounded(d_xhat, unit, rounding) / (double)C;
            d_deviation += rounded(d_xhat * xhat[c], unit, rounding) / (double)C;
            norm->d_weight[c] += rounded(d_out[c] * xhat[c], sum_unit, rounding);
            norm->d_bias[c] += rounded(d_out[c], sum_unit, rounding);
        }
        for (int64_t c = 0; c < C; c++) {
            double d_xhat = rounded(d_out[c] * norm->weight[c], rounding->sum_unit, rounding);
            double along = rounded(xhat[c] * d_deviation, rounding->sum_unit, rounding);
            norm->d_inp[m * C + c] +=
                rounded(scale * (d_xhat - d_mean - along), rounding->sum_unit, rounding);
        }
    }
    round_all(norm->d_weight, C, result_unit(M, rounding), rounding);
    round_all(norm->d_bias, C, result_unit(M, rounding), rounding);
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

/* Sum of a[i] * b[i] over count, each product rounded as a term. */
static double rounded_dot(const double *a, const double *b, int64_t count, Rounding *rounding)
{
    double sum = 0, unit = term_unit(count, rounding);
    for (int64_t i = 0; i < count; i++) {
        sum += rounded(a[i] * b[i], unit, rounding);
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
        sum += p[j];
    }
    sum = rounded(sum, function_unit(rounding) + result_unit(t + 1, rounding), rounding);
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
        round_all(p, t + 1, term_unit(t + 1, rounding), rounding);
        for (int64_t j = 0; j <= t; j++) {
            const double *v = head->qkv + j * 3 * C + 2 * C;
            for (int64_t c = 0; c < HS; c++) {
                out[c] += p[j] * v[c];
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
    double unit = term_unit(head->T, rounding);
    head_probabilities(p, head, t, rounding);
    double mean = rounded_dot(d_out, head->out + t * C, HS, rounding);
    for (int64_t j = 0; j <= t; j++) {
        const double *k = head->qkv + j * 3 * C + C;
        double *d_k = head->d_qkv + j * 3 * C + C, *d_v = d_k + C;
        double d_p = rounded_dot(d_out, k + C, HS, rounding);
        double d_score = rounded(p[j] * (d_p - mean) / sqrt((double)HS), rounding->storage_unit, rounding);
        for (int64_t c = 0; c < HS; c++) {
            d_q[c] += rounded(d_score * k[c], unit, rounding);
            d_k[c] += rounded(d_score * q[c], unit, rounding);
            d_v[c] += rounded(p[j] * d_out[c], unit, rounding);
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
