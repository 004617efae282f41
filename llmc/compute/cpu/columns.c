#include "llmc/compute/cpu/columns.h"

enum { COLUMN_SLICE = 256 }; /* columns summed together, so that their sums stay in the first cache */

static void sum_slice(float *sums, Tensor in, int64_t first_row, int64_t end_row, int64_t columns,
                      int64_t column, int64_t count)
{
    float scratch[COLUMN_SLICE];
    memset(sums, 0, (size_t)count * sizeof(float));
    for (int64_t row = first_row; row < end_row; row++) {
        const float *values = tensor_row(in, row * columns + column, count, scratch);
        for (int64_t i = 0; i < count; i++) {
            sums[i] += values[i];
        }
    }
}

void column_sums(float *out, Tensor in, int64_t rows, int64_t columns, int accumulates, float *partial)
{
    int64_t blocks = column_blocks(rows);
    int64_t slices = (columns + COLUMN_SLICE - 1) / COLUMN_SLICE;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        for (int64_t slice = 0; slice < slices; slice++) {
            int64_t first_row = block * COLUMN_BLOCK_ROWS;
            int64_t end_row = first_row + COLUMN_BLOCK_ROWS < rows ? first_row + COLUMN_BLOCK_ROWS : rows;
            int64_t column = slice * COLUMN_SLICE;
            int64_t count = columns - column < COLUMN_SLICE ? columns - column : COLUMN_SLICE;
            sum_slice(partial + block * columns + column, in, first_row, end_row, columns, column, count);
        }
    }
    column_sums_of_blocks(out, partial, blocks, columns, columns, accumulates);
}

void column_sums_of_blocks(float *out, const float *partial, int64_t blocks, int64_t columns, int64_t stride,
                           int accumulates)
{
#pragma omp parallel for schedule(static)
    for (int64_t column = 0; column < columns; column++) {
        float sum = 0;
        for (int64_t block = 0; block < blocks; block++) {
            sum += partial[block * stride + column];
        }
        out[column] = accumulates ? out[column] + sum : sum;
    }
}
