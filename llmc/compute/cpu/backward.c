#include <math.h>
#include <omp.h>

#include "llmc/base/clock.h"
#include "llmc/base/work.h"
#include "llmc/compute/cpu/classifier.h"
#include "llmc/compute/cpu/columns.h"
#include "llmc/compute/cpu/cpu_model.h"
#include "llmc/compute/cpu/exact.h"
#include "llmc/compute/cpu/layernorm.h"
#include "llmc/compute/cpu/linear.h"

/* Where the gradients of arena elements [offset, ...) are written: the fp32 arena itself, or scratch to be
 * folded. */
static float *gradient_at(Model *model, int64_t range_offset, int64_t offset)
{
    return model->gradients + (model->is_exact_arena ? offset - range_offset : offset);
}

static int accumulates(const Model *model, const SlotContext *context)
{
    return !model->is_exact_arena && !context->is_first;
}

static void range_done(int64_t offset, int64_t count, const SlotContext *context)
{
    if (context->is_last && context->range_done) {
        context->range_done(context->range_context, offset, count);
    }
}

/* Arena range of tensors first .. last of the table. */
static int64_t range_count(const Model *model, int first, int last)
{
    const ParamSpec *specs = model->table.specs;
    int64_t end = last + 1 < model->table.count ? specs[last + 1].offset : model->table.arena_count;
    return end - specs[first].offset;
}

/* The last slot's rows of wte do not go into the arena when other ranks wait for its other part. */
static int has_late_rows(const Model *model, const SlotContext *context)
{
    return model->late_sums && context->is_last;
}

/* Classifier forward and backward, chunk by chunk: losses, the gradient of the last layer norm's output in
 * d_narrow, and lm_head's part of wte's gradient. */
static void backward_head(Model *model, const int32_t *targets, const SlotContext *context)
{
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int C = model->config.shape.n_embd;
    int wte = params_wte_index();
    float *d_wte = gradient_at(model, 0, model->table.specs[wte].offset);
    for (int64_t first = 0; first < BT; first += model->chunk_rows) {
        int rows = (int)(BT - first < model->chunk_rows ? BT - first : model->chunk_rows);
        cpu_model_logits(model, first, rows);
        work_add();
        Classifier classifier = {.losses = model->losses + first,
                                 .d_logits = model->d_logits,
                                 .logits = model->logits,
                                 .targets = targets + first,
                                 .rows = rows,
                                 .V = model->config.shape.vocab_size,
                                 .Vp = model->Vp,
                                 .scale = (float)(1.0 / ((double)model->config.slots_per_step * (double)BT))};
        classifier_rows(&classifier);
        linear_backward_input(model->backward.d_narrow + first * C, model->d_logits, model_weight(model, wte),
                              rows, C, model->Vp);
        linear_backward_weight(d_wte, model->d_logits, tensor_at(model->final_ln, first * C), rows, C,
                               model->Vp, first > 0 || accumulates(model, context));
    }
    cpu_model_gradients_done(model, wte, wte, 0, context);
    if (has_late_rows(model, context)) {
        range_done(0, range_count(model, wte, wte), context);
    }
}

static void backward_layernorm(Model *model, int weight_index, const float *inp, const float *mean,
                               const float *rstd, int64_t range_offset, const SlotContext *context)
{
    const ParamSpec *specs = model->table.specs;
    LayernormBackward layernorm = {.d_inp = model->backward.d_residual,
                                   .d_weight = gradient_at(model, range_offset, specs[weight_index].offset),
                                   .d_bias = gradient_at(model, range_offset, specs[weight_index + 1].offset),
                                   .d_out = model->backward.d_narrow,
                                   .inp = inp,
                                   .mean = mean,
                                   .rstd = rstd,
                                   .weight = model_vector(model, weight_index),
                                   .partial = model->backward.partial,
                                   .rows = (int64_t)model->config.batch_size * model->config.sequence_tokens,
                                   .C = model->config.shape.n_embd,
                                   .accumulates = accumulates(model, context)};
    layernorm_backward(&layernorm);
    cpu_model_gradients_done(model, weight_index, weight_index + 1, range_offset, context);
}

/* Gradients of one linear layer's weight and bias, which stand one after the other in the table. */
static void backward_weight_and_bias(Model *model, int index, Tensor d_out, Tensor inp, int64_t range_offset,
                                     const SlotContext *context)
{
    const ParamSpec *weight = &model->table.specs[index];
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    linear_backward_weight(gradient_at(model, range_offset, weight->offset), d_out, inp, BT,
                           (int)weight->columns, (int)weight->rows, accumulates(model, context));
    column_sums(gradient_at(model, range_offset, weight[1].offset), d_out, BT, weight->rows,
                accumulates(model, context), model->backward.partial);
    cpu_model_gradients_done(model, index, index + 1, range_offset, context);
}

/* The residual stream's gradient as the input of a product: through dropout, in the compute dtype. */
static Tensor stream_gradient(Model *model, const Dropout *dropout)
{
    Tensor stream = {model->backward.d_residual, DTYPE_FP32};
    if (model->config.dtype == DTYPE_FP32 && dropout->probability == 0) {
        return stream;
    }
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int64_t C = model->config.shape.n_embd;
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < BT; row++) {
        float *values = model->backward.d_narrow + row * C;
        memcpy(values, model->backward.d_residual + row * C, (size_t)C * sizeof(float));
        dropout_apply(values, dropout, row * C, C);
        tensor_store(model->backward.d_stream, row * C, values, C);
    }
    return model->backward.d_stream;
}

static void backward_mlp(Model *model, int l, int64_t range_offset, const SlotContext *context)
{
    BlockActivations *a = &model->blocks[l];
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int C = model->config.shape.n_embd;
    int w = params_block_index(l, 0);
    Dropout dropout = model_dropout(model, context, l, DROPOUT_FCPROJ);
    Tensor d_out = stream_gradient(model, &dropout);
    Tensor d_fc = model->backward.d_wide;
    backward_weight_and_bias(model, w + FCPROJ_WEIGHT, d_out, a->gelu, range_offset, context);
    linear_backward_gelu(d_fc, a->fc, d_out, model_weight(model, w + FCPROJ_WEIGHT), BT, 4 * C, C);
    backward_weight_and_bias(model, w + FC_WEIGHT, d_fc, a->ln2, range_offset, context);
    linear_backward_input(model->backward.d_narrow, d_fc, model_weight(model, w + FC_WEIGHT), BT, C, 4 * C);
    backward_layernorm(model, w + LN2_WEIGHT, a->middle, a->mean2, a->rstd2, range_offset, context);
}

static void backward_attention(Model *model, int l, int64_t range_offset, const SlotContext *context)
{
    BlockActivations *a = &model->blocks[l];
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int C = model->config.shape.n_embd;
    int NH = model->config.shape.n_head;
    int w = params_block_index(l, 0);
    Dropout proj_dropout = model_dropout(model, context, l, DROPOUT_PROJ);
    Dropout attention_dropout = model_dropout(model, context, l, DROPOUT_ATTENTION);
    AttentionShape shape = {model->config.batch_size, model->config.sequence_tokens, NH, C / NH,
                            model->threads};
    Tensor d_out = stream_gradient(model, &proj_dropout);
    backward_weight_and_bias(model, w + PROJ_WEIGHT, d_out, a->attention, range_offset, context);
    linear_backward_input_as(model->backward.d_attention, d_out, model_weight(model, w + PROJ_WEIGHT), BT, C,
                             C);
    AttentionBackward attention = {.d_qkv = model->backward.d_wide,
                                   .d_out = model->backward.d_attention,
                                   .qkv = a->qkv,
                                   .out = a->attention,
                                   .lse = a->lse,
                                   .dropout = &attention_dropout,
                                   .scratch = model->attention_scratch};
    attention_backward(&attention, &shape);
    backward_weight_and_bias(model, w + QKV_WEIGHT, attention.d_qkv, a->ln1, range_offset, context);
    linear_backward_input(model->backward.d_narrow, attention.d_qkv, model_weight(model, w + QKV_WEIGHT), BT,
                          C, 3 * C);
    backward_layernorm(model, w + LN1_WEIGHT, a->residual, a->mean1, a->rstd1, range_offset, context);
}

/* The embedding's part of wte's gradient touches only the rows of this batch's tokens, each added by one
 * thread. */
static void backward_tokens(Model *model, const int32_t *tokens, const SlotContext *context)
{
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int C = model->config.shape.n_embd;
    TokenBins *bins = &model->backward.bins;
    int64_t offset = model->table.specs[params_wte_index()].offset;
    float limit = (float)EXACT_LIMIT / (float)model->config.slots_per_step;
    int64_t bad = 0, not_finite = 0;
    token_bins_fill(bins, tokens, BT, model->config.shape.vocab_size, 0);
    for (int bin = 0; bin < bins->count; bin++) {
        cpu_model_gradients_changed(model, offset + (int64_t)bins->tokens[bin] * C, C);
    }
#pragma omp parallel for schedule(static) reduction(+ : bad, not_finite) num_threads(model->threads)
    for (int bin = 0; bin < bins->count; bin++) {
        float *row = model->backward.partial + (int64_t)omp_get_thread_num() * C;
        int64_t row_offset = offset + (int64_t)bins->tokens[bin] * C;
        embedding_backward_token(row, bins, bin, model->backward.d_residual, C);
        int64_t row_bad = 0;
        if (has_late_rows(model, context)) {
            row_bad = exact_set(model->late_sums + (int64_t)bin * C, row, C, limit);
        } else if (model->is_exact_arena) {
            row_bad = exact_add(model->exact_sums + row_offset, row, C, limit);
        } else {
            for (int c = 0; c < C; c++) {
                model->gradients[row_offset + c] += row[c];
            }
        }
        if (row_bad > 0) {
            bad += row_bad;
            not_finite += exact_count_not_finite(row, C);
        }
    }
    model->tail[TAIL_BAD] += bad;
    model->tail[TAIL_NOT_FINITE] += not_finite;
}

static void backward_embedding(Model *model, const int32_t *tokens, const SlotContext *context)
{
    const ParamSpec *wpe = &model->table.specs[params_wpe_index()];
    int B = model->config.batch_size;
    int T = model->config.sequence_tokens;
    int C = model->config.shape.n_embd;
    Dropout dropout = model_dropout(model, context, model->config.shape.n_layer, 0);
    float *d_out = model->backward.d_residual;
    if (dropout.probability > 0) {
#pragma omp parallel for schedule(static)
        for (int64_t row = 0; row < (int64_t)B * T; row++) {
            dropout_apply(d_out + row * C, &dropout, row * C, C);
        }
    }
    float *d_wpe = gradient_at(model, wpe->offset, wpe->offset);
    embedding_backward_positions(d_wpe, d_out, B, T, C, accumulates(model, context));
    if (!accumulates(model, context)) {
        memset(d_wpe + (int64_t)T * C, 0, (size_t)(wpe->arena_count - (int64_t)T * C) * sizeof(float));
    }
    cpu_model_gradients_done(model, params_wpe_index(), params_wpe_index(), wpe->offset, context);
    range_done(wpe->offset, range_count(model, params_wpe_index(), params_wpe_index()), context);
    backward_tokens(model, tokens, context);
    if (!has_late_rows(model, context)) {
        range_done(0, range_count(model, params_wte_index(), params_wte_index()), context);
    }
}

static void add_loss(Model *model)
{
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    double sum = 0;
    for (int64_t i = 0; i < BT; i++) {
        sum += model->losses[i];
    }
    double part = sum / (double)BT / model->config.slots_per_step;
    if (!(fabs(part) <= EXACT_LIMIT / model->config.slots_per_step)) { /* or not a number */
        model->tail[TAIL_BAD]++;
        model->tail[TAIL_NOT_FINITE] += !isfinite(part);
        return;
    }
    model->tail[TAIL_LOSS] += (int64_t)llrint(part * EXACT_SCALE);
}

void cpu_model_train_slot(Model *model, const int32_t *tokens, const int32_t *targets,
                          const SlotContext *context)
{
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int64_t C = model->config.shape.n_embd;
    int lnf = params_lnf_weight_index(&model->table);
    int64_t lnf_offset = model->table.specs[lnf].offset;
    if (context->is_first) {
        cpu_model_gradients_begin(model);
        model->forward_ms = 0;
    }
    double begin_ms = clock_ms();
    cpu_model_forward(model, tokens, context);
    model->forward_ms += clock_ms() - begin_ms;
    backward_head(model, targets, context);
    add_loss(model);

    memset(model->backward.d_residual, 0, (size_t)(BT * C) * sizeof(float));
    backward_layernorm(model, lnf, model->final_residual, model->final_mean, model->final_rstd, lnf_offset,
                       context);
    int64_t lnf_count = range_count(model, lnf, lnf + 1);
    range_done(lnf_offset, lnf_count, context);

    for (int l = model->config.shape.n_layer - 1; l >= 0; l--) {
        int first = params_block_index(l, 0);
        int64_t offset = model->table.specs[first].offset;
        int64_t count = range_count(model, first, first + BLOCK_TENSORS - 1);
        backward_mlp(model, l, offset, context);
        backward_attention(model, l, offset, context);
        range_done(offset, count, context);
        work_add();
    }
    backward_embedding(model, tokens, context);
}
