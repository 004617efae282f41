#include "llmc/compute/cpu/embedding.h"

void embedding_forward(float *out, const int32_t *tokens, const float *wte, const float *wpe, int B, int T,
                       int C, const Dropout *dropout)
{
#pragma omp parallel for schedule(static)
    for (int64_t position = 0; position < (int64_t)B * T; position++) {
        const float *token_row = wte + (int64_t)tokens[position] * C;
        const float *position_row = wpe + position % T * C;
        float *row = out + position * C;
        for (int i = 0; i < C; i++) {
            row[i] = token_row[i] + position_row[i];
        }
        dropout_apply(row, dropout, position * C, C);
    }
}

void embedding_backward_token(float *d_row, const TokenBins *bins, int bin, const float *d_out, int C)
{
    memset(d_row, 0, (size_t)C * sizeof(float));
    for (int32_t i = bins->starts[bin]; i < bins->starts[bin + 1]; i++) {
        const float *row = d_out + (int64_t)bins->positions[i] * C;
        for (int c = 0; c < C; c++) {
            d_row[c] += row[c];
        }
    }
}

void embedding_backward_positions(float *d_wpe, const float *d_out, int B, int T, int C, int accumulates)
{
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < T; t++) {
        float *row = d_wpe + t * C;
        if (!accumulates) {
            memset(row, 0, (size_t)C * sizeof(float));
        }
        for (int64_t b = 0; b < B; b++) {
            const float *d_row = d_out + (b * T + t) * C;
            for (int c = 0; c < C; c++) {
                row[c] += d_row[c];
            }
        }
    }
}
