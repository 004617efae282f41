/* Sums down the columns of a (rows, columns) array, in an order that no thread count changes: blocks of
 * COLUMN_BLOCK_ROWS rows are summed in order, then the blocks in order.
 */
#ifndef LLMC_COMPUTE_CPU_COLUMNS_H
#define LLMC_COMPUTE_CPU_COLUMNS_H

#include "llmc/compute/cpu/vector.h"

enum { COLUMN_BLOCK_ROWS = 64 };

/* Blocks of rows, each of which needs `columns` floats of partial sums. */
static inline int64_t column_blocks(int64_t rows)
{
    return (rows + COLUMN_BLOCK_ROWS - 1) / COLUMN_BLOCK_ROWS;
}

/* out (columns) fp32 = or += column sums of in (rows, columns); partial (column_blocks(rows), columns) is
 * scratch. Bound by memory: one read of in. */
void column_sums(float *out, Tensor in, int64_t rows, int64_t columns, int accumulates, float *partial);

/* out (columns) = or += the sum of `blocks` rows of partial, in order. */
void column_sums_of_blocks(float *out, const float *partial, int64_t blocks, int64_t columns, int64_t stride,
                           int accumulates);

#endif
