/* Products of fp32 values: each slice of K is one chain of fused multiply-adds, k after k, that begins with
 * zero. Tiles, vector width and threads do not change a bit of it.
 */
#include "llmc/compute/cpu/matmul_lanes.h"

enum { SLICE_DEPTH = 128 };

static void multiply(const MatmulTile *panels)
{
    matmul_lanes_multiply(panels, lanes_fma);
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
                                  .multiply = multiply};

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
                                     .multiply = multiply};
