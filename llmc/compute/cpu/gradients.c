/* Gradients between backward and the update: exact sums over slots, and the norm. */
#include <math.h>
#include <string.h>

#include "llmc/compute/cpu/cpu_model.h"
#include "llmc/compute/cpu/exact.h"

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

void cpu_model_gradients_begin(Model *model)
{
    memset(model->tail, 0, sizeof(model->tail));
    memset(model->norms, 0, (size_t)model->chunk_count * sizeof(*model->norms));
}

/* An element beyond this is bad. */
static float limit_of(const Model *model)
{
    int is_exact = model->config.reduce == REDUCE_EXACT;
    return is_exact ? (float)EXACT_LIMIT / (float)model->config.slots_per_step : 3e38f;
}

void cpu_model_read_gradients(const Model *model, int64_t offset, float *values, int64_t count)
{
    if (model->is_exact_arena) {
        const int64_t *sums = model->exact_sums + offset;
        for (int64_t i = 0; i < count; i++) {
            values[i] = exact_to_float(sums[i]);
        }
        return;
    }
    const float *gradients = model->gradients + offset;
    int is_rounded = model->config.reduce == REDUCE_EXACT;
    for (int64_t i = 0; i < count; i++) {
        values[i] = is_rounded ? exact_round(gradients[i]) : gradients[i];
    }
}

enum { NORM_LANES = 256 }; /* of a sum of squares; they stay in the first cache */

/* lanes[i] += values[i]^2, which is exact in double. Inlined with a constant for is_rounded. */
static inline __attribute__((always_inline)) void
add_squares(double *restrict lanes, const float *restrict values, int count, int is_rounded)
{
    for (int i = 0; i < count; i++) {
        double value = is_rounded ? exact_round(values[i]) : values[i];
        lanes[i] += value * value;
    }
}

static void add_squares_of_sums(double *restrict lanes, const int64_t *restrict sums, int count)
{
    for (int i = 0; i < count; i++) {
        double value = exact_to_float(sums[i]);
        lanes[i] += value * value;
    }
}

/* Whether some value is not a number, infinite, or beyond the limit: as integers their magnitudes are in
 * order, and those that are no numbers come last. */
static int has_bad(const float *values, int count, float limit)
{
    int32_t limit_bits, largest = 0;
    memcpy(&limit_bits, &limit, sizeof(limit_bits));
#pragma omp simd reduction(max : largest)
    for (int i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest > limit_bits;
}

/* Element i of a chunk belongs to lane i % NORM_LANES; lanes are folded by halves. */
static ChunkNorm norm_of(const Model *model, const ArenaChunk *chunk)
{
    double lanes[NORM_LANES] = {0};
    ChunkNorm norm = {.is_known = 1};
    float limit = limit_of(model);
    int is_rounded = model->config.reduce == REDUCE_EXACT;
    for (int first = 0; first < chunk->count; first += NORM_LANES) {
        int64_t offset = chunk->offset + first;
        int count = chunk->count - first < NORM_LANES ? chunk->count - first : NORM_LANES;
        if (model->is_exact_arena) {
            add_squares_of_sums(lanes, model->exact_sums + offset, count);
            continue;
        }
        if (has_bad(model->gradients + offset, count, limit)) {
            norm.is_bad = 1;
            norm.is_not_finite |= exact_count_not_finite(model->gradients + offset, count) > 0;
        }
        if (is_rounded) {
            add_squares(lanes, model->gradients + offset, count, 1);
        } else {
            add_squares(lanes, model->gradients + offset, count, 0);
        }
    }
    for (int half = NORM_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[half + i];
        }
    }
    norm.squares = lanes[0];
    return norm;
}

/* Chunks of the tensors before this one. */
static int64_t first_chunk(const Model *model, int index)
{
    int64_t count = 0;
    for (int i = 0; i < index; i++) {
        count += (model->table.specs[i].arena_count + ARENA_CHUNK - 1) / ARENA_CHUNK;
    }
    return count;
}

void cpu_model_gradients_done(Model *model, int first, int last, int64_t range_offset,
                              const SlotContext *context)
{
    /* wte's part of the embedding is still to come: only folding brings it into the cache for nothing */
    int is_final = context->is_last && !model->config.is_distributed &&
                   (model->is_exact_arena || first != params_wte_index());
    if (!is_final && !model->is_exact_arena) {
        return;
    }
    int64_t bad = 0, not_finite = 0;
    int64_t end = first_chunk(model, last + 1);
#pragma omp parallel for schedule(static) reduction(+ : bad, not_finite)
    for (int64_t c = first_chunk(model, first); c < end; c++) {
        const ArenaChunk *chunk = &model->chunks[c];
        if (model->is_exact_arena) {
            int64_t *sums = model->exact_sums + chunk->offset;
            const float *values = model->gradients + (chunk->offset - range_offset);
            int64_t chunk_bad = context->is_first ? exact_set(sums, values, chunk->count, limit_of(model))
                                                  : exact_add(sums, values, chunk->count, limit_of(model));
            if (chunk_bad > 0) {
                bad += chunk_bad;
                not_finite += exact_count_not_finite(values, chunk->count);
            }
        }
        if (is_final) {
            model->norms[c] = norm_of(model, chunk);
        }
    }
    model->tail[TAIL_BAD] += bad;
    model->tail[TAIL_NOT_FINITE] += not_finite;
}

void cpu_model_gradients_changed(Model *model, int64_t offset, int64_t count)
{
    int64_t first = offset - model->table.specs[params_wte_index()].offset;
    for (int64_t c = first / ARENA_CHUNK; c <= (first + count - 1) / ARENA_CHUNK; c++) {
        model->norms[first_chunk(model, params_wte_index()) + c].is_known = 0;
    }
}

ChunkNorm cpu_model_gradients_norm(Model *model)
{
#pragma omp parallel for schedule(static, 1) /* those that are left lie side by side */
    for (int64_t c = 0; c < model->chunk_count; c++) {
        if (!model->norms[c].is_known) {
            model->norms[c] = norm_of(model, &model->chunks[c]);
        }
    }
    ChunkNorm whole = {.is_bad = model->tail[TAIL_BAD] > 0,
                       .is_not_finite = model->tail[TAIL_NOT_FINITE] > 0,
                       .is_known = 1};
    for (int64_t c = 0; c < model->chunk_count; c++) {
        whole.squares += model->norms[c].squares;
        whole.is_bad |= model->norms[c].is_bad;
        whole.is_not_finite |= model->norms[c].is_not_finite;
    }
    return whole;
}
