/* The small tile of kernels that work in registers of fp32 sums. Included by the kernels, which say what one
 * step along K does to a register.
 */
#ifndef LLMC_COMPUTE_CPU_MATMUL_LANES_H
#define LLMC_COMPUTE_CPU_MATMUL_LANES_H

#include "llmc/compute/cpu/matmul_pack.h"

/* The tile's sums fill three quarters of the registers; one row of B, and a value of A, the rest. */
enum { ROWS = LANE_REGISTERS / 4, VECTORS = 3, COLUMNS = VECTORS * LANES };
enum { PANEL_ROWS = (int)ROWS > (int)LANES ? (int)ROWS : (int)LANES }; /* packed together */

/* sum + left * right, in whatever way the kernel multiplies dwords. */
typedef Lanes (*LanesStep)(Lanes left, Lanes right, Lanes sum);

/* A tile that sticks out of the product: only what lies inside is stored. */
static void store_part(const MatmulTile *tile, Lanes sums[ROWS][VECTORS])
{
    for (int i = 0; i < tile->rows; i++) {
        float *out = tile->out + i * tile->out_stride;
        const float *row = (const float *)sums[i];
        for (int j = 0; j < tile->columns; j++) {
            out[j] = tile->accumulates ? out[j] + row[j] : row[j];
        }
    }
}

PACK_INLINE void store_whole(const MatmulTile *tile, Lanes sums[ROWS][VECTORS], int rows)
{
    for (int i = 0; i < rows; i++) {
        Lanes *out = (Lanes *)(tile->out + i * tile->out_stride);
        for (int j = 0; j < VECTORS; j++) {
            out[j] = tile->accumulates ? out[j] + sums[i][j] : sums[i][j];
        }
    }
}

PACK_INLINE void multiply_rows(const MatmulTile *tile, int rows, LanesStep step)
{
    Lanes sums[ROWS][VECTORS];
    const float *a = tile->a, *b = tile->b;
    if (tile->accumulates) {
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < VECTORS; j++) {
                __builtin_prefetch(tile->out + i * tile->out_stride + j * LANES, 1);
            }
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < VECTORS; j++) {
            sums[i][j] = lanes_of(0);
        }
    }
    for (int k = 0; k < tile->depth; k++) {
        Lanes right[VECTORS];
        for (int j = 0; j < VECTORS; j++) {
            right[j] = *(const Lanes *)(b + j * LANES);
        }
        for (int i = 0; i < rows; i++) {
            Lanes left = lanes_of(a[i]);
            for (int j = 0; j < VECTORS; j++) {
                sums[i][j] = step(left, right[j], sums[i][j]);
            }
        }
        a += PANEL_ROWS;
        b += COLUMNS;
    }
    if (tile->rows == rows && tile->columns == COLUMNS) {
        store_whole(tile, sums, rows);
    } else {
        Lanes stored[ROWS][VECTORS]; /* sums itself must not need an address: it lies in registers */
        for (int i = 0; i < rows; i++) {
            for (int j = 0; j < VECTORS; j++) {
                stored[i][j] = sums[i][j];
            }
        }
        store_part(tile, stored);
    }
}

/* A few rows, as when sampling, are not multiplied with the zeros that fill their panel. */
PACK_INLINE void matmul_lanes_multiply(const MatmulTile *panels, LanesStep step)
{
    MatmulTile tile = *panels;
    for (int row = 0; row < panels->rows; row += ROWS) {
        tile.out = panels->out + row * panels->out_stride;
        tile.a = (const float *)panels->a + row;
        tile.rows = panels->rows - row < ROWS ? panels->rows - row : ROWS;
        if (tile.rows == 1) {
            multiply_rows(&tile, 1, step);
        } else if (tile.rows <= ROWS / 2) {
            multiply_rows(&tile, ROWS / 2, step);
        } else {
            multiply_rows(&tile, ROWS, step);
        }
    }
}

#endif
