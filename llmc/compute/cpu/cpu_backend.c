/* The table of this level's CPU backend; the Makefile gives CPU_LEVEL and CPU_LEVEL_NAME for each level. */
#include "llmc/compute/cpu/cpu_backend.h"

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"

static float *state_arena(const Model *model, StateKind kind)
{
    return kind == STATE_WEIGHTS ? model->weights : kind == STATE_MOMENT1 ? model->moment1 : model->moment2;
}

void cpu_backend_write_state(Model *model, StateKind kind, int64_t offset, const float *values, int64_t count)
{
    memcpy(state_arena(model, kind) + offset, values, (size_t)count * sizeof(float));
    if (kind == STATE_WEIGHTS && model->weights_low) {
        tensor_store((Tensor){model->weights_low, DTYPE_BF16}, offset, values, count);
    }
}

void cpu_backend_read_state(const Model *model, StateKind kind, int64_t offset, float *values, int64_t count)
{
    if (kind == STATE_GRADIENTS) {
        cpu_model_read_gradients(model, offset, values, count);
    } else {
        memcpy(values, state_arena(model, kind) + offset, (size_t)count * sizeof(float));
    }
}

/* Clocks and vector units differ too much to name one peak. */
void cpu_backend_describe(ModelFacts *facts, const Model *model)
{
    /* fp32 is rounded alike by all levels, bf16 as the kernel for products does it. */
    const char *kernel = model->config.dtype == DTYPE_FP32 ? matmul_fp32.name : model->bf16_kernel->name;
    *facts = (ModelFacts){
        .memory_bytes = model->bytes, .host_bytes = model->bytes, .device = kernel, .kernel = kernel};
}

/* Nothing is queued: the time of a mark is that of the call. */
void cpu_backend_mark(Model *model, int index)
{
    if (index >= model->mark_capacity) {
        int capacity = 2 * index + 64;
        model->marks = memory_grow(model->marks, (size_t)model->mark_capacity, (size_t)capacity,
                                   sizeof(double), "marks");
        model->mark_capacity = capacity;
    }
    model->marks[index] = clock_ms();
}

double cpu_backend_mark_ms(const Model *model, int index)
{
    return model->marks[index];
}

static Model *create(const ModelConfig *config, Error *error)
{
    return cpu_model_create(config, &matmul_widened, error);
}

static int is_right(void)
{
    return matmul_kernel_is_right(&matmul_fp32) && matmul_kernel_is_right(&matmul_widened);
}

static const Backend backend = CPU_BACKEND_TABLE(CPU_LEVEL_NAME, create);

extern const CpuLevel CPU_LEVEL;
const CpuLevel CPU_LEVEL = {.backend = &backend, .is_right = is_right};
