#include <math.h>

#include "llmc/base/math.h"
#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/compute/cuda/exact.cuh"

GradientArena cuda_model_gradients(Model *model)
{
    GradientArena arena = {};
    arena.elements = model->is_exact_arena ? (void *)model->exact_sums : (void *)model->gradients;
    arena.tail = model->tail;
    arena.count = model->table.arena_count;
    arena.is_int64 = model->is_exact_arena;
    arena.queue = &model->queue;
    return arena;
}

Gradients cuda_model_reduced(const Model *model)
{
    int is_exact = model->config.reduce == REDUCE_EXACT;
    Gradients gradients = {};
    gradients.sums = model->is_exact_arena ? model->exact_sums : NULL;
    gradients.values = model->gradients;
    gradients.is_rounded = is_exact;
    gradients.limit = is_exact ? (float)EXACT_LIMIT / (float)model->config.slots_per_step : 3e38f;
    return gradients;
}

static void queue_update(Model *model, const UpdateArgs *args)
{
    double correction1 = 1.0 - math_power(args->beta1, args->update_number);
    double correction2 = 1.0 - math_power(args->beta2, args->update_number);
    AdamwUpdate update = {};
    update.weights = model->weights;
    update.moment1 = model->moment1;
    update.moment2 = model->moment2;
    update.weights_low = model->weights_low;
    update.gradients = cuda_model_reduced(model);
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
    CUDA_CHECK(cudaEventRecord(model->is_updated, model->stream));
}

void cuda_model_update(Model *model, const UpdateArgs *args, StepResult *result)
{
    if (args) {
        queue_update(model, args);
    }
    if (!result) {
        return;
    }
    CUDA_CHECK(cudaEventSynchronize(model->is_updated));
    result->norm = model->outcome_host->norm;
    result->loss = (double)model->outcome_host->loss * (1.0 / EXACT_SCALE);
    result->is_skipped = model->outcome_host->bad > 0 || !isfinite(result->norm);
    result->is_out_of_range =
        result->is_skipped && model->outcome_host->not_finite == 0 && isfinite(result->norm);
}
