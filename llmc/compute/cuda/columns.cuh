/* Sums over rows in a fixed order: gradients of biases, and the second stage of other column sums. */
#ifndef LLMC_COMPUTE_CUDA_COLUMNS_CUH
#define LLMC_COMPUTE_CUDA_COLUMNS_CUH

#include "llmc/compute/cuda/values.cuh"

/* rows at most: so many a block, and the blocks that a grid may have in y. */
enum { COLUMN_ROWS = 256, COLUMN_ROWS_MAX = COLUMN_ROWS * GRID_Y_MAX };

/* out (columns) fp32 = or += sum over rows of inp (rows,columns).
 *   partial   column_partial_count(rows, columns) fp32 of scratch
 * Asynchronous. Bound by memory: one read of inp. */
void column_sums(float *out, Tensor inp, int64_t rows, int columns, int accumulates, float *partial,
                 cudaStream_t stream);
int64_t column_partial_count(int64_t rows, int columns);

/* What blocks summed each for itself, (count, stride): first `columns` for out[0], then as many for each
 * other. */
enum { COLUMN_OUTS = 3 };
typedef struct ColumnParts {
    const float *parts;
    int count, stride, columns;
    int accumulates;
    float *out[COLUMN_OUTS]; /* (columns) = or += the sum over parts; NULL: not wanted */
} ColumnParts;

/* One launch, in a fixed order. */
void column_parts_sum(const ColumnParts *parts, cudaStream_t stream);

#endif
