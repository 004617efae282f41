#include "llmc/compute/cpu/tile.h"

/* TILE_ROWS x TILE_COLUMNS of c stay in registers while k runs. */
static void multiply_block(const TileProduct *p, int row, int column)
{
    Lanes left[TILE_ROWS];
    Lanes right[TILE_ROWS];
    const float *a = p->a + row * p->a_row_stride;
    const float *b = p->b + column;
    float *c = p->c + row * p->c_stride + column;
    for (int i = 0; i < TILE_ROWS; i++) {
        left[i] = *(const Lanes *)(c + i * p->c_stride);
        right[i] = *(const Lanes *)(c + i * p->c_stride + LANES);
    }
    for (int k = 0; k < p->depth; k++) {
        Lanes b_left = *(const Lanes *)(b + k * p->b_stride);
        Lanes b_right = *(const Lanes *)(b + k * p->b_stride + LANES);
        const float *a_k = a + k * p->a_depth_stride;
        for (int i = 0; i < TILE_ROWS; i++) {
            Lanes value = lanes_of(a_k[i * p->a_row_stride]);
            left[i] = lanes_fma(value, b_left, left[i]);
            right[i] = lanes_fma(value, b_right, right[i]);
        }
    }
    for (int i = 0; i < TILE_ROWS; i++) {
        *(Lanes *)(c + i * p->c_stride) = left[i];
        *(Lanes *)(c + i * p->c_stride + LANES) = right[i];
    }
}

static void multiply_row(const TileProduct *p, int row, int column)
{
    float *c = p->c + row * p->c_stride + column;
    Lanes left = *(const Lanes *)c;
    Lanes right = *(const Lanes *)(c + LANES);
    for (int k = 0; k < p->depth; k++) {
        const float *b = p->b + k * p->b_stride + column;
        Lanes value = lanes_of(p->a[row * p->a_row_stride + k * p->a_depth_stride]);
        left = lanes_fma(value, *(const Lanes *)b, left);
        right = lanes_fma(value, *(const Lanes *)(b + LANES), right);
    }
    *(Lanes *)c = left;
    *(Lanes *)(c + LANES) = right;
}

void tile_multiply(const TileProduct *product)
{
    for (int column = 0; column < product->columns; column += TILE_COLUMNS) {
        int row = 0;
        for (; row + TILE_ROWS <= product->rows; row += TILE_ROWS) {
            multiply_block(product, row, column);
        }
        for (; row < product->rows; row++) {
            multiply_row(product, row, column);
        }
    }
}
