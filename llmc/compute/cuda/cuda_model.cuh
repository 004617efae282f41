/* The CUDA model's memory: one struct, made once by model_create.cu, used by forward, backward, update and
 * decode.
 *
 * Everything is on one stream, in the order of the calls. Layer norms' sums, gradients of weights and
 * everything of the optimizer are fp32, and so is the residual stream, with its gradient, unless the config
 * says bf16; what products read and write has the compute dtype.
 */
#ifndef LLMC_COMPUTE_CUDA_CUDA_MODEL_CUH
#define LLMC_COMPUTE_CUDA_CUDA_MODEL_CUH

#include "llmc/base/cuda/cuda_queue.cuh"
#include "llmc/compute/backend.h"
#include "llmc/compute/cuda/adamw.cuh"
#include "llmc/compute/cuda/attention.cuh"
#include "llmc/compute/cuda/matmul.cuh"
#include "llmc/compute/cuda/values.cuh"
#include "llmc/compute/dropout.h"
#include "llmc/compute/token_bins.h"

/* What backward needs of one block. Without gradients all blocks share one. */
typedef struct BlockActivations {
    Tensor residual;      /* (BT,C) the stream that enters the block */
    Tensor middle;        /* (BT,C) the stream after attention */
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
    Tensor d_residual;  /* (BT,C) the gradient of the stream, from top to bottom */
    Tensor d_narrow;    /* (BT,C) the gradient of a layer norm's output */
    Tensor d_branch;    /* (BT,C) the stream's gradient as it enters a branch */
    Tensor d_attention; /* (BT,C) */
    Tensor d_wide;      /* (BT,4C): d_fc, then d_qkv */
    float *partial;     /* column sums */
    void *attention;    /* attention_scratch_bytes */
} BackwardBuffers;

/* A batch on its way to the device. Two of them: while the device reads one, the host fills the other. */
enum { STAGES = 2 };
typedef struct Stage {
    int32_t *tokens; /* pinned: (BT) tokens, (BT) targets, then the bins' arrays, BT + 1 each, and counts */
    TokenBins bins;  /* pinned, within the same block */
    cudaEvent_t is_free;
} Stage;

/* Key-value cache and the activations of up to DECODE_TOKENS tokens; made by the first decode. */
enum { DECODE_TOKENS = 64 };
typedef struct DecodeBuffers {
    Tensor *cache;           /* [L] (block_size, 2C): keys and values side by side */
    int32_t *tokens;         /* (DECODE_TOKENS) */
    Tensor residual, middle; /* (DECODE_TOKENS,C) */
    float *mean, *rstd;
    Tensor ln, qkv, attention, branch, fc, gelu;
} DecodeBuffers;

typedef struct StateCopies StateCopies;
typedef struct SlotGraphs SlotGraphs;

typedef struct OwnedBlock {
    void *data;
    size_t bytes;
} OwnedBlock;

struct Model {
    ModelConfig config;
    ParamTable table;
    int Vp;
    CudaQueue queue;
    cudaStream_t stream; /* the queue's */
    cudaEvent_t *marks;  /* [mark_count] */
    int mark_count;
    Matmuls *matmuls;

    float *weights, *moment1, *moment2; /* arenas, fp32 */
    __nv_bfloat16 *weights_low;         /* the same for products in bf16, else NULL */

    int is_exact_arena;  /* gradients are summed as int64; else they are written to gradients in place */
    int64_t *exact_sums; /* arena */
    float *gradients;    /* arena, or scratch for the largest range folded at once */
    ArenaChunk *chunks;  /* the arena cut up for the update */
    int chunk_count;
    double *norm_partial; /* [chunk_count] */
    int64_t *bad_partial; /* [chunk_count] */
    int64_t *tail;        /* (GRADIENT_TAIL) */
    StepOutcome *outcome; /* on the device */

    BlockActivations *blocks; /* [L], host memory */
    Tensor branch;            /* (BT,C) what a block adds to the stream */
    Tensor final_residual;    /* (BT,C) */
    float *final_mean, *final_rstd;
    Tensor final_ln; /* (BT,C) */
    void *logits;    /* logits_bytes: of as many rows as fit */
    int64_t logits_bytes;
    float *losses;   /* (BT) */
    int32_t *tokens; /* (BT) tokens, (BT) targets, then the bins, like a Stage */
    BackwardBuffers backward;
    DecodeBuffers decode;

    StateCopies *copies; /* state.cu's */
    SlotGraphs *graphs;  /* slot_graphs.cu's; NULL: nothing is replayed */

    Stage stages[STAGES];
    int stage;                 /* the one filled last */
    StepOutcome *outcome_host; /* pinned */
    cudaEvent_t is_updated;    /* and the outcome is there */
    double *mean_host;         /* pinned */
    double *mean;

    double peak_flops;        /* of the GPU in the compute dtype; 0: unknown */
    Error shape_notice;       /* what makes this shape slow; empty: nothing */
    int64_t shared_bytes_max; /* of shared memory, for a block that asks for more than 48 KB */
    size_t bytes;             /* of device memory, all of the above */
    int is_planning;          /* cuda_model_alloc only counts */
    OwnedBlock *owned;        /* [owned_count] every block, for release */
    int owned_count, owned_capacity;
};

/* ---- model_create.cu */
Model *cuda_model_create(const ModelConfig *config, Error *error);
void cuda_model_release(Model *model);
/* Choose algorithms for the products of a training slot by timing them, within this time. For a model whose
 * state is zero: it is so again afterwards. */
void cuda_model_tune(Model *model, double limit_ms);
/* Zeroed device memory that the model owns; NULL while it only plans. */
void *cuda_model_alloc(Model *model, int64_t count, size_t element_bytes);
Tensor cuda_model_tensor(Model *model, int64_t count, DType type);

static inline int64_t model_rows(const Model *model)
{
    return (int64_t)model->config.batch_size * model->config.sequence_tokens;
}

/* Elements of a Stage, and of its copy on the device. */
static inline int64_t cuda_model_stage_count(const Model *model)
{
    return 5 * (model_rows(model) + 1);
}

/* A weight or bias in the compute dtype, and in fp32. */
static inline Tensor model_weight(const Model *model, int index)
{
    int64_t offset = model->table.specs[index].offset;
    return Tensor{model->weights_low ? (void *)(model->weights_low + offset)
                                     : (void *)(model->weights + offset),
                  model->config.dtype};
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

static inline CudaAttention model_attention(const Model *model)
{
    int NH = model->config.shape.n_head;
    return CudaAttention{model->config.batch_size, model->config.sequence_tokens, NH,
                         model->config.shape.n_embd / NH, model->config.dtype};
}

/* out (rows,outputs) = inp (rows,inputs) weight^T + bias, of the tensors at index and index + 1. */
void cuda_model_linear(Model *model, Tensor out, Tensor inp, int index, int64_t rows);
/* before is the same; after = gelu(before). */
void cuda_model_linear_gelu(Model *model, Tensor before, Tensor after, Tensor inp, int index, int64_t rows);

/* ---- forward.cu: all blocks and the last layer norm; context is NULL for evaluation (no dropout). */
void cuda_model_forward(Model *model, const SlotContext *context);
/* Start the copy of a batch to the device. */
void cuda_model_stage(Model *model, const int32_t *tokens, const int32_t *targets);
/* Then, when the device has work to do, sort its tokens into bins, which the end of backward needs, and start
 * their copy. */
void cuda_model_stage_bins(Model *model, const int32_t *tokens);
/* The bins on the device, the same memory for every batch; their count is known only there. */
TokenBins cuda_model_bins(const Model *model);
/* Logits of rows first .. first+rows-1 of a layer norm's output, into model->logits. */
void cuda_model_logits(Model *model, Tensor ln, int64_t first, int64_t rows, DType type);
/* How many rows of logits of this type exist at once. */
int64_t cuda_model_logit_rows(const Model *model, DType type);
double cuda_model_evaluate(Model *model, const int32_t *tokens, const int32_t *targets, float *logits);
void cuda_model_losses(Model *model, float *losses, const int32_t *tokens, const int32_t *targets, int rows,
                       int row_tokens);

/* ---- backward.cu */
void cuda_model_train_slot(Model *model, const int32_t *tokens, const int32_t *targets,
                           const SlotContext *context);

/* ---- slot_graphs.cu: the work of a slot, recorded as graphs once and replayed from then on. Parts that are
 * told apart by their kind have the same work each time; what changes (tokens, bins, sums) is in memory. */
typedef void SlotPart(Model *model, const SlotContext *context);
SlotGraphs *slot_graphs_create(CudaQueue *queue);
void slot_graphs_free(SlotGraphs *graphs); /* accepts NULL */
/* Do part(model, context), or replay it. */
void slot_graphs_run(Model *model, SlotPart *part, const SlotContext *context);

/* ---- state.cu: state in and out. Reading has a stream and pinned memory of its own: a snapshot is copied by
 * another thread while this one trains on, until the next update. */
StateCopies *state_copies_create(void);
void state_copies_free(StateCopies *copies);
void cuda_model_write_state(Model *model, StateKind kind, int64_t offset, const float *values, int64_t count);
void cuda_model_read_state(const Model *model, StateKind kind, int64_t offset, float *values, int64_t count);

/* ---- update.cu */
/* The gradients as the update sees them. */
Gradients cuda_model_reduced(const Model *model);
GradientArena cuda_model_gradients(Model *model);
void cuda_model_update(Model *model, const UpdateArgs *args, StepResult *result);

/* ---- decode.cu */
void cuda_model_decode(Model *model, const int32_t *tokens, int count, int position, float *logits);

#endif
