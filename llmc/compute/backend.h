/* The seam between training and devices: one const table of functions. run/ knows no device; a test binary
 * may hold the tables of several and compare them.
 *
 * A Model owns everything on the device: parameters, moments, gradients, activations, key-value cache. It is
 * created once and allocates nothing after its first step. Offsets and counts are elements of the parameter
 * arena (model/params.h).
 */
#ifndef LLMC_COMPUTE_BACKEND_H
#define LLMC_COMPUTE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/comm/reducer.h"
#include "llmc/model/dtype.h"
#include "llmc/model/params.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Model Model;

/* How gradients of slots and ranks are summed. EXACT: 64-bit integers, the same bits at any number of ranks.
 */
typedef enum ReduceMode { REDUCE_EXACT, REDUCE_FP32, REDUCE_BF16 } ReduceMode;

typedef struct ModelConfig {
    ModelShape shape;
    int batch_size;      /* B */
    int sequence_tokens; /* T of the batches, at most shape.block_size */
    int slots_per_step;  /* G: gradients are of the loss divided by G*B*T */
    DType dtype;
    DType residual; /* of the residual stream and its gradient: fp32, or bf16 if dtype is too */
    ReduceMode reduce;
    float dropout;
    uint64_t seed;      /* for dropout */
    int is_inference;   /* no gradients, no moments: evaluate and decode only */
    int is_distributed; /* other ranks do other slots: the last slot keeps late rows apart */
    int uses_graph;     /* a device that can record a slot's work and replay it should */
    int autotunes;      /* time the choices that the device leaves open, unless plans are given */
    const char *plans;  /* the choices of another model (model/plans.h), to be made again where they fit, or
                           NULL; read by create only */
} ModelConfig;

typedef enum StateKind {
    STATE_WEIGHTS,
    STATE_MOMENT1,
    STATE_MOMENT2,
    STATE_GRADIENTS,
    STATE_KINDS
} StateKind;

/* One micro-batch of one step. Called once a range of the gradient arena is final on this rank (last slot
 * only), in the order in which backward finishes them; NULL where nobody reduces. */
typedef struct SlotContext {
    uint32_t step;
    uint32_t slot; /* 0 .. G-1, global: keys the dropout */
    int is_first;  /* of this rank in this step: gradients start from zero */
    int is_last;   /* of this rank in this step */
    int is_traced; /* range_done must be called now; else work that was recorded with its calls may be
                      replayed without calling it again */
    void (*range_done)(void *context, int64_t offset, int64_t count);
    void *range_context;
} SlotContext;

/* Gradients of single rows of wte, to be added to the arena by whoever sums over ranks. */
typedef struct LateRows {
    const int32_t *tokens; /* rows' numbers, rising */
    const int64_t *sums;   /* (count, C) */
    int count;
} LateRows;

/* What ranks have to sum before update: gradients as int64 (EXACT with G > 1) or fp32, late rows, the
 * tail. */
typedef struct GradientArena {
    void *elements; /* arena_count of them */
    int64_t *tail;  /* GRADIENT_TAIL int64: sum of loss * 2^52, number of bad elements, of those not finite */
    int64_t count;
    int is_int64;
    LateRows late; /* count 0 unless the model is distributed and is_int64 */
    void *queue;   /* what the backend's reducer needs to know of the device; NULL: nothing */
} GradientArena;

enum { TAIL_LOSS, TAIL_BAD, TAIL_NOT_FINITE, GRADIENT_TAIL };

#define EXACT_SCALE 0x1p52 /* fixed point of gradients and losses: llrint(x * 2^52) */
#define EXACT_LIMIT 0x1p10 /* an element beyond EXACT_LIMIT / G is bad: no sum of G can overflow */

typedef struct UpdateArgs {
    float learning_rate;
    float beta1, beta2, epsilon;
    float weight_decay;
    float grad_clip;       /* 0: no clipping */
    int64_t update_number; /* from 1: the exponent of the bias corrections */
} UpdateArgs;

typedef struct StepResult {
    double loss;         /* mean over the global batch */
    double norm;         /* of the whole gradient, before clipping */
    int is_skipped;      /* loss or gradient not finite or out of range: weights and moments are as before */
    int is_out_of_range; /* skipped although all is finite: more than exact sums can hold */
    double forward_ms;   /* of this rank's slots, up to the last layer norm; 0: the device does not tell */
} StepResult;

/* What there is to tell of a model. */
typedef struct ModelFacts {
    size_t memory_bytes; /* held on the device */
    double peak_flops;   /* operations a second that mfu refers to, 0 where unknown */
    /* How it multiplies (model/plans.h), where that was given or timed, else NULL; owned by the model, as is
     * the next. */
    const char *plans;
    const char *plans_notice; /* why plans that were given are not used, or not all; NULL if they are */
    const char *device;       /* what decides how numbers are rounded: its kind, and its library's version */
    const char *kernel;       /* what multiplies matrices, or NULL: its library chooses */
    const char *shape_notice; /* what of its shape makes this device slow, or NULL; owned by the model */
    int queues_work;          /* calls return before the device has done what they ask for */
    size_t host_bytes;        /* of memory_bytes, those of this machine: all or none */
} ModelFacts;

typedef struct Backend {
    const char *name;

    /* NULL with *error set when the device cannot hold it. Weights and moments are zero until they are
     * written. */
    Model *(*create)(const ModelConfig *config, Error *error);
    void (*release)(Model *model);

    /* Copy state in or out. The range may cross tensors, and includes vocabulary padding, which must be zero.
     * Gradients are read only: the reduced sum of the last step, before clipping. */
    void (*write_state)(Model *model, StateKind kind, int64_t offset, const float *values, int64_t count);
    void (*read_state)(const Model *model, StateKind kind, int64_t offset, float *values, int64_t count);

    /* Forward and backward of one slot; adds to the gradient arena and to its loss.
     *   tokens, targets (B,T) int32, each in 0 .. vocab_size-1 (checked by the loader) */
    void (*train_slot)(Model *model, const int32_t *tokens, const int32_t *targets,
                       const SlotContext *context);

    /* Where the gradients of this rank lie. They are to be summed over ranks in place between train_slot and
     * update. */
    GradientArena (*gradients)(Model *model);

    /* Gradient norm, clipping and AdamW from the reduced gradients. Without a result the update is only
     * queued; without args none is made, and the result of the last one is waited for, while a device goes on
     * with what was queued since. */
    void (*update)(Model *model, const UpdateArgs *args, StepResult *result);

    /* Mean loss of one batch without dropout; logits (B,T,V) fp32 are written unless NULL. */
    double (*evaluate)(Model *model, const int32_t *tokens, const int32_t *targets, float *logits);

    /* The loss of each token of a batch of another form, without dropout. The batch has at most B*T tokens,
     * its rows at most T. What follows a token in its row does not change the token's loss.
     *   losses (rows,row_tokens) fp32 =     tokens, targets (rows,row_tokens) int32 */
    void (*losses)(Model *model, float *losses, const int32_t *tokens, const int32_t *targets, int rows,
                   int row_tokens);

    /* Append `count` tokens of one sequence after `position` cached ones (position 0 starts a new sequence),
     * and write the logits (V) fp32 after the last. position + count <= shape.block_size. */
    void (*decode)(Model *model, const int32_t *tokens, int count, int position, float *logits);

    void (*describe)(ModelFacts *facts, const Model *model);

    /* Put mark `index` (small) behind the work that was asked for so far. Even and odd ones belong to steps
     * in turn, which 0 and 1 begin. Once the step's update is over, until the step after the next, tell when
     * the device came to it, as clock_ms(): exactly between marks of one step; if the step began on an idle
     * device, as a time too. */
    void (*mark)(Model *model, int index);
    double (*mark_ms)(const Model *model, int index);

    /* Who sums its gradients over ranks. */
    const ReducerKind *reducer;

    int has_bf16_residual; /* ModelConfig.residual may be bf16: else create refuses it */
} Backend;

#ifdef __cplusplus
}
#endif
#endif
