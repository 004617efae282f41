#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/compute/cuda/classifier.cuh"
#include "llmc/compute/cuda/columns.cuh"
#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/compute/cuda/embedding.cuh"
#include "llmc/compute/cuda/layernorm.cuh"

static const int64_t LOGIT_BYTES_STEP = 512 << 20, LOGIT_STEPS_MAX = 4, LOGIT_MEMORY_SHARE = 32;
static const int64_t FP32_LOGIT_ROWS = 256, BLOCK_ALIGNMENT = 256;
enum { EMBEDDING_MAX = 6144 };
static const double AUTOTUNE_MS = 1500;
/* Left for what cuBLASLt loads when its kernels are first used, and for NCCL's channels. Not measured. */
static const size_t LIBRARY_BYTES = 512 << 20, NCCL_BYTES = 768 << 20;

void *cuda_model_alloc(Model *model, int64_t count, size_t element_bytes)
{
    size_t bytes = (size_t)div_up(count * (int64_t)element_bytes, BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT;
    model->bytes += bytes;
    if (model->is_planning) {
        return NULL;
    }
    if (model->owned_count == model->owned_capacity) {
        int capacity = model->owned_capacity ? 2 * model->owned_capacity : 64;
        model->owned = (OwnedBlock *)memory_grow(model->owned, (size_t)model->owned_count, (size_t)capacity,
                                                 sizeof(OwnedBlock), "device blocks");
        model->owned_capacity = capacity;
    }
    void *block;
    CUDA_CHECK(cudaMalloc(&block, bytes));
    CUDA_CHECK(cudaMemsetAsync(block, 0, bytes, model->stream));
    model->owned[model->owned_count++] = OwnedBlock{block, bytes};
    return block;
}

Tensor cuda_model_tensor(Model *model, int64_t count, DType type)
{
    return Tensor{cuda_model_alloc(model, count, (size_t)dtype_bytes(type)), type};
}

static float *alloc_floats(Model *model, int64_t count)
{
    return (float *)cuda_model_alloc(model, count, sizeof(float));
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void alloc_state(Model *model)
{
    int64_t count = model->table.arena_count;
    model->weights = alloc_floats(model, count);
    if (model->config.dtype == DTYPE_BF16) {
        model->weights_low = (__nv_bfloat16 *)cuda_model_alloc(model, count, sizeof(__nv_bfloat16));
    }
    if (model->config.is_inference) {
        return;
    }
    model->moment1 = alloc_floats(model, count);
    model->moment2 = alloc_floats(model, count);
    model->chunks = (ArenaChunk *)cuda_model_alloc(model, model->chunk_count, sizeof(ArenaChunk));
    model->norm_partial = (double *)cuda_model_alloc(model, model->chunk_count, sizeof(double));
    model->bad_partial = (int64_t *)cuda_model_alloc(model, model->chunk_count, sizeof(int64_t));
    model->tail = (int64_t *)cuda_model_alloc(model, GRADIENT_TAIL, sizeof(int64_t));
    model->outcome = (StepOutcome *)cuda_model_alloc(model, 1, sizeof(StepOutcome));
    if (!model->is_exact_arena) {
        model->gradients = alloc_floats(model, count);
        return;
    }
    const ParamSpec *specs = model->table.specs;
    int first = params_block_index(0, LN1_WEIGHT);
    int64_t block = specs[first + BLOCK_TENSORS].offset - specs[first].offset;
    model->exact_sums = (int64_t *)cuda_model_alloc(model, count, sizeof(int64_t));
    model->gradients =
        alloc_floats(model, largest(block, largest(specs[0].arena_count, specs[1].arena_count)));
}

static void alloc_block(Model *model, BlockActivations *block)
{
    int64_t C = model->config.shape.n_embd, BT = model_rows(model);
    DType type = model->config.dtype;
    block->residual = cuda_model_tensor(model, BT * C, model->config.residual);
    block->middle = cuda_model_tensor(model, BT * C, model->config.residual);
    block->mean1 = alloc_floats(model, BT);
    block->rstd1 = alloc_floats(model, BT);
    block->mean2 = alloc_floats(model, BT);
    block->rstd2 = alloc_floats(model, BT);
    block->lse = alloc_floats(model, BT * model->config.shape.n_head);
    block->ln1 = cuda_model_tensor(model, BT * C, type);
    block->qkv = cuda_model_tensor(model, BT * 3 * C, type);
    block->attention = cuda_model_tensor(model, BT * C, type);
    block->ln2 = cuda_model_tensor(model, BT * C, type);
    block->fc = cuda_model_tensor(model, BT * 4 * C, type);
    block->gelu = cuda_model_tensor(model, BT * 4 * C, type);
}

/* What logits may take: fewer chunks of rows read and add wte's gradient less often. By what the GPU has in
 * all, not by what is free, as how gradients are added decides their last bits. */
static int64_t logit_bytes_max(void)
{
    size_t available, total;
    CUDA_CHECK(cudaMemGetInfo(&available, &total));
    int64_t steps = (int64_t)total / LOGIT_MEMORY_SHARE / LOGIT_BYTES_STEP;
    steps = steps > LOGIT_STEPS_MAX ? LOGIT_STEPS_MAX : steps;
    return largest(1, steps) * LOGIT_BYTES_STEP;
}

/* Training keeps every block's activations; without gradients the blocks take turns in one set. */
static void alloc_activations(Model *model)
{
    int64_t C = model->config.shape.n_embd, BT = model_rows(model);
    DType type = model->config.dtype;
    model->branch = cuda_model_tensor(model, BT * C, type);
    model->final_residual = cuda_model_tensor(model, BT * C, model->config.residual);
    model->final_mean = alloc_floats(model, BT);
    model->final_rstd = alloc_floats(model, BT);
    model->final_ln = cuda_model_tensor(model, BT * C, type);
    for (int l = 0; l < model->config.shape.n_layer; l++) {
        if (l > 0 && model->config.is_inference) {
            model->blocks[l] = model->blocks[0];
        } else {
            alloc_block(model, &model->blocks[l]);
        }
    }
    int64_t row_bytes = (int64_t)model->Vp * dtype_bytes(type);
    int64_t rows = largest(1, logit_bytes_max() / row_bytes);
    rows = rows < BT ? rows : BT;
    int64_t fp32_rows = BT < FP32_LOGIT_ROWS ? BT : FP32_LOGIT_ROWS;
    model->logits_bytes = largest(rows * row_bytes, fp32_rows * model->Vp * (int64_t)sizeof(float));
    model->logits = cuda_model_alloc(model, model->logits_bytes, 1);
    model->losses = alloc_floats(model, BT);
    model->mean = (double *)cuda_model_alloc(model, 1, sizeof(double));
    model->tokens = (int32_t *)cuda_model_alloc(model, cuda_model_stage_count(model), sizeof(int32_t));
}

static void alloc_backward(Model *model)
{
    int64_t C = model->config.shape.n_embd, BT = model_rows(model);
    DType type = model->config.dtype;
    BackwardBuffers *backward = &model->backward;
    CudaAttention attention = model_attention(model);
    backward->d_residual = cuda_model_tensor(model, BT * C, model->config.residual);
    backward->d_narrow = cuda_model_tensor(model, BT * C, type);
    backward->d_branch = cuda_model_tensor(model, BT * C, type);
    backward->d_attention = cuda_model_tensor(model, BT * C, type);
    backward->d_wide = cuda_model_tensor(model, BT * 4 * C, type);
    int64_t partial_count =
        largest(column_partial_count(BT, (int)(4 * C)), layernorm_partial_count(BT, (int)C));
    partial_count = largest(partial_count, embedding_partial_count(BT, (int)C));
    partial_count = largest(partial_count, attention_partial_count(&attention));
    backward->partial = alloc_floats(model, partial_count);
    backward->attention = cuda_model_alloc(model, attention_scratch_bytes(&attention), 1);
}

static void alloc_all(Model *model)
{
    alloc_state(model);
    alloc_activations(model);
    if (!model->config.is_inference) {
        alloc_backward(model);
    }
}

/* ---- host memory --------------------------------------------------------------------------------------- */

static void create_stages(Model *model)
{
    int64_t BT = model_rows(model);
    for (int i = 0; i < STAGES; i++) {
        Stage *stage = &model->stages[i];
        CUDA_CHECK(cudaHostAlloc((void **)&stage->tokens,
                                 (size_t)cuda_model_stage_count(model) * sizeof(int32_t),
                                 cudaHostAllocDefault));
        stage->bins.tokens = stage->tokens + 2 * BT;
        stage->bins.starts = stage->bins.tokens + BT + 1;
        stage->bins.positions = stage->bins.starts + BT + 1;
        stage->bins.device_counts = stage->bins.positions + BT + 1;
        stage->bins.counters = (int32_t *)memory_alloc((size_t)model->Vp + 1, sizeof(int32_t), "token bins");
        CUDA_CHECK(cudaEventCreateWithFlags(&stage->is_free, cudaEventDisableTiming));
    }
    CUDA_CHECK(
        cudaHostAlloc((void **)&model->outcome_host, sizeof(*model->outcome_host), cudaHostAllocDefault));
    CUDA_CHECK(cudaHostAlloc((void **)&model->mean_host, sizeof(*model->mean_host), cudaHostAllocDefault));
}

static void upload_chunks(Model *model)
{
    if (model->config.is_inference) {
        return;
    }
    size_t bytes = (size_t)model->chunk_count * sizeof(ArenaChunk);
    ArenaChunk *chunks = (ArenaChunk *)memory_alloc(bytes, 1, "arena chunks");
    arena_chunks_cut(chunks, &model->table);
    CUDA_CHECK(cudaMemcpyAsync(model->chunks, chunks, bytes, cudaMemcpyHostToDevice, model->stream));
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
    memory_free(chunks);
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static int check_memory(const Model *model, Error *error)
{
    size_t available = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&available, &total));
    size_t needed = model->bytes + matmuls_bytes() + LIBRARY_BYTES;
    needed += model->config.is_distributed ? NCCL_BYTES : 0;
    if (needed <= available) {
        return 0;
    }
    return error_set(
        error,
        "out of memory: the model needs %.1f GiB on the GPU, %.1f of its %.1f GiB are free; lower "
        "batch_size=%d (and raise gradient_accumulation_steps) or block_size=%d",
        (double)needed / 0x1p30, (double)available / 0x1p30, (double)total / 0x1p30, model->config.batch_size,
        model->config.sequence_tokens);
}

void cuda_model_tune(Model *model, double limit_ms)
{
    double deadline_ms = clock_ms() + limit_ms;
    int32_t *tokens = (int32_t *)memory_alloc((size_t)model_rows(model), sizeof(int32_t), "tokens");
    SlotContext context = {};
    for (int64_t i = 0; i < model_rows(model); i++) { /* as varied as a text's */
        tokens[i] = (int32_t)(i % model->config.shape.vocab_size);
    }
    context.is_first = context.is_last = 1;
    cuda_model_train_slot(model, tokens, tokens, &context);
    if (!model->is_exact_arena && model->config.slots_per_step > 1) { /* gradients are added to */
        context.is_first = 0;
        cuda_model_train_slot(model, tokens, tokens, &context);
    }
    matmuls_tune(model->matmuls, deadline_ms, model->stream);
    for (int i = 0; i < model->owned_count; i++) {
        CUDA_CHECK(cudaMemsetAsync(model->owned[i].data, 0, model->owned[i].bytes, model->stream));
    }
    upload_chunks(model);
    memory_free(tokens);
}

/* Plans that are given and fit are used; timing is for those who have none. */
static void choose_plans(Model *model, const ModelConfig *config)
{
    model->config.plans = NULL; /* borrowed for this call only */
    if (config->plans) {
        matmuls_use_plans(model->matmuls, config->plans);
    }
    if (!config->is_inference) { /* which takes from them what it can, whatever its rows are */
        matmuls_drop_other_shapes(model->matmuls, model_rows(model), config->dtype);
    }
    if (config->autotunes && !config->is_inference && !matmuls_plans(model->matmuls)) {
        cuda_model_tune(model, AUTOTUNE_MS);
    }
}

/* What kernels and their launches are made for. */
static int check_shape(const ModelConfig *config, Error *error)
{
    int C = config->shape.n_embd, T = config->sequence_tokens;
    int64_t BT = (int64_t)config->batch_size * T;
    if (C > EMBEDDING_MAX || C / config->shape.n_head > ATTENTION_HEAD_SIZE_MAX) {
        return error_set(error,
                         "n_embd=%d, n_head=%d: expected at most %d, and heads of at most %d, on a GPU", C,
                         config->shape.n_head, (int)EMBEDDING_MAX, (int)ATTENTION_HEAD_SIZE_MAX);
    }
    if (T > EMBEDDING_T_MAX) {
        return error_set(error, "block_size=%d: expected at most %d on a GPU", T, (int)EMBEDDING_T_MAX);
    }
    if (BT > COLUMN_ROWS_MAX) {
        return error_set(error,
                         "batch_size=%d, block_size=%d: expected at most %d tokens on a GPU, found %lld",
                         config->batch_size, T, (int)COLUMN_ROWS_MAX, (long long)BT);
    }
    return 0;
}

/* Said once at start: the model works, but not as fast as its size suggests. */
static void note_shape(Model *model)
{
    CudaAttention attention = model_attention(model);
    if (attention.dtype == DTYPE_BF16 && !attention_is_on_tensor_cores(&attention)) {
        error_set(
            &model->shape_notice,
            "n_embd=%d, n_head=%d: attention has heads of %d, which take many times as long on a GPU as "
            "those of a multiple of 8 up to 128",
            model->config.shape.n_embd, model->config.shape.n_head, attention.HS);
    }
}

static void prepare_kernels(Model *model)
{
    int device, shared_bytes_max;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&shared_bytes_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    model->shared_bytes_max = shared_bytes_max;
    classifier_prepare(shared_bytes_max);
    attention_prepare();
}

Model *cuda_model_create(const ModelConfig *config, Error *error)
{
    if (check_shape(config, error) != 0) {
        return NULL;
    }
    Model *model = (Model *)memory_alloc_zeroed(1, sizeof(*model), "model");
    model->config = *config;
    params_init(&model->table, &config->shape);
    model->Vp = model_shape_padded_vocab(&config->shape);
    model->is_exact_arena = config->reduce == REDUCE_EXACT && config->slots_per_step > 1;
    model->blocks = (BlockActivations *)memory_alloc_zeroed((size_t)config->shape.n_layer,
                                                            sizeof(*model->blocks), "block activations");
    model->chunk_count = (int)arena_chunks_cut(NULL, &model->table); /* EMBEDDING_MAX keeps it small */
    model->is_planning = 1;
    alloc_all(model);
    if (check_memory(model, error) != 0) {
        params_release(&model->table);
        memory_free(model->blocks);
        memory_free(model);
        return NULL;
    }
    model->is_planning = 0;
    model->bytes = matmuls_bytes();
    cuda_queue_init(&model->queue);
    model->stream = model->queue.stream;
    CUDA_CHECK(cudaEventCreateWithFlags(&model->is_updated, cudaEventDisableTiming));
    model->matmuls = matmuls_create();
    model->copies = state_copies_create();
    if (config->uses_graph && !config->is_inference && config->dropout == 0) {
        model->graphs =
            slot_graphs_create(&model->queue); /* dropout's keys are arguments, which a graph cannot change */
    }
    prepare_kernels(model);
    note_shape(model);
    alloc_all(model);
    create_stages(model);
    upload_chunks(model);
    choose_plans(model, config);
    return model;
}

void cuda_model_release(Model *model)
{
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
    for (int i = 0; i < model->owned_count; i++) {
        CUDA_CHECK(cudaFree(model->owned[i].data));
    }
    for (int i = 0; i < STAGES; i++) {
        CUDA_CHECK(cudaFreeHost(model->stages[i].tokens));
        CUDA_CHECK(cudaEventDestroy(model->stages[i].is_free));
        memory_free(model->stages[i].bins.counters);
    }
    CUDA_CHECK(cudaFreeHost(model->outcome_host));
    CUDA_CHECK(cudaFreeHost(model->mean_host));
    matmuls_free(model->matmuls);
    state_copies_free(model->copies);
    for (int i = 0; i < model->mark_count; i++) {
        CUDA_CHECK(cudaEventDestroy(model->marks[i]));
    }
    CUDA_CHECK(cudaEventDestroy(model->is_updated));
    slot_graphs_free(model->graphs);
    cuda_queue_release(&model->queue);
    memory_free(model->marks);
    memory_free(model->owned);
    memory_free(model->blocks);
    memory_free(model->decode.cache);
    params_release(&model->table);
    memory_free(model);
}
