/* Products of fp32 values: each slice of K is one chain of fused multiply-adds, k after k, that begins with
 * zero. Tiles, vector width and threads do not change a bit of it.
 */
#include "llmc/compute/cpu/matmul_lanes.h"

enum { SLICE_DEPTH = 128 };

static void multiply(const MatmulTile *panels)
{
    matmul_lanes_multiply(panels, lanes_fma);
}

static inline float widen(const void *values, int64_t i, PackKind kind)
{
    return kind == PACK_FP32 ? ((const float *)values)[i] : bf16_to_float(((const bf16 *)values)[i]);
}

/* sum + what one slice of K, at most SLICE_DEPTH deep, contributes to LANES columns. Columns that lie beyond
 * the block's count are zeros. */
PACK_INLINE Lanes row_slice(const MatmulRow *row, int column, int k, int depth, PackKind kind)
{
    const MatmulBlock *b = &row->b;
    int64_t value_bytes = pack_value_bytes(kind), stride_bytes = b->stride * value_bytes;
    const char *in = (const char *)b->data + column * stride_bytes + k * value_bytes;
    int count = b->count - column;
    Lanes sum = lanes_of(0);
    for (int i = 0; i < depth; i += LANES) {
        Lanes square[LANES];
        int left = depth - i < LANES ? depth - i : LANES;
        if (count >= LANES && left == LANES) {
            for (int j = 0; j < LANES; j++) {
                square[j] = pack_load_along_depth(in + j * stride_bytes, kind);
                /* The next squares: below this one at once, beside it when the column group is done. */
                __builtin_prefetch(in + j * stride_bytes + 2 * LANES * value_bytes, 0, 3);
                __builtin_prefetch(in + (j + LANES) * stride_bytes, 0, 2);
            }
        } else {
            pack_load_edge(square, in, stride_bytes, count, left * value_bytes, kind);
        }
        lanes_transpose(square);
        for (int j = 0; j < left; j++) {
            sum = lanes_fma(lanes_of(widen(row->a, k + i + j, kind)), square[j], sum);
        }
        in += LANES * value_bytes;
    }
    return sum;
}

/* Squares of B are transposed in registers and multiplied there. */
PACK_INLINE void row_product(const MatmulRow *row, PackKind kind)
{
    for (int column = 0; column < row->b.count; column += LANES) {
        int64_t bytes =
            (row->b.count - column < LANES ? row->b.count - column : LANES) * (int64_t)sizeof(float);
        Lanes total = lanes_of(0);
        if (row->accumulates) {
            memcpy(&total, row->out + column, (size_t)bytes);
        }
        for (int k = 0; k < row->b.depth; k += SLICE_DEPTH) {
            int depth = row->b.depth - k < SLICE_DEPTH ? row->b.depth - k : SLICE_DEPTH;
            Lanes sum = row_slice(row, column, k, depth, kind);
            total = k > 0 || row->accumulates ? total + sum : sum;
        }
        memcpy(row->out + column, &total, (size_t)bytes);
    }
}

static void multiply_row(const MatmulRow *row)
{
    row_product(row, PACK_FP32);
}

static void multiply_row_widened(const MatmulRow *row)
{
    row_product(row, PACK_WIDENED);
}

static void pack_a(void *panels, const MatmulBlock *block)
{
    pack_panels(panels, block, PANEL_ROWS, 1, PACK_FP32);
}

static void pack_b(void *panels, const MatmulBlock *block)
{
    pack_panels(panels, block, COLUMNS, 1, PACK_FP32);
}

static void pack_a_widened(void *panels, const MatmulBlock *block)
{
    pack_panels(panels, block, PANEL_ROWS, 1, PACK_WIDENED);
}

static void pack_b_widened(void *panels, const MatmulBlock *block)
{
    pack_panels(panels, block, COLUMNS, 1, PACK_WIDENED);
}

const MatmulKernel matmul_fp32 = {.name = "fp32",
                                  .in_type = DTYPE_FP32,
                                  .panel_rows = PANEL_ROWS,
                                  .panel_columns = COLUMNS,
                                  .depth_max = SLICE_DEPTH,
                                  .depth_step = 1,
                                  .values_per_dword = 1,
                                  .pack_rows = 14,
                                  .pack_columns = 14,
                                  .pack_a = pack_a,
                                  .pack_b = pack_b,
                                  .multiply = multiply,
                                  .multiply_row = multiply_row};

const MatmulKernel matmul_widened = {.name = "widened to fp32",
                                     .in_type = DTYPE_BF16,
                                     .panel_rows = PANEL_ROWS,
                                     .panel_columns = COLUMNS,
                                     .depth_max = SLICE_DEPTH,
                                     .depth_step = 1,
                                     .values_per_dword = 1,
                                     .pack_rows = 14,
                                     .pack_columns = 14,
                                     .pack_a = pack_a_widened,
                                     .pack_b = pack_b_widened,
                                     .multiply = multiply,
                                     .multiply_row = multiply_row_widened};
