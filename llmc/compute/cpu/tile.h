/* Small dense products for attention, where a library call would cost more than the product.
 *
 * c (rows, columns) += a (rows, depth) b (depth, columns), all fp32. c and b are stored by rows with their
 * strides; a is read element by element at a[row * a_row_stride + k * a_depth_stride], so it may be
 * transposed for nothing. columns must be a multiple of TILE_COLUMNS; rows and depth are free. Each sum runs
 * over k in order, as one chain of fused multiply-adds that begins with c.
 */
#ifndef LLMC_COMPUTE_CPU_TILE_H
#define LLMC_COMPUTE_CPU_TILE_H

#include <stdint.h>

#include "lanes.h"

enum { TILE_COLUMNS = 2 * LANES, TILE_ROWS = LANE_REGISTERS / 4 };

typedef struct TileProduct {
    float *c;
    int64_t c_stride;
    const float *a;
    int64_t a_row_stride, a_depth_stride;
    const float *b;
    int64_t b_stride;
    int rows, columns, depth;
} TileProduct;

void tile_multiply(const TileProduct *product);

#endif
