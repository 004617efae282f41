/* The levels of test_gpt2_emulated: kernels for AVX512_BF16 and AMX, whose instructions are emulated. */
#include "llmc/compute/cpu_levels.h"

extern const CpuLevel cpu_level_x86_64_v4_avx512_bf16, cpu_level_x86_64_v4_amx;

int cpu_levels(const CpuLevel *levels[CPU_LEVELS_MAX])
{
    levels[0] = &cpu_level_x86_64_v4_amx;
    levels[1] = &cpu_level_x86_64_v4_avx512_bf16;
    return 2;
}
