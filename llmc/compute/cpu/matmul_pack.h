/* Packing for kernels whose panels are [depth in dwords][width]: each row of a panel holds one dword of every
 * row of A, or column of B, in it. Included by the kernels, which say what dwords are made of.
 */
#ifndef LLMC_COMPUTE_CPU_MATMUL_PACK_H
#define LLMC_COMPUTE_CPU_MATMUL_PACK_H

#include <string.h>

#include "lanes.h"
#include "llmc/compute/cpu/matmul_kernel.h"
#include "llmc/model/dtype.h"

typedef enum PackKind {
    PACK_FP32,    /* fp32 values */
    PACK_WIDENED, /* bf16 values become fp32 */
    PACK_PAIRS    /* two bf16 values of K, the first in the low half */
} PackKind;

#define PACK_INLINE static inline __attribute__((always_inline))

PACK_INLINE int pack_value_bytes(PackKind kind)
{
    return kind == PACK_FP32 ? 4 : 2;
}

PACK_INLINE int pack_values_per_dword(PackKind kind)
{
    return kind == PACK_PAIRS ? 2 : 1;
}

/* LANES dwords that lie side by side along K. Pairs of bf16 may begin at any of them. */
PACK_INLINE Lanes pack_load_along_depth(const char *in, PackKind kind)
{
    Lanes values;
    if (kind == PACK_WIDENED) {
        return (Lanes)(lanes_load_halves((const bf16 *)in) << 16);
    }
    memcpy(&values, in, sizeof(values));
    return values;
}

/* The first `bytes` bytes of what pack_load_along_depth loads, then zeros. */
PACK_INLINE Lanes pack_load_some(const char *in, int64_t bytes, PackKind kind)
{
    char whole[4 * LANES] __attribute__((aligned(64))) = {0};
    memcpy(whole, in, (size_t)bytes);
    return pack_load_along_depth(whole, kind);
}

/* One dword of K for LANES neighbours that lie side by side; `high` is the stored row after, or NULL. */
PACK_INLINE Lanes pack_load_pairs(const char *low, const char *high, PackKind kind)
{
    if (kind != PACK_PAIRS) {
        return pack_load_along_depth(low, kind);
    }
    LaneBits dwords = lanes_load_halves((const bf16 *)low);
    return (Lanes)(high ? dwords | lanes_load_halves((const bf16 *)high) << 16 : dwords);
}

/* The same from `column` on at the edge of a block, with zeros for what lies beyond. */
PACK_INLINE Lanes pack_load_pairs_edge(const MatmulBlock *block, int column, int64_t dword, PackKind kind)
{
    int64_t value_bytes = pack_value_bytes(kind), bytes = (block->count - column) * value_bytes;
    int64_t k = dword * pack_values_per_dword(kind), stride_bytes = block->stride * value_bytes;
    const char *in = (const char *)block->data + k * stride_bytes + column * value_bytes;
    char rows[2][4 * LANES] __attribute__((aligned(64))) = {{0}};
    if (bytes > LANES * value_bytes) {
        bytes = LANES * value_bytes;
    }
    if (bytes > 0 && k < block->depth) {
        memcpy(rows[0], in, (size_t)bytes);
        if (kind == PACK_PAIRS && k + 1 < block->depth) {
            memcpy(rows[1], in + stride_bytes, (size_t)bytes);
        }
    }
    return pack_load_pairs(rows[0], rows[1], kind);
}

/* `count` dwords of K, at most LANES, for LANES neighbours from `column` on. */
PACK_INLINE void pack_load_rows(Lanes *rows, const MatmulBlock *block, int column, int dword, int count,
                                PackKind kind)
{
    int64_t value_bytes = pack_value_bytes(kind), stride_bytes = block->stride * value_bytes;
    int per_dword = pack_values_per_dword(kind);
    if (column + LANES <= block->count && (dword + count) * per_dword <= block->depth) {
        const char *in = (const char *)block->data + dword * per_dword * stride_bytes + column * value_bytes;
        for (int i = 0; i < count; i++) {
            rows[i] = pack_load_pairs(in, in + stride_bytes, kind);
            in += per_dword * stride_bytes;
        }
    } else {
        for (int i = 0; i < count; i++) {
            rows[i] = pack_load_pairs_edge(block, column, dword + i, kind);
        }
    }
}

/* Where LANES neighbours from `row` on, a multiple of LANES, have their dwords. */
PACK_INLINE float *pack_panel(float *out, int row, int64_t depth, int width)
{
    return out + row / width * width * depth + row % width;
}

/* The rest of a square: `count` rows (none if negative) of `bytes` bytes; zeros are added in both ways. */
PACK_INLINE void pack_load_edge(Lanes square[LANES], const char *in, int64_t stride_bytes, int count,
                                int64_t bytes, PackKind kind)
{
    for (int i = 0; i < LANES; i++) {
        square[i] = i < count ? pack_load_some(in + i * stride_bytes, bytes, kind) : lanes_of(0);
    }
}

/* Stored rows run along K: squares of LANES rows and LANES dwords are transposed. */
PACK_INLINE void pack_transposed(float *out, const MatmulBlock *block, int width, int depth, PackKind kind)
{
    int64_t value_bytes = pack_value_bytes(kind), row_bytes = block->depth * value_bytes;
    int64_t dword_bytes = value_bytes * pack_values_per_dword(kind);
    int64_t stride_bytes = block->stride * value_bytes, square_bytes = LANES * dword_bytes;
    int end = (block->count + width - 1) / width * width;
    for (int row = 0; row < end; row += LANES) {
        const char *in = (const char *)block->data + row * stride_bytes;
        float *panel = pack_panel(out, row, depth, width);
        int count = block->count - row;
        for (int64_t dword = 0; dword < depth; dword += LANES) {
            int64_t bytes = row_bytes - dword * dword_bytes;
            Lanes square[LANES];
            if (count >= LANES && bytes >= square_bytes) {
                for (int i = 0; i < LANES; i++) {
                    square[i] = pack_load_along_depth(in + i * stride_bytes, kind);
                    __builtin_prefetch(in + (i + LANES) * stride_bytes);
                }
            } else {
                pack_load_edge(square, in, stride_bytes, count, bytes < square_bytes ? bytes : square_bytes,
                               kind);
            }
            lanes_transpose(square);
            int64_t stored = depth - dword < LANES ? depth - dword : LANES;
            for (int64_t i = 0; i < stored; i++) {
                *(Lanes *)(panel + (dword + i) * width) = square[i];
            }
            in += square_bytes;
        }
    }
}

/* Stored rows run along the panels' width: they are copied, a few rows at a time. */
PACK_INLINE void pack_straight(float *out, const MatmulBlock *block, int width, int depth, PackKind kind)
{
    int64_t dword_bytes = block->stride * pack_value_bytes(kind) * pack_values_per_dword(kind);
    int end = (block->count + width - 1) / width * width;
    for (int dword = 0; dword < depth; dword += LANES) {
        int rows = depth - dword < LANES ? depth - dword : LANES;
        for (int column = 0; column < end; column += LANES) {
            const char *in = (const char *)block->data + column * pack_value_bytes(kind);
            float *panel = pack_panel(out, column, depth, width) + (int64_t)dword * width;
            Lanes square[LANES];
            for (int i = 0; i < LANES; i++) {
                __builtin_prefetch(in + (dword + LANES + i) * dword_bytes);
            }
            pack_load_rows(square, block, column, dword, rows, kind);
            for (int i = 0; i < rows; i++) {
                *(Lanes *)(panel + (int64_t)i * width) = square[i];
            }
        }
    }
}

/* Whole panels of `width` rows of A or columns of B, a multiple of LANES, and of a multiple of depth_step
 * values of K. */
PACK_INLINE void pack_panels(void *panels, const MatmulBlock *block, int width, int depth_step, PackKind kind)
{
    int depth = (block->depth + depth_step - 1) / depth_step * depth_step / pack_values_per_dword(kind);
    if (block->is_depth_contiguous) {
        pack_transposed(panels, block, width, depth, kind);
    } else {
        pack_straight(panels, block, width, depth, kind);
    }
}

#endif
