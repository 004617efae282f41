#include <math.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/compute/cuda/embedding.cuh"
#include "llmc/compute/cuda/layernorm.cuh"

/* Made by the first decode: training that never samples does not pay for it. */
static void create_buffers(Model *model)
{
    DecodeBuffers *d = &model->decode;
    const ModelShape *shape = &model->config.shape;
    int64_t C = shape->n_embd;
    DType type = model->config.dtype;
    d->cache = (Tensor *)memory_alloc_zeroed((size_t)shape->n_layer, sizeof(*d->cache), "key-value caches");
    for (int l = 0; l < shape->n_layer; l++) {
        d->cache[l] = cuda_model_tensor(model, shape->block_size * 2 * C, type);
    }
    d->tokens = (int32_t *)cuda_model_alloc(model, DECODE_TOKENS, sizeof(int32_t));
    d->residual = cuda_model_tensor(model, DECODE_TOKENS * C, model->config.residual);
    d->middle = cuda_model_tensor(model, DECODE_TOKENS * C, model->config.residual);
    d->mean = (float *)cuda_model_alloc(model, DECODE_TOKENS, sizeof(float));
    d->rstd = (float *)cuda_model_alloc(model, DECODE_TOKENS, sizeof(float));
    d->ln = cuda_model_tensor(model, DECODE_TOKENS * C, type);
    d->qkv = cuda_model_tensor(model, DECODE_TOKENS * 3 * C, type);
    d->attention = cuda_model_tensor(model, DECODE_TOKENS * C, type);
    d->branch = cuda_model_tensor(model, DECODE_TOKENS * C, type);
    d->fc = cuda_model_tensor(model, DECODE_TOKENS * 4 * C, type);
    d->gelu = cuda_model_tensor(model, DECODE_TOKENS * 4 * C, type);
}

/* ---- attention to a cache ------------------------------------------------------------------------------ */

enum { THREADS = 128, KEYS = 1024, OUTPUTS = ATTENTION_HEAD_SIZE_MAX / THREADS };

/* Keys and values of `count` new tokens into the cache, which begins at their position. */
template <typename T>
__global__ void __launch_bounds__(THREADS) remember_kernel(T *cache, const T *qkv, int64_t count, int C)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count * 2 * C) {
        cache[i] = qkv[i / (2 * C) * 3 * C + C + i % (2 * C)];
    }
}

typedef struct DecodeAttention {
    void *out;         /* (count,C) = */
    const void *qkv;   /* (count,3C) */
    const void *cache; /* (block_size,2C) */
    int position;      /* of the first of the tokens */
    int C, HS;
} DecodeAttention;

/* Scores of the keys of a tile, of which this thread has every THREADS-th, into shared memory; returns the
 * highest of its own. */
template <typename T>
static __device__ __forceinline__ float score_keys(float *scores, const T *query, const T *keys, int count,
                                                   const DecodeAttention &a)
{
    float scale = rsqrtf((float)a.HS), highest = -INFINITY;
    for (int k = (int)threadIdx.x; k < count; k += THREADS) {
        float dot = 0;
        for (int i = 0; i < a.HS; i++) {
            dot += value_load(query + i) * value_load(keys + (int64_t)k * 2 * a.C + i);
        }
        scores[k] = dot * scale;
        highest = fmaxf(highest, scores[k]);
    }
    return highest;
}

/* Block (head, token). Keys come in tiles, whose scores wait in shared memory: first each thread has some of
 * the keys, then some of the outputs. */
template <typename T>
__global__ void __launch_bounds__(THREADS) decode_attention_kernel(DecodeAttention a)
{
    int h = (int)blockIdx.x, token = (int)blockIdx.y, keys = a.position + token + 1;
    float *sums = (float *)dynamic_shared(), *scores = sums + THREADS / WARP;
    const T *query = (const T *)a.qkv + (int64_t)token * 3 * a.C + h * a.HS;
    float maximum = -INFINITY, sum = 0, values[OUTPUTS] = {};
    for (int first = 0; first < keys; first += KEYS) {
        int count = keys - first < KEYS ? keys - first : KEYS;
        const T *tile = (const T *)a.cache + (int64_t)first * 2 * a.C + h * a.HS;
        float highest = score_keys(scores, query, tile, count, a);
        highest = fmaxf(maximum, block_max(highest, sums));
        float factor = expf(maximum - highest), tile_sum = 0;
        for (int k = (int)threadIdx.x; k < count; k += THREADS) {
            scores[k] = expf(scores[k] - highest);
            tile_sum += scores[k];
        }
        maximum = highest;
        sum = sum * factor + block_sum(tile_sum, sums);
        for (int n = 0; n < OUTPUTS; n++) {
            int i = (int)threadIdx.x + n * THREADS;
            values[n] *= factor;
            for (int k = 0; i < a.HS && k < count; k++) {
                values[n] += scores[k] * value_load(tile + (int64_t)k * 2 * a.C + a.C + i);
            }
        }
        __syncthreads(); /* the scores are done with */
    }
    for (int n = 0; n < OUTPUTS; n++) {
        int i = (int)threadIdx.x + n * THREADS;
        if (i < a.HS) {
            value_store((T *)a.out + (int64_t)token * a.C + h * a.HS + i, values[n] / sum);
        }
    }
}

static void attention_decode(Model *model, int l, int count, int position)
{
    DecodeBuffers *d = &model->decode;
    int C = model->config.shape.n_embd, NH = model->config.shape.n_head;
    Tensor cache = tensor_at(d->cache[l], (int64_t)position * 2 * C);
    DecodeAttention args = {d->attention.data, d->qkv.data, d->cache[l].data, position, C, C / NH};
    dim3 copies((unsigned)div_up((int64_t)count * 2 * C, THREADS));
    size_t bytes = (THREADS / WARP + KEYS) * sizeof(float);
    WITH_TYPE(cache.type, launch(remember_kernel<T>, copies, dim3(THREADS), 0, model->stream, (T *)cache.data,
                                 (const T *)d->qkv.data, count, C));
    WITH_TYPE(cache.type, launch(decode_attention_kernel<T>, dim3((unsigned)NH, (unsigned)count),
                                 dim3(THREADS), bytes, model->stream, args));
}

/* ---- the model ----------------------------------------------------------------------------------------- */

/* ln = the norm of residual, or of residual + branch, which then is in stream. */
static void normalise(Model *model, const Tensor *stream, const Tensor *residual, int weight_index, int count)
{
    DecodeBuffers *d = &model->decode;
    LayernormForward args = {};
    args.out = d->ln;
    args.mean = d->mean;
    args.rstd = d->rstd;
    args.residual = *residual;
    if (stream) {
        args.stream = *stream;
        args.branch = d->branch;
    }
    args.weight = model_vector(model, weight_index);
    args.bias = model_vector(model, weight_index + 1);
    args.rows = count;
    args.C = model->config.shape.n_embd;
    layernorm_forward(&args, model->stream);
}

/* At most DECODE_TOKENS tokens; leaves the last layer norm's output in ln. */
static void decode_some(Model *model, const int32_t *tokens, int count, int position)
{
    DecodeBuffers *d = &model->decode;
    CUDA_CHECK(cudaMemcpyAsync(d->tokens, tokens, (size_t)count * sizeof(int32_t), cudaMemcpyHostToDevice,
                               model->stream));
    EmbeddingForward embedding = {};
    embedding.out = d->residual;
    embedding.tokens = d->tokens;
    embedding.wte = model_vector(model, params_wte_index());
    embedding.wpe = model_vector(model, params_wpe_index());
    embedding.rows = count;
    embedding.T = count;
    embedding.C = model->config.shape.n_embd;
    embedding.first_position = position;
    embedding_forward(&embedding, model->stream);
    for (int l = 0; l < model->config.shape.n_layer; l++) {
        int w = params_block_index(l, LN1_WEIGHT);
        normalise(model, l > 0 ? &d->residual : NULL, l > 0 ? &d->middle : &d->residual, w + LN1_WEIGHT,
                  count);
        cuda_model_linear(model, d->qkv, d->ln, w + QKV_WEIGHT, count);
        attention_decode(model, l, count, position);
        cuda_model_linear(model, d->branch, d->attention, w + PROJ_WEIGHT, count);
        normalise(model, &d->middle, &d->residual, w + LN2_WEIGHT, count);
        cuda_model_linear_gelu(model, d->fc, d->gelu, d->ln, w + FC_WEIGHT, count);
        cuda_model_linear(model, d->branch, d->gelu, w + FCPROJ_WEIGHT, count);
    }
    normalise(model, &d->residual, &d->middle, params_lnf_weight_index(&model->table), count);
}

void cuda_model_decode(Model *model, const int32_t *tokens, int count, int position, float *logits)
{
    if (model->decode.cache == NULL) {
        create_buffers(model);
    }
    int done = 0, some = 0;
    for (; done < count; done += some) {
        some = count - done < DECODE_TOKENS ? count - done : DECODE_TOKENS;
        decode_some(model, tokens + done, some, position + done);
    }
    cuda_model_logits(model, model->decode.ln, some - 1, 1, DTYPE_FP32);
    CUDA_CHECK(cudaMemcpyAsync(logits, model->logits, (size_t)model->config.shape.vocab_size * sizeof(float),
                               cudaMemcpyDeviceToHost, model->stream));
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
}
