/* The CPU model's memory: one struct, made once by model_create.c, used by forward, backward, update and
 * decode.
 *
 * Matrix products take their inputs in the compute dtype; the residual stream, layer norms' inputs, gradients
 * of weights and everything of the optimizer are fp32.
 */
#ifndef LLMC_COMPUTE_CPU_CPU_MODEL_H
#define LLMC_COMPUTE_CPU_CPU_MODEL_H

#include "llmc/compute/arena_chunks.h"
#include "llmc/compute/backend.h"
#include "llmc/compute/cpu/attention.h"
#include "llmc/compute/cpu/embedding.h"
#include "llmc/compute/cpu/matmul.h"
#include "llmc/compute/cpu/vector.h"

/* What backward needs of one block. Without gradients all blocks share one. */
typedef struct BlockActivations {
    float *residual;      /* (BT,C) the stream that enters the block */
    float *middle;        /* (BT,C) the stream after attention */
    float *mean1, *rstd1; /* (BT) */
    float *mean2, *rstd2; /* (BT) */
    float *lse;           /* (B,NH,T) */
    Tensor ln1;           /* (BT,C) */
    Tensor qkv;           /* (BT,3C) */
    Tensor attention;     /* (BT,C) */
    Tensor ln2;           /* (BT,C) */
    Tensor fc;            /* (BT,4C) before GELU */
    Tensor gelu;          /* (BT,4C) */
} BlockActivations;

/* Space that backward uses again for every block. */
typedef struct BackwardBuffers {
    float *d_residual;  /* (BT,C) the gradient of the stream, from top to bottom */
    float *d_narrow;    /* (BT,C) fp32 products */
    Tensor d_stream;    /* (BT,C) the stream's gradient as input of a product */
    Tensor d_attention; /* (BT,C) */
    Tensor d_wide;      /* (BT,4C): d_fc, then d_qkv */
    float *partial;     /* column sums */
    TokenBins bins;
} BackwardBuffers;

/* What a chunk adds to the norm of the gradient. */
typedef struct ChunkNorm {
    double squares; /* their sum */
    int is_bad;     /* holds an element that is not finite or out of range, where folding did not count it */
    int is_not_finite; /* and one that is not finite */
    int is_known;      /* and will not change until the update */
} ChunkNorm;

/* Key-value cache and the activations of up to DECODE_TOKENS tokens; made by the first decode. */
enum { DECODE_TOKENS = 64 };
typedef struct DecodeBuffers {
    Tensor *cache;   /* [L] (block_size, 2C): keys and values side by side */
    float *residual; /* (DECODE_TOKENS,C) */
    float *middle;
    float *mean, *rstd;
    Tensor ln, qkv, attention, fc, gelu;
    float *scores; /* (DECODE_TOKENS, NH, block_size) */
} DecodeBuffers;

struct Model {
    ModelConfig config;
    const MatmulKernel *bf16_kernel;
    ParamTable table;
    int threads; /* at most so many work in attention: its scratch is made for them */
    int Vp;

    float *weights, *moment1, *moment2; /* arenas, fp32 */
    bf16 *weights_low;                  /* the same for products in bf16, else NULL */

    int is_exact_arena;  /* gradients are summed as int64; else they are written to gradients in place */
    int64_t *exact_sums; /* arena */
    float *gradients;    /* arena, or scratch for the largest range folded at once */
    ArenaChunk *chunks;  /* the arena cut up for the update */
    int64_t chunk_count;
    ChunkNorm *norms; /* [chunk_count] of this step */
    int64_t
        *late_sums; /* (BT,C) the last slot's rows of wte, one for each token bin; NULL unless distributed */
    int64_t tail[GRADIENT_TAIL];

    BlockActivations *blocks; /* [L] */
    float *final_residual;    /* (BT,C) */
    float *final_mean, *final_rstd;
    Tensor final_ln; /* (BT,C) */
    int chunk_rows;  /* rows whose logits exist at once */
    float *logits;   /* (chunk_rows,Vp) */
    Tensor d_logits; /* the same; logits itself in fp32 */
    float *losses;   /* (BT) */
    float *attention_scratch;
    BackwardBuffers backward;
    DecodeBuffers decode;

    double forward_ms; /* of this step's slots */
    StepResult result; /* of the last update */
    double *marks;     /* [mark_capacity] clock_ms() */
    int mark_capacity;

    size_t bytes;    /* all of the above but marks */
    int is_planning; /* cpu_model_alloc only counts */
    void **owned;    /* [owned_count] every block, for release */
    int owned_count, owned_capacity;
};

/* ---- model_create.c */
/* As Backend's create; bf16_kernel multiplies where the model's dtype is bf16. */
Model *cpu_model_create(const ModelConfig *config, const MatmulKernel *bf16_kernel, Error *error);
void cpu_model_release(Model *model);
/* Zeroed memory that the model owns; NULL while it only plans. */
void *cpu_model_alloc(Model *model, int64_t count, size_t element_bytes, const char *what);
Tensor cpu_model_tensor(Model *model, int64_t count, DType type, const char *what);

/* Weights of a tensor as input of a product, and in fp32. */
static inline Tensor model_weight(const Model *model, int index)
{
    int64_t offset = model->table.specs[index].offset;
    Tensor weight = {model->weights_low ? (void *)(model->weights_low + offset)
                                        : (void *)(model->weights + offset),
                     model->config.dtype};
    return weight;
}

static inline const float *model_vector(const Model *model, int index)
{
    return model->weights + model->table.specs[index].offset;
}

static inline Dropout model_dropout(const Model *model, const SlotContext *context, int layer,
                                    DropoutSite site)
{
    return dropout_at(&model->config, context, layer, site);
}

/* ---- forward.c: all blocks and the last layer norm; context is NULL for evaluation (no dropout). */
void cpu_model_forward(Model *model, const int32_t *tokens, const SlotContext *context);
/* Logits of rows first .. first+rows-1 of final_ln into model->logits. */
void cpu_model_logits(Model *model, int64_t first, int rows);
double cpu_model_evaluate(Model *model, const int32_t *tokens, const int32_t *targets, float *logits);
void cpu_model_losses(Model *model, float *losses, const int32_t *tokens, const int32_t *targets, int rows,
                      int row_tokens);

/* ---- backward.c */
void cpu_model_train_slot(Model *model, const int32_t *tokens, const int32_t *targets,
                          const SlotContext *context);

/* ---- gradients.c */
/* This rank's first slot of a step: sums and norms start anew. */
void cpu_model_gradients_begin(Model *model);
/* The gradients of tensors first .. last are finished for this slot; they lie in the fp32 arena, or in
 * scratch whose first element is the arena's element range_offset. Scratch is folded into the exact sums. If
 * nothing is to come, neither slots nor ranks, the norms are taken while the gradients are in cache. */
void cpu_model_gradients_done(Model *model, int first, int last, int64_t range_offset,
                              const SlotContext *context);
/* Elements of wte that were done are changed once more. */
void cpu_model_gradients_changed(Model *model, int64_t offset, int64_t count);
/* The whole gradient as one chunk: its squares summed in double and in the order of the chunks, and what is
 * bad of it, folded or not. */
ChunkNorm cpu_model_gradients_norm(Model *model);
GradientArena cpu_model_gradients(Model *model);
/* The reduced gradient as update sees it. */
void cpu_model_read_gradients(const Model *model, int64_t offset, float *values, int64_t count);

/* ---- update.c */
void cpu_model_update(Model *model, const UpdateArgs *args, StepResult *result);

/* ---- decode.c */
void cpu_model_decode(Model *model, const int32_t *tokens, int count, int position, float *logits);

#endif
