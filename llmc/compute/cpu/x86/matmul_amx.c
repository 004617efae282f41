/* Products of bf16 values by AMX: 32 x 32 sums in four tile registers, from two tiles of A and two of B.
 *
 * A tile of B is 16 pairs of K by 16 columns, as in the panels of other kernels. A tile of A is 16 rows of 16
 * pairs, so A's panels are made of such tiles, one after the other: for each 16 pairs of K the upper 16 rows,
 * then the lower.
 */
#include "bf16_instructions.h"
#include "llmc/compute/cpu/matmul_pack.h"
#include "llmc/compute/cpu/x86/bf16_kernels.h"

enum {
    TILE = 16, /* rows of a tile register, and dwords of each */
    TILE_DWORDS = TILE * TILE,
    TILE_BYTES = 64,  /* of a row */
    PANEL = 2 * TILE, /* rows of A and columns of B */
    DEPTH_STEP = 2 * TILE,
    SLICE_DEPTH = 384
};

_Static_assert((int)TILE == (int)LANES, "a row of a tile is a register");

/* What LDTILECFG reads. */
typedef struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

/* Eight registers of 16 rows of 64 bytes. */
static const TileConfig tile_config = {
    .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static void begin(void)
{
    tiles_configure(&tile_config);
}

static void end(void)
{
    tiles_release();
}

/* 16 rows of A from `row` on, and 16 pairs of K. */
static inline void load_square(Lanes square[TILE], const MatmulBlock *block, int row, int dword)
{
    if (!block->is_depth_contiguous) {
        pack_load_rows(square, block, row, dword, TILE, PACK_PAIRS);
        lanes_transpose(square);
        return;
    }
    int64_t stride_bytes = block->stride * (int64_t)sizeof(bf16);
    int64_t bytes = (block->depth - 2 * dword) * (int64_t)sizeof(bf16);
    const char *in = (const char *)block->data + row * stride_bytes + dword * (int64_t)sizeof(float);
    int count = block->count - row;
    if (count >= TILE && bytes >= TILE_BYTES) {
        for (int i = 0; i < TILE; i++) {
            square[i] = pack_load_along_depth(in + i * stride_bytes, PACK_PAIRS);
        }
    } else {
        pack_load_edge(square, in, stride_bytes, count, bytes < TILE_BYTES ? bytes : TILE_BYTES, PACK_PAIRS);
    }
}

static void pack_a(void *panels, const MatmulBlock *block)
{
    int depth = (block->depth + DEPTH_STEP - 1) / DEPTH_STEP * TILE;
    int end_row = (block->count + PANEL - 1) / PANEL * PANEL;
    for (int row = 0; row < end_row; row += TILE) {
        float *out = (float *)panels + (int64_t)(row / PANEL * PANEL) * depth + row % PANEL * TILE;
        for (int dword = 0; dword < depth; dword += TILE) {
            Lanes square[TILE];
            load_square(square, block, row, dword);
            for (int i = 0; i < TILE; i++) {
                *(Lanes *)(out + dword * PANEL + i * TILE) = square[i];
            }
        }
    }
}

static void pack_b(void *panels, const MatmulBlock *block)
{
    pack_panels(panels, block, PANEL, DEPTH_STEP, PACK_PAIRS);
}

/* sums (32,32) = or += the product of two panels. */
static inline void multiply_square(float *sums, int64_t stride, const MatmulTile *tile)
{
    const float *a = tile->a, *b = tile->b;
    int64_t stride_bytes = stride * (int64_t)sizeof(float);
    enum { B_STRIDE_BYTES = PANEL * sizeof(float) };
    tiles_fence();
    if (tile->accumulates) {
        tile_load(0, sums, stride_bytes);
        tile_load(1, sums + TILE, stride_bytes);
        tile_load(2, sums + TILE * stride, stride_bytes);
        tile_load(3, sums + TILE * stride + TILE, stride_bytes);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (int dword = 0; dword < tile->depth; dword += TILE) {
        tile_load(4, a, TILE_BYTES);
        tile_load(6, b, B_STRIDE_BYTES);
        tile_load(7, b + TILE, B_STRIDE_BYTES);
        tile_load(5, a + TILE_DWORDS, TILE_BYTES);
        tile_dot_pairs(0, 4, 6);
        tile_dot_pairs(1, 4, 7);
        tile_dot_pairs(2, 5, 6);
        tile_dot_pairs(3, 5, 7);
        a += 2 * TILE_DWORDS;
        b += 2 * TILE_DWORDS;
    }
    tile_store(0, sums, stride_bytes);
    tile_store(1, sums + TILE, stride_bytes);
    tile_store(2, sums + TILE * stride, stride_bytes);
    tile_store(3, sums + TILE * stride + TILE, stride_bytes);
    tiles_fence();
}

/* A tile that sticks out of the product is computed beside it. */
static void multiply_edge(const MatmulTile *tile)
{
    float sums[PANEL * PANEL] __attribute__((aligned(64))) = {0};
    for (int i = 0; i < tile->rows && tile->accumulates; i++) {
        memcpy(sums + i * PANEL, tile->out + i * tile->out_stride, (size_t)tile->columns * sizeof(float));
    }
    multiply_square(sums, PANEL, tile);
    for (int i = 0; i < tile->rows; i++) {
        memcpy(tile->out + i * tile->out_stride, sums + i * PANEL, (size_t)tile->columns * sizeof(float));
    }
}

static void multiply(const MatmulTile *tile)
{
    if (tile->rows == PANEL && tile->columns == PANEL) {
        multiply_square(tile->out, tile->out_stride, tile);
    } else {
        multiply_edge(tile);
    }
}

const MatmulKernel matmul_amx = {.name = "amx",
                                 .in_type = DTYPE_BF16,
                                 .panel_rows = PANEL,
                                 .panel_columns = PANEL,
                                 .depth_max = SLICE_DEPTH,
                                 .depth_step = DEPTH_STEP,
                                 .values_per_dword = 2,
                                 .pack_rows = 60,
                                 .pack_columns = 30,
                                 .begin = begin,
                                 .end = end,
                                 .pack_a = pack_a,
                                 .pack_b = pack_b,
                                 .multiply = multiply};
