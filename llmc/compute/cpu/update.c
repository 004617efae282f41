#include <math.h>

#include "llmc/base/math.h"
#include "llmc/compute/cpu/adamw.h"
#include "llmc/compute/cpu/cpu_model.h"
#include "llmc/compute/cpu/exact.h"
#include "llmc/compute/cpu/sums.h"

GradientArena cpu_model_gradients(Model *model)
{
    GradientArena arena = {
        .tail = model->tail, .count = model->table.arena_count, .is_int64 = model->is_exact_arena};
    arena.elements = model->is_exact_arena ? (void *)model->exact_sums : (void *)model->gradients;
    if (model->late_sums) {
        const TokenBins *bins = &model->backward.bins;
        arena.late = (LateRows){.tokens = bins->tokens, .sums = model->late_sums, .count = bins->count};
    }
    return arena;
}

/* One chunk as the optimizer sees it. With G = 1 the exact rounding happens here instead of in an integer
 * arena. Returns how many elements are not finite or out of range. */
static int64_t load_gradients(float *restrict values, const Model *model, int64_t offset, int64_t count)
{
    int64_t bad = 0;
    if (model->is_exact_arena) { /* bad elements were counted when they were folded */
        const int64_t *sums = model->exact_sums + offset;
        for (int64_t i = 0; i < count; i++) {
            values[i] = exact_to_float(sums[i]);
        }
        return 0;
    }
    const float *gradients = model->gradients + offset;
    int is_exact = model->config.reduce == REDUCE_EXACT;
    float limit = is_exact ? (float)EXACT_LIMIT / (float)model->config.slots_per_step : 3e38f;
#pragma omp simd reduction(+ : bad)
    for (int64_t i = 0; i < count; i++) {
        bad += !(fabsf(gradients[i]) <= limit);
    }
    if (bad == 0 && is_exact) {
        for (int64_t i = 0; i < count; i++) {
            values[i] = exact_round(gradients[i]);
        }
    } else {
        memcpy(values, gradients, (size_t)count * sizeof(float));
    }
    return bad;
}

void cpu_model_read_gradients(const Model *model, int64_t offset, float *values, int64_t count)
{
    load_gradients(values, model, offset, count);
}

/* Sum of squares over the arena, in double and in the order of the chunks. */
static double gradient_norm(Model *model, int64_t *bad)
{
    int64_t bad_count = 0;
#pragma omp parallel for schedule(static) reduction(+ : bad_count)
    for (int64_t c = 0; c < model->chunk_count; c++) {
        float values[ARENA_CHUNK];
        const ArenaChunk *chunk = &model->chunks[c];
        bad_count += load_gradients(values, model, chunk->offset, chunk->count);
        model->norm_partial[c] = wide_squares_of(values, chunk->count);
    }
    double sum = 0;
    for (int64_t c = 0; c < model->chunk_count; c++) {
        sum += model->norm_partial[c];
    }
    *bad = bad_count;
    return sqrt(sum);
}

static void update_chunk(Model *model, const ArenaChunk *chunk, float clip, const AdamwFactors *factors)
{
    float values[ARENA_CHUNK];
    load_gradients(values, model, chunk->offset, chunk->count);
    for (int i = 0; i < chunk->count; i++) {
        values[i] *= clip;
    }
    bf16 *low = model->weights_low ? model->weights_low + chunk->offset : NULL;
    adamw_update(model->weights + chunk->offset, model->moment1 + chunk->offset,
                 model->moment2 + chunk->offset, low, values, chunk->count, factors);
}

static void make_update(Model *model, const UpdateArgs *args, StepResult *result)
{
    int64_t bad = 0;
    result->norm = gradient_norm(model, &bad);
    result->loss = (double)model->tail[TAIL_LOSS] * (1.0 / EXACT_SCALE);
    result->is_skipped = bad + model->tail[TAIL_BAD] > 0 || !isfinite(result->norm);
    if (result->is_skipped) {
        return;
    }
    float clip = 1.0f;
    if (args->grad_clip > 0 && result->norm > args->grad_clip) {
        clip = (float)(args->grad_clip / (result->norm + 1e-6)); /* torch.nn.utils.clip_grad_norm_ */
    }
    double correction1 = 1.0 - math_power(args->beta1, args->update_number);
    double correction2 = 1.0 - math_power(args->beta2, args->update_number);
    AdamwFactors factors = {.keep = 1.0f,
                            .beta1 = args->beta1,
                            .beta2 = args->beta2,
                            .step = (float)(args->learning_rate / correction1),
                            .inverse_root = (float)(1.0 / sqrt(correction2)),
                            .epsilon = args->epsilon};
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < model->chunk_count; c++) {
        AdamwFactors own = factors;
        own.keep = model->chunks[c].decays ? 1.0f - args->learning_rate * args->weight_decay : 1.0f;
        update_chunk(model, &model->chunks[c], clip, &own);
    }
}

void cpu_model_update(Model *model, const UpdateArgs *args, StepResult *result)
{
    if (args) {
        make_update(model, args, &model->result);
    }
    if (result) {
        *result = model->result;
    }
}
