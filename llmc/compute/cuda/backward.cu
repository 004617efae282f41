#include "llmc/compute/cuda/classifier.cuh"
#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/compute/cuda/embedding.cuh"
#include "llmc/compute/cuda/exact.cuh"
#include "llmc/compute/cuda/layernorm.cuh"

/* ---- where gradients go -------------------------------------------------------------------------------- */

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

static float bad_limit(const Model *model)
{
    return (float)EXACT_LIMIT / (float)model->config.slots_per_step;
}

/* Add the finished gradients of tensors first .. last, which lie in scratch, to the exact sums; nothing to do
 * when they lie in the fp32 arena. Neighbours without a gap between them go together; gaps stay zero. */
static void fold_tensors(Model *model, int first, int last, const SlotContext *context)
{
    const ParamSpec *specs = model->table.specs;
    for (int i = first; i <= last && model->is_exact_arena;) {
        int begin = i;
        int64_t end = specs[i].offset + specs[i].arena_count;
        for (i++; i <= last && specs[i].offset == end; i++) {
            end += specs[i].arena_count;
        }
        ExactFold fold = {};
        fold.sums = model->exact_sums + specs[begin].offset;
        fold.values = gradient_at(model, specs[first].offset, specs[begin].offset);
        fold.count = end - specs[begin].offset;
        fold.limit = bad_limit(model);
        fold.bad = model->tail + TAIL_BAD;
        fold.not_finite = model->tail + TAIL_NOT_FINITE;
        fold.is_first = context->is_first;
        exact_fold(&fold, model->stream);
    }
}

/* Tell that tensors first .. last are final: their range of the arena up to the next tensor. */
static void range_done(const Model *model, int first, int last, const SlotContext *context)
{
    const ParamSpec *specs = model->table.specs;
    int64_t end = last + 1 < model->table.count ? specs[last + 1].offset : model->table.arena_count;
    if (context->is_last && context->range_done) {
        context->range_done(context->range_context, specs[first].offset, end - specs[first].offset);
    }
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* d_inp (rows,inputs) = d_out (rows,outputs) weight. */
static Matmul input_gradient(Model *model, Tensor d_inp, Tensor d_out, int index, int64_t rows)
{
    const ParamSpec *spec = &model->table.specs[index];
    Matmul product = {};
    product.out = d_inp;
    product.a = d_out;
    product.b = model_weight(model, index);
    product.M = (int)rows;
    product.N = (int)spec->columns;
    product.K = index == params_wte_index() ? model->Vp : (int)spec->rows;
    return product;
}

static void backward_input(Model *model, Tensor d_inp, Tensor d_out, int index, int64_t rows)
{
    Matmul product = input_gradient(model, d_inp, d_out, index, rows);
    matmul(model->matmuls, &product, model->stream);
}

/* d_weight (outputs,inputs) fp32 = or += d_out^T inp. */
static void backward_weight(Model *model, float *d_weight, Tensor d_out, Tensor inp, int index, int64_t rows,
                            int is_added)
{
    const ParamSpec *spec = &model->table.specs[index];
    Matmul product = {};
    product.out = Tensor{d_weight, DTYPE_FP32};
    product.a = d_out;
    product.b = inp;
    product.M = index == params_wte_index() ? model->Vp : (int)spec->rows;
    product.N = (int)spec->columns;
    product.K = (int)rows;
    product.is_a_transposed = 1;
    product.accumulates = is_added;
    matmul(model->matmuls, &product, model->stream);
}

/* The gradient of a block's weight. */
static void backward_block_weight(Model *model, int index, Tensor d_out, Tensor inp, int64_t range_offset,
                                  const SlotContext *context)
{
    float *d_weight = gradient_at(model, range_offset, model->table.specs[index].offset);
    backward_weight(model, d_weight, d_out, inp, index, model_rows(model), accumulates(model, context));
}

/* ---- parts of the model -------------------------------------------------------------------------------- */

/* Classifier forward and backward, chunk by chunk: losses, the gradient of the last layer norm's output in
 * d_narrow, and lm_head's part of wte's gradient. */
static void backward_head(Model *model, const SlotContext *context)
{
    int64_t BT = model_rows(model), C = model->config.shape.n_embd;
    DType type = model->config.dtype;
    int64_t rows_max = cuda_model_logit_rows(model, type);
    int wte = params_wte_index();
    float *d_wte = gradient_at(model, 0, model->table.specs[wte].offset);
    for (int64_t first = 0; first < BT; first += rows_max) {
        int64_t rows = BT - first < rows_max ? BT - first : rows_max;
        cuda_model_logits(model, model->final_ln, first, rows, type);
        Classifier classifier = {};
        classifier.losses = model->losses + first;
        classifier.logits = Tensor{model->logits, type};
        classifier.targets = model->tokens + BT + first;
        classifier.rows = rows;
        classifier.V = model->config.shape.vocab_size;
        classifier.Vp = model->Vp;
        classifier.scale = (float)(1.0 / ((double)model->config.slots_per_step * (double)BT));
        classifier.has_gradient = 1;
        classifier.shared_bytes_max = model->shared_bytes_max;
        classifier_rows(&classifier, model->stream);
        backward_input(model, tensor_at(model->backward.d_narrow, first * C), classifier.logits, wte, rows);
        backward_weight(model, d_wte, classifier.logits, tensor_at(model->final_ln, first * C), wte, rows,
                        first > 0 || accumulates(model, context));
    }
    fold_tensors(model, wte, wte, context);
}

typedef struct NormInput {
    Tensor values; /* (BT,C) what was normalised */
    const float *mean, *rstd;
} NormInput;

/* d_residual takes what goes through the layer norm whose output has the gradient d_narrow; then d_branch is
 * the input of the branch that this dropout belongs to, unless there is none below. d_branch_bias is the
 * gradient of the bias that this branch ends with; NULL where its place is not free yet. */
static void backward_layernorm(Model *model, int weight_index, const NormInput *input, int64_t range_offset,
                               const Dropout *dropout, float *d_branch_bias, const SlotContext *context)
{
    const ParamSpec *specs = model->table.specs;
    LayernormBackward layernorm = {};
    layernorm.d_stream = model->backward.d_residual;
    if (dropout) {
        layernorm.d_branch = model->backward.d_branch;
        layernorm.dropout = *dropout;
    }
    layernorm.d_weight = gradient_at(model, range_offset, specs[weight_index].offset);
    layernorm.d_bias = gradient_at(model, range_offset, specs[weight_index + 1].offset);
    layernorm.d_branch_bias = d_branch_bias;
    layernorm.d_out = model->backward.d_narrow;
    layernorm.inp = input->values;
    layernorm.mean = input->mean;
    layernorm.rstd = input->rstd;
    layernorm.weight = model_vector(model, weight_index);
    layernorm.partial = model->backward.partial;
    layernorm.rows = model_rows(model);
    layernorm.C = model->config.shape.n_embd;
    layernorm.is_first = weight_index == params_lnf_weight_index(&model->table);
    layernorm.accumulates = accumulates(model, context);
    layernorm_backward(&layernorm, model->stream);
}

static void backward_mlp(Model *model, int l, int64_t range_offset, const SlotContext *context)
{
    const ParamSpec *specs = model->table.specs;
    BlockActivations *a = &model->blocks[l];
    BackwardBuffers *b = &model->backward;
    int64_t BT = model_rows(model);
    int w = params_block_index(l, LN1_WEIGHT);
    /* What the layer norm above has summed, as that block's gradients were where these are to be. */
    layernorm_branch_bias(gradient_at(model, range_offset, specs[w + FCPROJ_BIAS].offset), b->partial, BT,
                          model->config.shape.n_embd, accumulates(model, context), model->stream);
    backward_block_weight(model, w + FCPROJ_WEIGHT, b->d_branch, a->gelu, range_offset, context);
    Matmul d_fc = input_gradient(model, b->d_wide, b->d_branch, w + FCPROJ_WEIGHT, BT);
    d_fc.epilogue = MATMUL_GELU_BACKWARD_BIAS;
    d_fc.before = a->fc.data;
    d_fc.d_bias = gradient_at(model, range_offset, specs[w + FC_BIAS].offset);
    d_fc.adds_d_bias = accumulates(model, context);
    d_fc.bias_partial = b->partial;
    matmul(model->matmuls, &d_fc, model->stream);
    backward_block_weight(model, w + FC_WEIGHT, b->d_wide, a->ln2, range_offset, context);
    backward_input(model, b->d_narrow, b->d_wide, w + FC_WEIGHT, BT);
    NormInput input = {a->middle, a->mean2, a->rstd2};
    Dropout dropout = model_dropout(model, context, l, DROPOUT_PROJ);
    backward_layernorm(model, w + LN2_WEIGHT, &input, range_offset, &dropout,
                       gradient_at(model, range_offset, specs[w + PROJ_BIAS].offset), context);
}

static void backward_attention(Model *model, int l, int64_t range_offset, const SlotContext *context)
{
    BlockActivations *a = &model->blocks[l];
    BackwardBuffers *b = &model->backward;
    int64_t BT = model_rows(model);
    int w = params_block_index(l, LN1_WEIGHT);
    CudaAttention shape = model_attention(model);
    Dropout attention_dropout = model_dropout(model, context, l, DROPOUT_ATTENTION);
    backward_block_weight(model, w + PROJ_WEIGHT, b->d_branch, a->attention, range_offset, context);
    backward_input(model, b->d_attention, b->d_branch, w + PROJ_WEIGHT, BT);
    CudaAttentionBackward attention = {};
    attention.d_qkv = b->d_wide.data;
    attention.d_out = b->d_attention.data;
    attention.qkv = a->qkv.data;
    attention.out = a->attention.data;
    attention.lse = a->lse;
    attention.scratch = b->attention;
    attention.d_bias = gradient_at(model, range_offset, model->table.specs[w + QKV_BIAS].offset);
    attention.partial = b->partial;
    attention.accumulates = accumulates(model, context);
    attention.dropout = &attention_dropout;
    attention_backward_cuda(&attention, &shape, model->stream);
    backward_block_weight(model, w + QKV_WEIGHT, b->d_wide, a->ln1, range_offset, context);
    backward_input(model, b->d_narrow, b->d_wide, w + QKV_WEIGHT, BT);
    NormInput input = {a->residual, a->mean1, a->rstd1};
    Dropout dropout = model_dropout(model, context, l - 1, DROPOUT_FCPROJ);
    backward_layernorm(model, w + LN1_WEIGHT, &input, range_offset, l > 0 ? &dropout : NULL, NULL, context);
}

static void backward_embedding(Model *model, const SlotContext *context)
{
    int wte = params_wte_index(), wpe = params_wpe_index();
    const ParamSpec *positions = &model->table.specs[wpe];
    int T = model->config.sequence_tokens;
    int64_t C = model->config.shape.n_embd;
    Tensor d_out = model->backward.d_residual;
    Dropout dropout = model_dropout(model, context, model->config.shape.n_layer, DROPOUT_ATTENTION);
    dropout_backward(d_out, model_rows(model) * C, &dropout, model->stream);
    float *d_wpe = gradient_at(model, positions->offset, positions->offset);
    embedding_backward_positions(d_wpe, d_out, model->config.batch_size, T, (int)C,
                                 accumulates(model, context), model->stream);
    if (!accumulates(model, context) && positions->arena_count > T * C) {
        CUDA_CHECK(cudaMemsetAsync(d_wpe + T * C, 0, (size_t)(positions->arena_count - T * C) * sizeof(float),
                                   model->stream));
    }
    fold_tensors(model, wpe, wpe, context);
    range_done(model, wpe, wpe, context);

    int64_t offset = model->table.specs[wte].offset;
    TokenGradients out = {};
    out.sums = model->is_exact_arena ? model->exact_sums + offset : NULL;
    out.gradients = gradient_at(model, offset, offset);
    out.bad = model->tail + TAIL_BAD;
    out.not_finite = model->tail + TAIL_NOT_FINITE;
    out.limit = bad_limit(model);
    TokenBins bins = cuda_model_bins(model);
    embedding_backward_tokens(&out, &bins, d_out, (int)C, model->backward.partial, model->stream);
    range_done(model, wte, wte, context);
}

static void forward_part(Model *model, const SlotContext *context)
{
    if (context->is_first) {
        CUDA_CHECK(cudaMemsetAsync(model->tail, 0, GRADIENT_TAIL * sizeof(int64_t), model->stream));
    }
    cuda_model_forward(model, context);
}

static void backward_part(Model *model, const SlotContext *context)
{
    int L = model->config.shape.n_layer;
    int lnf = params_lnf_weight_index(&model->table);
    backward_head(model, context);
    LossFold loss = {model->tail, model->losses, model_rows(model), model->config.slots_per_step};
    exact_fold_loss(&loss, model->stream);

    NormInput input = {model->final_residual, model->final_mean, model->final_rstd};
    Dropout dropout = model_dropout(model, context, L - 1, DROPOUT_FCPROJ);
    backward_layernorm(model, lnf, &input, model->table.specs[lnf].offset, &dropout, NULL, context);
    fold_tensors(model, lnf, lnf + 1, context);
    range_done(model, lnf, lnf + 1, context);
    for (int l = L - 1; l >= 0; l--) {
        int first = params_block_index(l, LN1_WEIGHT);
        int64_t offset = model->table.specs[first].offset;
        backward_mlp(model, l, offset, context);
        backward_attention(model, l, offset, context);
        fold_tensors(model, first, first + BLOCK_TENSORS - 1, context);
        range_done(model, first, first + BLOCK_TENSORS - 1, context);
    }
    backward_embedding(model, context);
}

/* The bins are made while the device works on forward. */
void cuda_model_train_slot(Model *model, const int32_t *tokens, const int32_t *targets,
                           const SlotContext *context)
{
    cuda_model_stage(model, tokens, targets);
    slot_graphs_run(model, forward_part, context);
    cuda_model_stage_bins(model, tokens);
    slot_graphs_run(model, backward_part, context);
}
