/* The level x86-64-v4 with kernels for bf16 that only some of its CPUs have. */
#include "llmc/compute/cpu/cpu_backend.h"
#include "llmc/compute/cpu/x86/bf16_kernels.h"

static Model *create_avx512_bf16(const ModelConfig *config, Error *error)
{
    return cpu_model_create(config, &matmul_avx512_bf16, error);
}

static Model *create_amx(const ModelConfig *config, Error *error)
{
    return cpu_model_create(config, &matmul_amx, error);
}

static int is_avx512_bf16_right(void)
{
    return matmul_kernel_is_right(&matmul_fp32) && matmul_kernel_is_right(&matmul_avx512_bf16);
}

static int is_amx_right(void)
{
    return matmul_kernel_is_right(&matmul_fp32) && matmul_kernel_is_right(&matmul_amx);
}

static const Backend backend_avx512_bf16 = CPU_BACKEND_TABLE("x86-64-v4-avx512_bf16", create_avx512_bf16);
static const Backend backend_amx = CPU_BACKEND_TABLE("x86-64-v4-amx", create_amx);

extern const CpuLevel cpu_level_x86_64_v4_avx512_bf16, cpu_level_x86_64_v4_amx;
const CpuLevel cpu_level_x86_64_v4_avx512_bf16 = {.backend = &backend_avx512_bf16,
                                                  .is_right = is_avx512_bf16_right};
const CpuLevel cpu_level_x86_64_v4_amx = {.backend = &backend_amx, .is_right = is_amx_right};
