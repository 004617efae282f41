#include "llmc/base/memory.h"
#include "llmc/compute/cpu/cpu_model.h"
#include "llmc/compute/cpu/layernorm.h"
#include "llmc/compute/cpu/linear.h"
#include "llmc/compute/cpu/sums.h"

/* Made by the first decode: training that never samples does not pay for it. */
static void create_buffers(Model *model)
{
    DecodeBuffers *d = &model->decode;
    const ModelShape *shape = &model->config.shape;
    int64_t C = shape->n_embd;
    DType type = model->config.dtype;
    d->cache = memory_alloc_zeroed((size_t)shape->n_layer, sizeof(*d->cache), "key-value caches");
    for (int l = 0; l < shape->n_layer; l++) {
        d->cache[l] = cpu_model_tensor(model, shape->block_size * 2 * C, type, "key-value cache");
    }
    d->residual = cpu_model_alloc(model, DECODE_TOKENS * C, sizeof(float), "decoding");
    d->middle = cpu_model_alloc(model, DECODE_TOKENS * C, sizeof(float), "decoding");
    d->mean = cpu_model_alloc(model, DECODE_TOKENS, sizeof(float), "decoding");
    d->rstd = cpu_model_alloc(model, DECODE_TOKENS, sizeof(float), "decoding");
    d->ln = cpu_model_tensor(model, DECODE_TOKENS * C, type, "decoding");
    d->qkv = cpu_model_tensor(model, DECODE_TOKENS * 3 * C, type, "decoding");
    d->attention = cpu_model_tensor(model, DECODE_TOKENS * C, type, "decoding");
    d->fc = cpu_model_tensor(model, DECODE_TOKENS * 4 * C, type, "decoding");
    d->gelu = cpu_model_tensor(model, DECODE_TOKENS * 4 * C, type, "decoding");
    d->scores = cpu_model_alloc(model, (int64_t)DECODE_TOKENS * shape->n_head * shape->block_size,
                                sizeof(float), "decoding scores");
}

/* One head of one token against the cached keys 0 .. keys-1. */
static void attend(float *out, const float *query, float *scores, Tensor cache, int64_t h, int keys,
                   int64_t C, int HS)
{
    float scratch[HS];
    float scale = 1.0f / sqrtf((float)HS);
    for (int k = 0; k < keys; k++) {
        const float *key = tensor_row(cache, k * 2 * C + h * HS, HS, scratch);
        scores[k] = dot_of(query, key, HS) * scale;
    }
    float maximum = max_of(scores, keys, -INFINITY);
    for (int k = 0; k < keys; k++) {
        scores[k] = exp_of(scores[k] - maximum);
    }
    float sum = sum_of(scores, keys);
    memset(out, 0, (size_t)HS * sizeof(float));
    for (int k = 0; k < keys; k++) {
        const float *value = tensor_row(cache, k * 2 * C + C + h * HS, HS, scratch);
        float weight = scores[k] / sum;
        for (int i = 0; i < HS; i++) {
            out[i] += weight * value[i];
        }
    }
}

static void attention_decode(Model *model, int l, int count, int position)
{
    DecodeBuffers *d = &model->decode;
    int64_t C = model->config.shape.n_embd;
    int NH = model->config.shape.n_head;
    int HS = (int)C / NH;
    for (int64_t i = 0; i < count; i++) {
        memcpy(tensor_at(d->cache[l], (position + i) * 2 * C).data, tensor_at(d->qkv, i * 3 * C + C).data,
               (size_t)(2 * C) * (size_t)dtype_bytes(d->qkv.type));
    }
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < count; i++) {
        for (int64_t h = 0; h < NH; h++) {
            float query[HS], out[HS];
            float *scores = d->scores + (i * NH + h) * model->config.shape.block_size;
            tensor_load(query, d->qkv, i * 3 * C + h * HS, HS);
            attend(out, query, scores, d->cache[l], h, position + (int)i + 1, C, HS);
            tensor_store(d->attention, i * C + h * HS, out, HS);
        }
    }
}

static void decode_block(Model *model, int l, int count, int position)
{
    DecodeBuffers *d = &model->decode;
    int C = model->config.shape.n_embd;
    int w = params_block_index(l, 0);
    Dropout none = {0};
    layernorm_forward(d->ln, d->mean, d->rstd, d->residual, model_vector(model, w + LN1_WEIGHT),
                      model_vector(model, w + LN1_BIAS), count, C);
    Linear qkv = {d->ln, model_weight(model, w + QKV_WEIGHT), model_vector(model, w + QKV_BIAS), count, C,
                  3 * C};
    linear_forward(d->qkv, &qkv);
    attention_decode(model, l, count, position);
    Linear proj = {
        d->attention, model_weight(model, w + PROJ_WEIGHT), model_vector(model, w + PROJ_BIAS), count, C, C};
    linear_residual_forward(d->middle, d->residual, &none, &proj);
    layernorm_forward(d->ln, d->mean, d->rstd, d->middle, model_vector(model, w + LN2_WEIGHT),
                      model_vector(model, w + LN2_BIAS), count, C);
    Linear fc = {d->ln, model_weight(model, w + FC_WEIGHT), model_vector(model, w + FC_BIAS), count, C,
                 4 * C};
    linear_gelu_forward(d->fc, d->gelu, &fc);
    Linear fcproj = {
        d->gelu, model_weight(model, w + FCPROJ_WEIGHT), model_vector(model, w + FCPROJ_BIAS), count, 4 * C,
        C};
    linear_residual_forward(d->residual, d->middle, &none, &fcproj);
}

/* At most DECODE_TOKENS tokens. */
static void decode_some(Model *model, const int32_t *tokens, int count, int position)
{
    int C = model->config.shape.n_embd;
    const float *wte = model_vector(model, params_wte_index());
    const float *wpe = model_vector(model, params_wpe_index());
    for (int64_t i = 0; i < count; i++) {
        float *row = model->decode.residual + i * C;
        for (int c = 0; c < C; c++) {
            row[c] = wte[(int64_t)tokens[i] * C + c] + wpe[(position + i) * C + c];
        }
    }
    for (int l = 0; l < model->config.shape.n_layer; l++) {
        decode_block(model, l, count, position);
    }
}

void cpu_model_decode(Model *model, const int32_t *tokens, int count, int position, float *logits)
{
    DecodeBuffers *d = &model->decode;
    int C = model->config.shape.n_embd;
    int lnf = params_lnf_weight_index(&model->table);
    matmul_set_bf16_kernel(model->bf16_kernel);
    if (!d->cache) {
        create_buffers(model);
    }
    int last = 0;
    for (int done = 0; done < count; done += DECODE_TOKENS) {
        int some = count - done < DECODE_TOKENS ? count - done : DECODE_TOKENS;
        decode_some(model, tokens + done, some, position + done);
        last = some - 1;
    }
    layernorm_forward(d->ln, d->mean, d->rstd, d->residual + (int64_t)last * C, model_vector(model, lnf),
                      model_vector(model, lnf + 1), 1, C);
    Linear head = {d->ln, model_weight(model, params_wte_index()), NULL, 1, C, model->Vp};
    linear_forward((Tensor){model->logits, DTYPE_FP32}, &head);
    memcpy(logits, model->logits, (size_t)model->config.shape.vocab_size * sizeof(float));
}
