/* What one kind of CPU instructions brings to a matrix product: a way to pack both inputs, and one small tile
 * of the product from packed inputs. matmul.c does the rest for all of them.
 *
 * Packed inputs are panels: panel_rows rows of A, or panel_columns columns of B, with zeros where a panel
 * sticks out. Along K a panel consists of dwords, each an fp32 value or a pair of bf16 values.
 */
#ifndef LLMC_COMPUTE_CPU_MATMUL_KERNEL_H
#define LLMC_COMPUTE_CPU_MATMUL_KERNEL_H

#include <stdint.h>

#include "llmc/model/dtype.h"

/* A block of an input as it lies in memory: `count` rows of A or columns of B, each `depth` values of K. */
typedef struct MatmulBlock {
    const void *data;
    int64_t stride;          /* values between stored rows */
    int is_depth_contiguous; /* stored rows run along K; else they run along rows of A or columns of B */
    int count, depth;
} MatmulBlock;

/* One small tile, panel_rows x panel_columns of which rows x columns are stored. */
typedef struct MatmulTile {
    float *out; /* = or += the product of the panels */
    int64_t out_stride;
    const void *a, *b; /* a panel of each */
    int rows, columns;
    int depth; /* dwords */
    int accumulates;
} MatmulTile;

/* One row of A times columns of B that are stored along K. */
typedef struct MatmulRow {
    const void *a; /* (depth) */
    MatmulBlock b; /* count columns, all of K deep; is_depth_contiguous */
    float *out;    /* (count): = or += the products */
    int accumulates;
} MatmulRow;

typedef struct MatmulKernel {
    const char *name;
    DType in_type; /* of both inputs */
    int panel_rows, panel_columns;
    int depth_max;        /* values of K in a slice; out is one sum a slice, added up in order */
    int depth_step;       /* values of K are padded with zeros to a multiple of this */
    int values_per_dword; /* along K: 1 or 2 */
    int pack_rows;        /* packing a column of B costs as much as multiplying by these rows of A; .. */
    int pack_columns;     /* .. packing a row of A as much as multiplying by these columns of B */
    void (*begin)(void);  /* on each thread before its first tile of a product, or NULL */
    void (*end)(void);    /* and after its last */
    void (*pack_a)(void *panels, const MatmulBlock *block);
    void (*pack_b)(void *panels, const MatmulBlock *block);
    void (*multiply)(const MatmulTile *tile);
    /* The same bits for a product of one row, as when sampling: no input is packed, which would cost more
     * than the product. NULL: rows are multiplied like others. */
    void (*multiply_row)(const MatmulRow *row);
} MatmulKernel;

/* Every level has these two; fp32 sums are the same bits at all levels (dev/notes/matmul.md). */
extern const MatmulKernel matmul_fp32;    /* fp32 inputs */
extern const MatmulKernel matmul_widened; /* bf16 inputs, widened to fp32 when they are packed */

#endif
