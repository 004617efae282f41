#include <omp.h>
#include <stdlib.h>

#include "llmc/base/memory.h"
#include "llmc/base/memory_room.h"
#include "llmc/compute/cpu/columns.h"
#include "llmc/compute/cpu/cpu_model.h"

enum { LOGIT_ROWS_MAX = 512 };

void *cpu_model_alloc(Model *model, int64_t count, size_t element_bytes, const char *what)
{
    model->bytes += (size_t)count * element_bytes;
    if (model->is_planning) {
        return NULL;
    }
    if (model->owned_count == model->owned_capacity) {
        int capacity = model->owned_capacity ? 2 * model->owned_capacity : 64;
        model->owned =
            memory_grow(model->owned, (size_t)model->owned_count, (size_t)capacity, sizeof(void *), what);
        model->owned_capacity = capacity;
    }
    void *block = memory_alloc_zeroed((size_t)count, element_bytes, what);
    model->owned[model->owned_count++] = block;
    return block;
}

Tensor cpu_model_tensor(Model *model, int64_t count, DType type, const char *what)
{
    return (Tensor){cpu_model_alloc(model, count, (size_t)dtype_bytes(type), what), type};
}

static float *alloc_floats(Model *model, int64_t count, const char *what)
{
    return cpu_model_alloc(model, count, sizeof(float), what);
}

static void alloc_state(Model *model)
{
    int64_t count = model->table.arena_count;
    model->weights = alloc_floats(model, count, "weights");
    if (model->config.dtype == DTYPE_BF16) {
        model->weights_low = cpu_model_alloc(model, count, sizeof(bf16), "bf16 weights");
    }
    if (model->config.is_inference) {
        return;
    }
    model->moment1 = alloc_floats(model, count, "first moments");
    model->moment2 = alloc_floats(model, count, "second moments");
    model->norms = cpu_model_alloc(model, model->chunk_count, sizeof(ChunkNorm), "norm sums");
    if (!model->is_exact_arena) {
        model->gradients = alloc_floats(model, count, "gradients");
        return;
    }
    const ParamSpec *specs = model->table.specs;
    int first = params_block_index(0, 0);
    int64_t block = specs[first + BLOCK_TENSORS].offset - specs[first].offset;
    int64_t embeddings =
        specs[0].arena_count > specs[1].arena_count ? specs[0].arena_count : specs[1].arena_count;
    model->exact_sums = cpu_model_alloc(model, count, sizeof(int64_t), "gradient sums");
    model->gradients = alloc_floats(model, block > embeddings ? block : embeddings, "gradient scratch");
}

static void alloc_block(Model *model, BlockActivations *block, float *shared_residual)
{
    int64_t C = model->config.shape.n_embd;
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    DType type = model->config.dtype;
    block->residual = shared_residual ? shared_residual : alloc_floats(model, BT * C, "residual stream");
    block->middle = alloc_floats(model, BT * C, "residual stream");
    block->mean1 = alloc_floats(model, BT, "layer norm means");
    block->rstd1 = alloc_floats(model, BT, "layer norm deviations");
    block->mean2 = alloc_floats(model, BT, "layer norm means");
    block->rstd2 = alloc_floats(model, BT, "layer norm deviations");
    block->lse = alloc_floats(model, BT * model->config.shape.n_head, "attention sums");
    block->ln1 = cpu_model_tensor(model, BT * C, type, "layer norm output");
    block->qkv = cpu_model_tensor(model, BT * 3 * C, type, "queries, keys, values");
    block->attention = cpu_model_tensor(model, BT * C, type, "attention output");
    block->ln2 = cpu_model_tensor(model, BT * C, type, "layer norm output");
    block->fc = cpu_model_tensor(model, BT * 4 * C, type, "GELU input");
    block->gelu = cpu_model_tensor(model, BT * 4 * C, type, "GELU output");
}

/* Training keeps every block's activations; without gradients the blocks take turns in one set, and the
 * stream stays in one place. */
static void alloc_activations(Model *model)
{
    int64_t C = model->config.shape.n_embd;
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    int64_t HS = C / model->config.shape.n_head;
    model->final_residual = alloc_floats(model, BT * C, "residual stream");
    model->final_mean = alloc_floats(model, BT, "layer norm means");
    model->final_rstd = alloc_floats(model, BT, "layer norm deviations");
    model->final_ln = cpu_model_tensor(model, BT * C, model->config.dtype, "layer norm output");
    for (int l = 0; l < model->config.shape.n_layer; l++) {
        if (l > 0 && model->config.is_inference) {
            model->blocks[l] = model->blocks[0];
        } else {
            alloc_block(model, &model->blocks[l], model->config.is_inference ? model->final_residual : NULL);
        }
    }
    int64_t logits = (int64_t)model->chunk_rows * model->Vp;
    model->logits = alloc_floats(model, logits, "logits");
    model->losses = alloc_floats(model, BT, "losses");
    int64_t scratch = attention_scratch_count(model->config.sequence_tokens, (int)HS);
    model->attention_scratch = alloc_floats(model, model->threads * scratch, "attention scratch");
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void alloc_backward(Model *model)
{
    int64_t C = model->config.shape.n_embd;
    int64_t BT = (int64_t)model->config.batch_size * model->config.sequence_tokens;
    DType type = model->config.dtype;
    BackwardBuffers *backward = &model->backward;
    model->d_logits = (Tensor){model->logits, DTYPE_FP32};
    if (type == DTYPE_BF16) {
        model->d_logits =
            cpu_model_tensor(model, (int64_t)model->chunk_rows * model->Vp, type, "logit gradients");
    }
    backward->d_residual = alloc_floats(model, BT * C, "gradient of the residual stream");
    backward->d_narrow = alloc_floats(model, BT * C, "activation gradients");
    if (type == DTYPE_BF16 || model->config.dropout > 0) {
        backward->d_stream = cpu_model_tensor(model, BT * C, type, "activation gradients");
    }
    backward->d_attention = cpu_model_tensor(model, BT * C, type, "activation gradients");
    backward->d_wide = cpu_model_tensor(model, BT * 4 * C, type, "activation gradients");
    backward->partial =
        alloc_floats(model, largest(column_blocks(BT) * 4 * C, model->threads * C), "column sums");
    if (model->config.is_distributed && model->is_exact_arena) {
        model->late_sums = cpu_model_alloc(model, BT * C, sizeof(int64_t), "late rows");
    }
    backward->bins.tokens = cpu_model_alloc(model, BT + 1, sizeof(int32_t), "token bins");
    backward->bins.starts = cpu_model_alloc(model, BT + 1, sizeof(int32_t), "token bins");
    backward->bins.positions = cpu_model_alloc(model, BT + 1, sizeof(int32_t), "token bins");
    backward->bins.counters = cpu_model_alloc(model, model->Vp + 1, sizeof(int32_t), "token bins");
}

static void alloc_all(Model *model)
{
    model->bytes += (size_t)model->threads * matmul_scratch_bytes(); /* which the threads take themselves */
    alloc_state(model);
    alloc_activations(model);
    if (!model->config.is_inference) {
        alloc_backward(model);
    }
}

static int check_memory(const Model *model, Error *error)
{
    MemoryRoom room;
    memory_room(&room);
    if (room.limit_bytes == 0 || model->bytes <= room.limit_bytes) {
        return 0;
    }
    return error_set(error,
                     "out of memory: the model needs %.2f GiB, %s has %.2f GiB; lower batch_size=%d or "
                     "block_size=%d",
                     (double)model->bytes / 0x1p30, room.owner, (double)room.limit_bytes / 0x1p30,
                     model->config.batch_size, model->config.sequence_tokens);
}

Model *cpu_model_create(const ModelConfig *config, const MatmulKernel *bf16_kernel, Error *error)
{
    if (config->residual != DTYPE_FP32) {
        error_set(error, "residual=bf16: only train_gpt2cu has it; on the CPU leave it fp32");
        return NULL;
    }
    Model *model = memory_alloc_zeroed(1, sizeof(*model), "model");
    int64_t BT = (int64_t)config->batch_size * config->sequence_tokens;
    model->config = *config;
    model->bf16_kernel = bf16_kernel;
    params_init(&model->table, &config->shape);
    model->threads = omp_get_max_threads();
    model->Vp = model_shape_padded_vocab(&config->shape);
    model->chunk_rows = (int)(BT < LOGIT_ROWS_MAX ? BT : LOGIT_ROWS_MAX);
    model->is_exact_arena = config->reduce == REDUCE_EXACT && config->slots_per_step > 1;
    model->blocks =
        memory_alloc_zeroed((size_t)config->shape.n_layer, sizeof(*model->blocks), "block activations");
    model->chunk_count = arena_chunks_cut(NULL, &model->table);
    model->is_planning = 1;
    model->bytes = (size_t)model->chunk_count * sizeof(*model->chunks);
    alloc_all(model);
    if (check_memory(model, error) != 0) {
        cpu_model_release(model);
        return NULL;
    }
    model->is_planning = 0;
    model->bytes = 0;
    alloc_all(model);
    model->bytes += (size_t)model->chunk_count * sizeof(*model->chunks);
    model->chunks = memory_alloc((size_t)model->chunk_count, sizeof(*model->chunks), "arena chunks");
    arena_chunks_cut(model->chunks, &model->table);
    return model;
}

void cpu_model_release(Model *model)
{
    for (int i = 0; i < model->owned_count; i++) {
        memory_free(model->owned[i]);
    }
    memory_free(model->owned);
    memory_free(model->marks);
    memory_free(model->blocks);
    memory_free(model->chunks);
    memory_free(model->decode.cache);
    params_release(&model->table);
    memory_free(model);
}
