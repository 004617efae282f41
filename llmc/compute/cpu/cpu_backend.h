/* What the tables of one level have in common: they differ in the kernel for products of bf16 inputs. */
#ifndef LLMC_COMPUTE_CPU_CPU_BACKEND_H
#define LLMC_COMPUTE_CPU_CPU_BACKEND_H

#include "llmc/compute/cpu/cpu_model.h"
#include "llmc/compute/cpu/matmul.h"
#include "llmc/compute/cpu_levels.h"

void cpu_backend_write_state(Model *model, StateKind kind, int64_t offset, const float *values,
                             int64_t count);
void cpu_backend_read_state(const Model *model, StateKind kind, int64_t offset, float *values, int64_t count);
void cpu_backend_describe(ModelFacts *facts, const Model *model);
void cpu_backend_mark(Model *model, int index);
double cpu_backend_mark_ms(const Model *model, int index);

/* A Backend named after its level, whose models are made by create_function. */
#define CPU_BACKEND_TABLE(level_name, create_function)                                                       \
    {                                                                                                        \
        .name = "cpu " level_name, .create = create_function, .release = cpu_model_release,                  \
        .write_state = cpu_backend_write_state, .read_state = cpu_backend_read_state,                        \
        .train_slot = cpu_model_train_slot, .gradients = cpu_model_gradients, .update = cpu_model_update,    \
        .evaluate = cpu_model_evaluate, .losses = cpu_model_losses, .decode = cpu_model_decode,              \
        .describe = cpu_backend_describe, .mark = cpu_backend_mark, .mark_ms = cpu_backend_mark_ms,          \
        .reducer = &host_reducer                                                                             \
    }

#endif
