#include <math.h>

#include "llmc/base/math.h"
#include "llmc/compute/cpu/adamw.h"
#include "llmc/compute/cpu/cpu_model.h"

/* With G = 1 exact rounding happens here, on the way, instead of in an integer arena. */
static void update_chunk(Model *model, const ArenaChunk *chunk, const AdamwFactors *factors)
{
    int64_t offset = chunk->offset;
    AdamwRange range = {.weights = model->weights + offset,
                        .moment1 = model->moment1 + offset,
                        .moment2 = model->moment2 + offset,
                        .weights_low = model->weights_low ? model->weights_low + offset : NULL,
                        .sums = model->is_exact_arena ? model->exact_sums + offset : NULL,
                        .gradients = model->is_exact_arena ? NULL : model->gradients + offset,
                        .is_rounded = model->config.reduce == REDUCE_EXACT,
                        .count = chunk->count};
    adamw_update(&range, factors);
}

static void make_update(Model *model, const UpdateArgs *args, StepResult *result)
{
    ChunkNorm gradient = cpu_model_gradients_norm(model);
    result->forward_ms = model->forward_ms;
    result->norm = sqrt(gradient.squares);
    result->loss = (double)model->tail[TAIL_LOSS] * (1.0 / EXACT_SCALE);
    result->is_skipped = gradient.is_bad || !isfinite(result->norm);
    result->is_out_of_range = gradient.is_bad && !gradient.is_not_finite && isfinite(result->norm);
    if (result->is_skipped) {
        return;
    }
    float clip = 1.0f;
    if (args->grad_clip > 0 && result->norm > args->grad_clip) {
        clip = (float)(args->grad_clip / (result->norm + 1e-6)); /* torch.nn.utils.clip_grad_norm_ */
    }
    double correction1 = 1.0 - math_power(args->beta1, args->update_number);
    double correction2 = 1.0 - math_power(args->beta2, args->update_number);
    AdamwFactors factors = {.clip = clip,
                            .keep = 1.0f,
                            .beta1 = args->beta1,
                            .beta2 = args->beta2,
                            .step = (float)(args->learning_rate / correction1),
                            .inverse_root = (float)(1.0 / sqrt(correction2)),
                            .epsilon = args->epsilon};
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < model->chunk_count; c++) {
        AdamwFactors own = factors;
        own.keep = model->chunks[c].decays ? 1.0f - args->learning_rate * args->weight_decay : 1.0f;
        update_chunk(model, &model->chunks[c], &own);
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
