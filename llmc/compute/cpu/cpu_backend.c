/* The table of this level's CPU backend; the Makefile gives CPU_BACKEND and CPU_LEVEL_NAME for each level. */
#include "llmc/compute/cpu/cpu_model.h"

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"

static float *state_arena(const Model *model, StateKind kind)
{
    return kind == STATE_WEIGHTS ? model->weights : kind == STATE_MOMENT1 ? model->moment1 : model->moment2;
}

static void write_state(Model *model, StateKind kind, int64_t offset, const float *values, int64_t count)
{
    memcpy(state_arena(model, kind) + offset, values, (size_t)count * sizeof(float));
    if (kind == STATE_WEIGHTS && model->weights_low) {
        tensor_store((Tensor){model->weights_low, DTYPE_BF16}, offset, values, count);
    }
}

static void read_state(const Model *model, StateKind kind, int64_t offset, float *values, int64_t count)
{
    if (kind == STATE_GRADIENTS) {
        cpu_model_read_gradients(model, offset, values, count);
    } else {
        memcpy(values, state_arena(model, kind) + offset, (size_t)count * sizeof(float));
    }
}

/* Clocks and vector units differ too much to name one peak. */
static void describe(ModelFacts *facts, const Model *model)
{
    *facts = (ModelFacts){.memory_bytes = model->bytes, .device = CPU_LEVEL_NAME};
}

/* Nothing is queued: the time of a mark is that of the call. */
static void mark(Model *model, int index)
{
    if (index >= model->mark_capacity) {
        int capacity = 2 * index + 64;
        model->marks = memory_grow(model->marks, (size_t)model->mark_capacity, (size_t)capacity,
                                   sizeof(double), "marks");
        model->mark_capacity = capacity;
    }
    model->marks[index] = clock_ms();
}

static double mark_ms(const Model *model, int index)
{
    return model->marks[index];
}

const Backend CPU_BACKEND;
const Backend CPU_BACKEND = {.name = "cpu " CPU_LEVEL_NAME,
                             .create = cpu_model_create,
                             .release = cpu_model_release,
                             .write_state = write_state,
                             .read_state = read_state,
                             .train_slot = cpu_model_train_slot,
                             .gradients = cpu_model_gradients,
                             .update = cpu_model_update,
                             .evaluate = cpu_model_evaluate,
                             .decode = cpu_model_decode,
                             .describe = describe,
                             .mark = mark,
                             .mark_ms = mark_ms,
                             .reducer = &host_reducer};
