#include "llmc/compute/cpu/layernorm.h"

#include "llmc/base/memory.h"
#include "llmc/compute/cpu/columns.h"

static const float layernorm_epsilon = 1e-5f;

enum { ROW_BUFFER = 1024 }; /* values normalised together before they are stored */

void layernorm_forward(Tensor out, float *mean, float *rstd, const float *inp, const float *weight,
                       const float *bias, int64_t rows, int64_t C)
{
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *x = inp + row * C;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < C; i++) {
            sum += x[i];
        }
        float m = sum / (float)C;
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < C; i++) {
            squares += (x[i] - m) * (x[i] - m);
        }
        float s = 1.0f / sqrtf(squares / (float)C + layernorm_epsilon);
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
    float sum = 0;
    float sum_normal = 0;
#pragma omp simd reduction(+ : sum, sum_normal)
    for (int64_t i = 0; i < C; i++) {
        float d_normal = d_out[i] * weight[i];
        sum += d_normal;
        sum_normal += d_normal * ((x[i] - mean) * rstd);
    }
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
