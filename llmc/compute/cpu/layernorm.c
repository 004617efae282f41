#include "llmc/compute/cpu/layernorm.h"

#include "llmc/base/memory.h"
#include "llmc/compute/cpu/columns.h"
#include "llmc/compute/cpu/sums.h"

static const float layernorm_epsilon = 1e-5f;

enum { ROW_BUFFER = 1024 }; /* values normalised together before they are stored */

void layernorm_forward(Tensor out, float *mean, float *rstd, const float *inp, const float *weight,
                       const float *bias, int64_t rows, int64_t C)
{
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *x = inp + row * C;
        float m = sum_of(x, C) / (float)C;
        float s = 1.0f / sqrtf(squares_of(x, m, C) / (float)C + layernorm_epsilon);
        for (int64_t first = 0; first < C; first += ROW_BUFFER) {
            float normal[ROW_BUFFER];
            int64_t count = C - first < ROW_BUFFER ? C - first : ROW_BUFFER;
            for (int64_t i = 0; i < count; i++) {
                normal[i] = (x[first + i] - m) * s * weight[first + i] + bias[first + i];
            }
            tensor_store(out, row * C + first, normal, count);
        }
        mean[row] = m;
        rstd[row] = s;
    }
}

/* Over one row: the sum of the gradients of the normalised values, and of their products with those values.
 */
static void sum_terms(float *sum, float *sum_normal, const LayernormBackward *a, int64_t row)
{
    const float *d_out = a->d_out + row * a->C;
    const float *x = a->inp + row * a->C;
    float mean = a->mean[row];
    float rstd = a->rstd[row];
    Sum sums = {0}, products = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= a->C; i += SUM_LANES) {
        for (int p = 0; p < SUM_PARTS; p++) {
            int64_t first = i + p * LANES;
            Lanes d_normal = *(const Lanes *)(d_out + first) * *(const Lanes *)(a->weight + first);
            Lanes normal = (*(const Lanes *)(x + first) - lanes_of(mean)) * lanes_of(rstd);
            sums.part[p] += d_normal;
            products.part[p] += d_normal * normal;
        }
    }
    float terms[SUM_LANES], term_products[SUM_LANES];
    int64_t rest = a->C - i;
    for (int64_t r = 0; r < rest; r++) {
        terms[r] = d_out[i + r] * a->weight[i + r];
        term_products[r] = terms[r] * ((x[i + r] - mean) * rstd);
    }
    *sum = sum_fold(&sums, terms, rest);
    *sum_normal = sum_fold(&products, term_products, rest);
}

/* One row: its part of d_weight and d_bias is added to the sums, its d_inp to the stream. */
static void backward_row(const LayernormBackward *a, int64_t row, float *d_weight, float *d_bias)
{
    int64_t C = a->C;
    const float *restrict d_out = a->d_out + row * C;
    const float *restrict x = a->inp + row * C;
    const float *restrict weight = a->weight;
    float *restrict d_inp = a->d_inp + row * C;
    float mean = a->mean[row];
    float rstd = a->rstd[row];
    float sum, sum_normal;
    sum_terms(&sum, &sum_normal, a, row);
    sum /= (float)C;
    sum_normal /= (float)C;
#pragma omp simd
    for (int64_t i = 0; i < C; i++) {
        float normal = (x[i] - mean) * rstd;
        d_inp[i] += rstd * (d_out[i] * weight[i] - sum - normal * sum_normal);
        d_weight[i] += d_out[i] * normal;
        d_bias[i] += d_out[i];
    }
}

void layernorm_backward(const LayernormBackward *args)
{
    int64_t C = args->C;
    int64_t blocks = column_blocks(args->rows);
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        float *d_weight = args->partial + 2 * block * C;
        memset(d_weight, 0, (size_t)(2 * C) * sizeof(float));
        int64_t end = (block + 1) * COLUMN_BLOCK_ROWS;
        for (int64_t row = block * COLUMN_BLOCK_ROWS; row < end && row < args->rows; row++) {
            backward_row(args, row, d_weight, d_weight + C);
        }
    }
    column_sums_of_blocks(args->d_weight, args->partial, blocks, C, 2 * C, args->accumulates);
    column_sums_of_blocks(args->d_bias, args->partial + C, blocks, C, 2 * C, args->accumulates);
}
