#include "llmc/compute/cpu/tile.h"

typedef float Vector __attribute__((vector_size(VECTOR_BYTES), aligned(4)));

/* TILE_ROWS x TILE_COLUMNS of c stay in registers while k runs. */
static void multiply_block(const TileProduct *p, int row, int column)
{
    Vector left[TILE_ROWS];
    Vector right[TILE_ROWS];
    const float *a = p->a + row * p->a_row_stride;
    const float *b = p->b + column;
    float *c = p->c + row * p->c_stride + column;
    for (int i = 0; i < TILE_ROWS; i++) {
        left[i] = *(const Vector *)(c + i * p->c_stride);
        right[i] = *(const Vector *)(c + i * p->c_stride + TILE_VECTOR);
    }
    for (int k = 0; k < p->depth; k++) {
        Vector b_left = *(const Vector *)(b + k * p->b_stride);
        Vector b_right = *(const Vector *)(b + k * p->b_stride + TILE_VECTOR);
        const float *a_k = a + k * p->a_depth_stride;
        for (int i = 0; i < TILE_ROWS; i++) {
            float value = a_k[i * p->a_row_stride];
            left[i] += value * b_left;
            right[i] += value * b_right;
        }
    }
    for (int i = 0; i < TILE_ROWS; i++) {
        *(Vector *)(c + i * p->c_stride) = left[i];
        *(Vector *)(c + i * p->c_stride + TILE_VECTOR) = right[i];
    }
}

static void multiply_row(const TileProduct *p, int row, int column)
{
    float *c = p->c + row * p->c_stride + column;
    Vector left = *(const Vector *)c;
    Vector right = *(const Vector *)(c + TILE_VECTOR);
    for (int k = 0; k < p->depth; k++) {
        const float *b = p->b + k * p->b_stride + column;
        float value = p->a[row * p->a_row_stride + k * p->a_depth_stride];
        left += value * *(const Vector *)b;
        right += value * *(const Vector *)(b + TILE_VECTOR);
    }
    *(Vector *)c = left;
    *(Vector *)(c + TILE_VECTOR) = right;
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
