#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/compute/cuda/classifier.cuh"
#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/compute/cuda/embedding.cuh"
#include "llmc/compute/cuda/exact.cuh"
#include "llmc/compute/cuda/layernorm.cuh"

/* ---- products ------------------------------------------------------------------------------------------ */

static Matmul linear_of(Model *model, Tensor out, Tensor inp, int index, int64_t rows)
{
    const ParamSpec *spec = &model->table.specs[index];
    Matmul product = {};
    product.out = out;
    product.a = inp;
    product.b = model_weight(model, index);
    product.M = (int)rows;
    product.N = (int)spec->rows;
    product.K = (int)spec->columns;
    product.is_b_transposed = 1;
    product.epilogue = MATMUL_BIAS;
    product.bias = model_weight(model, index + 1).data;
    return product;
}

void cuda_model_linear(Model *model, Tensor out, Tensor inp, int index, int64_t rows)
{
    Matmul product = linear_of(model, out, inp, index, rows);
    matmul(model->matmuls, &product, model->stream);
}

void cuda_model_linear_gelu(Model *model, Tensor before, Tensor after, Tensor inp, int index, int64_t rows)
{
    Matmul product = linear_of(model, after, inp, index, rows);
    product.epilogue = MATMUL_BIAS_GELU;
    product.before = before.data;
    matmul(model->matmuls, &product, model->stream);
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

/* stream = residual + dropout(what is in model->branch); out = its layer norm. */
static void add_and_normalise(Model *model, LayernormForward *args, int weight_index)
{
    args->branch = model->branch;
    args->weight = model_vector(model, weight_index);
    args->bias = model_vector(model, weight_index + 1);
    args->rows = model_rows(model);
    args->C = model->config.shape.n_embd;
    layernorm_forward(args, model->stream);
}

/* `below` is the stream that the block before left, to which its last branch is still to be added; NULL for
 * the first block, whose stream the embedding made. */
static void forward_block(Model *model, int l, const Tensor *below, const SlotContext *context)
{
    BlockActivations *a = &model->blocks[l];
    int64_t BT = model_rows(model);
    int w = params_block_index(l, LN1_WEIGHT);
    CudaAttention shape = model_attention(model);
    Dropout attention_dropout = model_dropout(model, context, l, DROPOUT_ATTENTION);

    LayernormForward ln1 = {};
    ln1.out = a->ln1;
    ln1.mean = a->mean1;
    ln1.rstd = a->rstd1;
    if (below) {
        ln1.stream = a->residual;
        ln1.residual = *below;
        ln1.dropout = model_dropout(model, context, l - 1, DROPOUT_FCPROJ);
        add_and_normalise(model, &ln1, w + LN1_WEIGHT);
    } else {
        ln1.residual = a->residual;
        ln1.weight = model_vector(model, w + LN1_WEIGHT);
        ln1.bias = model_vector(model, w + LN1_BIAS);
        ln1.rows = BT;
        ln1.C = model->config.shape.n_embd;
        layernorm_forward(&ln1, model->stream);
    }
    cuda_model_linear(model, a->qkv, a->ln1, w + QKV_WEIGHT, BT);
    attention_forward_cuda(a->attention.data, a->lse, a->qkv.data, &shape, &attention_dropout, model->stream);
    cuda_model_linear(model, model->branch, a->attention, w + PROJ_WEIGHT, BT);

    LayernormForward ln2 = {};
    ln2.out = a->ln2;
    ln2.mean = a->mean2;
    ln2.rstd = a->rstd2;
    ln2.stream = a->middle;
    ln2.residual = a->residual;
    ln2.dropout = model_dropout(model, context, l, DROPOUT_PROJ);
    add_and_normalise(model, &ln2, w + LN2_WEIGHT);
    cuda_model_linear_gelu(model, a->fc, a->gelu, a->ln2, w + FC_WEIGHT, BT);
    cuda_model_linear(model, model->branch, a->gelu, w + FCPROJ_WEIGHT, BT);
}

void cuda_model_forward(Model *model, const SlotContext *context)
{
    int L = model->config.shape.n_layer;
    EmbeddingForward embedding = {};
    embedding.out = model->blocks[0].residual;
    embedding.tokens = model->tokens;
    embedding.wte = model_vector(model, params_wte_index());
    embedding.wpe = model_vector(model, params_wpe_index());
    embedding.rows = model_rows(model);
    embedding.T = model->config.sequence_tokens;
    embedding.C = model->config.shape.n_embd;
    embedding.dropout = model_dropout(model, context, L, DROPOUT_ATTENTION);
    embedding_forward(&embedding, model->stream);
    for (int l = 0; l < L; l++) {
        forward_block(model, l, l > 0 ? &model->blocks[l - 1].middle : NULL, context);
    }
    LayernormForward last = {};
    last.out = model->final_ln;
    last.mean = model->final_mean;
    last.rstd = model->final_rstd;
    last.stream = model->final_residual;
    last.residual = model->blocks[L - 1].middle;
    last.dropout = model_dropout(model, context, L - 1, DROPOUT_FCPROJ);
    add_and_normalise(model, &last, params_lnf_weight_index(&model->table));
}

/* ---- batches and logits -------------------------------------------------------------------------------- */

static const int64_t LOGIT_ROWS_MULTIPLE = 256;

/* Elements of the stage from `first` on to their place on the device. */
static void copy_stage(Model *model, Stage *stage, int64_t first, int64_t count)
{
    CUDA_CHECK(cudaMemcpyAsync(model->tokens + first, stage->tokens + first, (size_t)count * sizeof(int32_t),
                               cudaMemcpyHostToDevice, model->stream));
    CUDA_CHECK(cudaEventRecord(stage->is_free, model->stream));
}

void cuda_model_stage(Model *model, const int32_t *tokens, const int32_t *targets)
{
    int64_t BT = model_rows(model);
    model->stage = (model->stage + 1) % STAGES;
    Stage *stage = &model->stages[model->stage];
    CUDA_CHECK(
        cudaEventSynchronize(stage->is_free)); /* of two batches ago: no waiting but by a slow device */
    memcpy(stage->tokens, tokens, (size_t)BT * sizeof(int32_t));
    memcpy(stage->tokens + BT, targets, (size_t)BT * sizeof(int32_t));
    copy_stage(model, stage, 0, 2 * BT);
}

void cuda_model_stage_bins(Model *model, const int32_t *tokens)
{
    int64_t BT = model_rows(model);
    Stage *stage = &model->stages[model->stage];
    token_bins_fill(&stage->bins, tokens, BT, model->config.shape.vocab_size, EMBEDDING_BIN_MAX);
    stage->bins.device_counts[0] = stage->bins.count;
    stage->bins.device_counts[1] = stage->bins.split_count;
    copy_stage(model, stage, 2 * BT, 3 * (BT + 1) + 2);
}

TokenBins cuda_model_bins(const Model *model)
{
    const Stage *stage = &model->stages[0]; /* all are laid out alike */
    int64_t BT = model_rows(model);
    TokenBins bins = {};
    bins.tokens = model->tokens + (stage->bins.tokens - stage->tokens);
    bins.starts = model->tokens + (stage->bins.starts - stage->tokens);
    bins.positions = model->tokens + (stage->bins.positions - stage->tokens);
    bins.device_counts = model->tokens + (stage->bins.device_counts - stage->tokens);
    bins.count_max = (int)token_bins_count_max(BT, model->config.shape.vocab_size, EMBEDDING_BIN_MAX);
    bins.split_max = (int)token_bins_split_max(BT, EMBEDDING_BIN_MAX);
    return bins;
}

int64_t cuda_model_logit_rows(const Model *model, DType type)
{
    int64_t rows = model->logits_bytes / ((int64_t)model->Vp * dtype_bytes(type));
    int64_t BT = model_rows(model), multiple = LOGIT_ROWS_MULTIPLE;
    if (rows >= BT || rows <= multiple) {
        return rows < BT ? rows : BT;
    }
    rows -= rows % multiple; /* whole tiles of products, and chunks that begin at aligned rows */
    int64_t chunks = div_up(BT, rows);
    return div_up(div_up(BT, chunks), multiple) * multiple; /* all chunks alike */
}

void cuda_model_logits(Model *model, Tensor ln, int64_t first, int64_t rows, DType type)
{
    Matmul product = {};
    int C = model->config.shape.n_embd;
    product.out = Tensor{model->logits, type};
    product.a = tensor_at(ln, first * C);
    product.b = model_weight(model, params_wte_index());
    product.M = (int)rows;
    product.N = model->Vp;
    product.K = C;
    product.is_b_transposed = 1;
    matmul(model->matmuls, &product, model->stream);
}

/* Rows of logits to the host, without padding. */
static void copy_logits(Model *model, float *logits, int64_t rows)
{
    int V = model->config.shape.vocab_size;
    size_t bytes = (size_t)rows * (size_t)model->Vp * sizeof(float);
    float *padded = (float *)memory_alloc(bytes, 1, "logits");
    CUDA_CHECK(cudaMemcpyAsync(padded, model->logits, bytes, cudaMemcpyDeviceToHost, model->stream));
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
    for (int64_t row = 0; row < rows; row++) {
        memcpy(logits + row * V, padded + row * model->Vp, (size_t)V * sizeof(float));
    }
    memory_free(padded);
}

/* model->losses of a whole batch, whose logits are written unless NULL. */
static void forward_losses(Model *model, const int32_t *tokens, const int32_t *targets, float *logits)
{
    int64_t BT = model_rows(model), rows_max = cuda_model_logit_rows(model, DTYPE_FP32);
    cuda_model_stage(model, tokens, targets);
    cuda_model_forward(model, NULL);
    for (int64_t first = 0; first < BT; first += rows_max) {
        int64_t rows = BT - first < rows_max ? BT - first : rows_max;
        cuda_model_logits(model, model->final_ln, first, rows, DTYPE_FP32);
        if (logits) {
            copy_logits(model, logits + first * model->config.shape.vocab_size, rows);
        }
        Classifier classifier = {};
        classifier.losses = model->losses + first;
        classifier.logits = Tensor{model->logits, DTYPE_FP32};
        classifier.targets = model->tokens + BT + first;
        classifier.rows = rows;
        classifier.V = model->config.shape.vocab_size;
        classifier.Vp = model->Vp;
        classifier.shared_bytes_max = model->shared_bytes_max;
        classifier_rows(&classifier, model->stream);
    }
}

double cuda_model_evaluate(Model *model, const int32_t *tokens, const int32_t *targets, float *logits)
{
    forward_losses(model, tokens, targets, logits);
    mean_loss(model->mean, model->losses, model_rows(model), model->stream);
    CUDA_CHECK(cudaMemcpyAsync(model->mean_host, model->mean, sizeof(double), cudaMemcpyDeviceToHost,
                               model->stream));
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
    return *model->mean_host;
}

/* All buffers are made for B*T tokens, in rows of at most T: meanwhile the model has this form. */
void cuda_model_losses(Model *model, float *losses, const int32_t *tokens, const int32_t *targets, int rows,
                       int row_tokens)
{
    int B = model->config.batch_size, T = model->config.sequence_tokens;
    CHECK(rows > 0 && row_tokens > 0 && row_tokens <= T && (int64_t)rows * row_tokens <= (int64_t)B * T,
          "%d rows of %d tokens of a model for %d rows of %d", rows, row_tokens, B, T);
    model->config.batch_size = rows;
    model->config.sequence_tokens = row_tokens;
    forward_losses(model, tokens, targets, NULL);
    model->config.batch_size = B;
    model->config.sequence_tokens = T;
    size_t bytes = (size_t)rows * (size_t)row_tokens * sizeof(float);
    CUDA_CHECK(cudaMemcpyAsync(losses, model->losses, bytes, cudaMemcpyDeviceToHost, model->stream));
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
}
