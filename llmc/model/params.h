/* The parameter table: one row a tensor, in the order in which they lie in the arena. It drives allocation,
 * initialisation, weight decay, buckets, the names in files, and tests.
 *
 * Arena order: wte, wpe, block 0 .. L-1 (ln_1, c_attn, attn.c_proj, ln_2, c_fc, mlp.c_proj), ln_f. Weights
 * are [out,in]. Gradients and both moments lie in arenas of the same layout. Rows V .. Vp-1 of wte are
 * padding: always zero, in no file.
 */
#ifndef LLMC_MODEL_PARAMS_H
#define LLMC_MODEL_PARAMS_H

#include <stdint.h>

#include "llmc/model/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Places of the tensors of one block, after the block's first row in the table. */
typedef enum BlockTensor {
    LN1_WEIGHT,
    LN1_BIAS,
    QKV_WEIGHT,
    QKV_BIAS,
    PROJ_WEIGHT,
    PROJ_BIAS,
    LN2_WEIGHT,
    LN2_BIAS,
    FC_WEIGHT,
    FC_BIAS,
    FCPROJ_WEIGHT,
    FCPROJ_BIAS,
    BLOCK_TENSORS
} BlockTensor;

typedef enum ParamInit { INIT_NORMAL, INIT_ZERO, INIT_ONE } ParamInit;

typedef struct ParamSpec {
    char name[48];         /* Hugging Face's, without `transformer.`: "h.0.attn.c_attn.weight" */
    int64_t offset;        /* of the first element in the arena */
    int64_t rows, columns; /* [out,in]; a vector has rows 1; padding not counted */
    int64_t arena_count;   /* elements in the arena, padding counted */
    int dimensions;        /* 1 or 2 */
    int is_conv1d;         /* Hugging Face stores it [in,out] */
    ParamInit init;
    float standard_deviation; /* for INIT_NORMAL */
} ParamSpec;

/* Owned by the caller: params_init, params_release. */
typedef struct ParamTable {
    ModelShape shape;
    int count; /* 2 + 12*L + 2 rows */
    ParamSpec *specs;
    int64_t arena_count; /* elements of the whole arena, a multiple of 16 */
} ParamTable;

void params_init(ParamTable *table, const ModelShape *shape);
void params_release(ParamTable *table);

/* Index of a tensor of block l, of the three others, or -1 for an unknown name. */
int params_block_index(int l, BlockTensor tensor);
int params_wte_index(void);
int params_wpe_index(void);
int params_lnf_weight_index(const ParamTable *table);
int params_find(const ParamTable *table, const char *name);

/* Elements of a tensor without padding. */
static inline int64_t param_file_count(const ParamSpec *spec)
{
    return spec->rows * spec->columns;
}

/* Two-dimensional tensors decay, vectors do not (nanoGPT's groups). */
static inline int param_decays(const ParamSpec *spec)
{
    return spec->dimensions >= 2;
}

/* Write elements [first, first + count) of a tensor's initial values: GPT-2's (normal 0.02, residual
 * projections scaled by 1/sqrt(2L)), drawn by counter, so any split of the range gives the same values. */
void params_draw_initial(float *out, const ParamTable *table, int index, int64_t first, int64_t count,
                         uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
