#include "llmc/base/work.h"
#include "llmc/compute/cpu/classifier.h"
#include "llmc/compute/cpu/cpu_model.h"
#include "llmc/compute/cpu/layernorm.h"
#include "llmc/compute/cpu/linear.h"

static void forward_block(Model *model, int l, float *out, const SlotContext *context)
{
    BlockActivations *a = &model->blocks[l];
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int C = model->config.shape.n_embd;
    int NH = model->config.shape.n_head;
    AttentionShape shape = {model->config.batch_size, model->config.sequence_tokens, NH, C / NH,
                            model->threads};
    int w = params_block_index(l, 0);
    Dropout attention_dropout = model_dropout(model, context, l, DROPOUT_ATTENTION);
    Dropout proj_dropout = model_dropout(model, context, l, DROPOUT_PROJ);
    Dropout fcproj_dropout = model_dropout(model, context, l, DROPOUT_FCPROJ);

    layernorm_forward(a->ln1, a->mean1, a->rstd1, a->residual, model_vector(model, w + LN1_WEIGHT),
                      model_vector(model, w + LN1_BIAS), BT, C);
    Linear qkv = {a->ln1, model_weight(model, w + QKV_WEIGHT), model_vector(model, w + QKV_BIAS), BT, C,
                  3 * C};
    linear_forward(a->qkv, &qkv);
    attention_forward(a->attention, a->lse, a->qkv, &shape, &attention_dropout, model->attention_scratch);
    Linear proj = {
        a->attention, model_weight(model, w + PROJ_WEIGHT), model_vector(model, w + PROJ_BIAS), BT, C, C};
    linear_residual_forward(a->middle, a->residual, &proj_dropout, &proj);

    layernorm_forward(a->ln2, a->mean2, a->rstd2, a->middle, model_vector(model, w + LN2_WEIGHT),
                      model_vector(model, w + LN2_BIAS), BT, C);
    Linear fc = {a->ln2, model_weight(model, w + FC_WEIGHT), model_vector(model, w + FC_BIAS), BT, C, 4 * C};
    linear_gelu_forward(a->fc, a->gelu, &fc);
    Linear fcproj = {
        a->gelu, model_weight(model, w + FCPROJ_WEIGHT), model_vector(model, w + FCPROJ_BIAS), BT, 4 * C, C};
    linear_residual_forward(out, a->middle, &fcproj_dropout, &fcproj);
}

void cpu_model_forward(Model *model, const int32_t *tokens, const SlotContext *context)
{
    const ModelShape *shape = &model->config.shape;
    int B = model->config.batch_size;
    int T = model->config.sequence_tokens;
    int L = shape->n_layer;
    Dropout dropout = model_dropout(model, context, L, 0);
    matmul_set_bf16_kernel(model->bf16_kernel);
    embedding_forward(model->blocks[0].residual, tokens, model_vector(model, params_wte_index()),
                      model_vector(model, params_wpe_index()), B, T, shape->n_embd, &dropout);
    for (int l = 0; l < L; l++) {
        forward_block(model, l, l + 1 < L ? model->blocks[l + 1].residual : model->final_residual, context);
        work_add();
    }
    int lnf = params_lnf_weight_index(&model->table);
    layernorm_forward(model->final_ln, model->final_mean, model->final_rstd, model->final_residual,
                      model_vector(model, lnf), model_vector(model, lnf + 1), (int64_t)B * T, shape->n_embd);
}

void cpu_model_logits(Model *model, int64_t first, int rows)
{
    int C = model->config.shape.n_embd;
    Linear head = {tensor_at(model->final_ln, first * C),
                   model_weight(model, params_wte_index()),
                   NULL,
                   rows,
                   C,
                   model->Vp};
    linear_forward((Tensor){model->logits, DTYPE_FP32}, &head);
}

/* model->losses of a whole batch, whose logits are written unless NULL. */
static void forward_losses(Model *model, const int32_t *tokens, const int32_t *targets, float *logits)
{
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int V = model->config.shape.vocab_size;
    cpu_model_forward(model, tokens, NULL);
    for (int64_t first = 0; first < BT; first += model->chunk_rows) {
        int rows = (int)(BT - first < model->chunk_rows ? BT - first : model->chunk_rows);
        cpu_model_logits(model, first, rows);
        work_add();
        for (int64_t row = 0; logits && row < rows; row++) {
            memcpy(logits + (first + row) * V, model->logits + row * model->Vp, (size_t)V * sizeof(float));
        }
        Classifier classifier = {.losses = model->losses + first,
                                 .logits = model->logits,
                                 .targets = targets + first,
                                 .rows = rows,
                                 .V = V,
                                 .Vp = model->Vp};
        classifier_rows(&classifier);
    }
}

double cpu_model_evaluate(Model *model, const int32_t *tokens, const int32_t *targets, float *logits)
{
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    forward_losses(model, tokens, targets, logits);
    double sum = 0;
    for (int64_t i = 0; i < BT; i++) {
        sum += model->losses[i];
    }
    return sum / (double)BT;
}

/* All buffers are made for B*T tokens, in rows of at most T: meanwhile the model has this form. */
void cpu_model_losses(Model *model, float *losses, const int32_t *tokens, const int32_t *targets, int rows,
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
    memcpy(losses, model->losses, (size_t)rows * (size_t)row_tokens * sizeof(float));
}
