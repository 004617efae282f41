/* Products of bf16 values by AVX512_BF16: a step along K is a pair. */
#include "bf16_instructions.h"
#include "llmc/compute/cpu/matmul_lanes.h"
#include "llmc/compute/cpu/x86/bf16_kernels.h"

enum { SLICE_DEPTH = 512, DEPTH_STEP = 2 };

static void multiply(const MatmulTile *panels)
{
    matmul_lanes_multiply(panels, dot_pairs);
}

static void pack_a(void *panels, const MatmulBlock *block)
{
    pack_panels(panels, block, PANEL_ROWS, DEPTH_STEP, PACK_PAIRS);
}

static void pack_b(void *panels, const MatmulBlock *block)
{
    pack_panels(panels, block, COLUMNS, DEPTH_STEP, PACK_PAIRS);
}

const MatmulKernel matmul_avx512_bf16 = {.name = "avx512_bf16",
                                         .in_type = DTYPE_BF16,
                                         .panel_rows = PANEL_ROWS,
                                         .panel_columns = COLUMNS,
                                         .depth_max = SLICE_DEPTH,
                                         .depth_step = DEPTH_STEP,
                                         .values_per_dword = 2,
                                         .pack_rows = 14,
                                         .pack_columns = 14,
                                         .pack_a = pack_a,
                                         .pack_b = pack_b,
                                         .multiply = multiply};
