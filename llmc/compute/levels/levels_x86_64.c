#include "llmc/compute/cpu_levels.h"
#include "llmc/compute/levels/features_x86_64.h"

extern const CpuLevel cpu_level_x86_64_v2, cpu_level_x86_64_v3, cpu_level_x86_64_v4;
extern const CpuLevel cpu_level_x86_64_v4_avx512_bf16, cpu_level_x86_64_v4_amx;

/* On Intel's CPUs of today AVX512_BF16 runs at half the rate of fp32's multiply-adds, so bf16 inputs are
 * better widened; on AMD's (Zen 4, Zen 5) at twice their rate. */
int cpu_levels(const CpuLevel *levels[CPU_LEVELS_MAX])
{
    int count = 0;
    CpuFeatures cpu = cpu_features();
    if (cpu.has_amx_bf16) {
        levels[count++] = &cpu_level_x86_64_v4_amx;
    }
    if (cpu.has_avx512_bf16 && !cpu.is_intel) {
        levels[count++] = &cpu_level_x86_64_v4_avx512_bf16;
    }
    if (cpu.has_v4) {
        levels[count++] = &cpu_level_x86_64_v4;
    }
    if (cpu.has_avx512_bf16 && cpu.is_intel) {
        levels[count++] = &cpu_level_x86_64_v4_avx512_bf16;
    }
    if (cpu.has_v3) {
        levels[count++] = &cpu_level_x86_64_v3;
    }
    levels[count++] = &cpu_level_x86_64_v2;
    return count;
}
