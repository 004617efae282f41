#include <math.h>

#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/compute/cuda/exact.cuh"

GradientArena cuda_model_gradients(Model *model)
{
    GradientArena arena = {};
    arena.elements = model->is_exact_arena ? (void *)model->exact_sums : (void *)model->gradients;
    arena.tail = model->tail;
    arena.count = model->table.arena_count;
    arena.is_int64 = model->is_exact_arena;
    return arena;
}

static Gradients gradients_of(const Model *model)
{
    int is_exact = model->config.reduce == REDUCE_EXACT;
    Gradients gradients = {};
    gradients.sums = model->is_exact_arena ? model->exact_sums : NULL;
    gradients.values = model->gradients;
    gradients.is_rounded = is_exact;
    gradients.limit = is_exact ? (float)EXACT_LIMIT / (float)model->config.slots_per_step : 3e38f;
    return gradients;
}

void cuda_model_update(Model *model, const UpdateArgs *args, StepResult *result)
{
    double correction1 = 1.0 - pow(args->beta1, (double)args->update_number);
    double correction2 = 1.0 - pow(args->beta2, (double)args->update_number);
    AdamwUpdate update = {};
    update.weights = model->weights;
    update.moment1 = model->moment1;
    update.moment2 = model->moment2;
    update.weights_low = model->weights_low;
    update.gradients = gradients_of(model);
    update.chunks = model->chunks;
    update.chunk_count = model->chunk_count;
    update.norm_partial = model->norm_partial;
    update.bad_partial = model->bad_partial;
    update.tail = model->tail;
    update.outcome = model->outcome;
    update.grad_clip = args->grad_clip;
    update.decay = 1.0f - args->learning_rate * args->weight_decay;
    update.beta1 = args->beta1;
    update.beta2 = args->beta2;
    update.step = (float)(args->learning_rate / correction1);
    update.inverse_root = (float)(1.0 / sqrt(correction2));
    update.epsilon = args->epsilon;
    adamw_update(&update, model->stream);
    CUDA_CHECK(cudaMemcpyAsync(model->outcome_host, model->outcome, sizeof(StepOutcome),
                               cudaMemcpyDeviceToHost, model->stream));
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
    result->norm = model->outcome_host->norm;
    result->loss = (double)model->outcome_host->loss * (1.0 / EXACT_SCALE);
    result->is_skipped = model->outcome_host->bad > 0 || !isfinite(result->norm);
}

/* ---- state in and out
 * --------------------------------------------------------------------------------------- */

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS)
    lower_kernel(__nv_bfloat16 *out, const float *values, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        out[i] = __float2bfloat16_rn(values[i]);
    }
}

static float *state_arena(const Model *model, StateKind kind)
{
    return kind == STATE_WEIGHTS ? model->weights : kind == STATE_MOMENT1 ? model->moment1 : model->moment2;
}

void cuda_model_write_state(Model *model, StateKind kind, int64_t offset, const float *values, int64_t count)
{
    if (count == 0) {
        return;
    }
    float *arena = state_arena(model, kind) + offset;
    CUDA_CHECK(
        cudaMemcpyAsync(arena, values, (size_t)count * sizeof(float), cudaMemcpyHostToDevice, model->stream));
    if (kind == STATE_WEIGHTS && model->weights_low) {
        launch(lower_kernel, dim3((unsigned)div_up(count, THREADS)), dim3(THREADS), 0, model->stream,
               model->weights_low + offset, arena, count);
    }
    CUDA_CHECK(cudaStreamSynchronize(model->stream)); /* `values` is the caller's again */
}

/* Gradients as the update sees them, by way of the logits' memory, which nothing uses between steps. */
static void read_gradients(const Model *model, int64_t offset, float *values, int64_t count)
{
    Gradients gradients = gradients_of(model);
    int64_t piece_max = model->logits_bytes / (int64_t)sizeof(float);
    for (int64_t first = 0; first < count; first += piece_max) {
        int64_t piece = count - first < piece_max ? count - first : piece_max;
        gradients_read((float *)model->logits, &gradients, offset + first, piece, model->stream);
        CUDA_CHECK(cudaMemcpyAsync(values + first, model->logits, (size_t)piece * sizeof(float),
                                   cudaMemcpyDeviceToHost, model->stream));
    }
}

void cuda_model_read_state(const Model *model, StateKind kind, int64_t offset, float *values, int64_t count)
{
    if (kind == STATE_GRADIENTS) {
        read_gradients(model, offset, values, count);
    } else if (count > 0) {
        CUDA_CHECK(cudaMemcpyAsync(values, state_arena(model, kind) + offset, (size_t)count * sizeof(float),
                                   cudaMemcpyDeviceToHost, model->stream));
    }
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
}
