#define _GNU_SOURCE
#include <cpuid.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "llmc/compute/cpu_levels.h"

extern const CpuLevel cpu_level_x86_64_v2, cpu_level_x86_64_v3, cpu_level_x86_64_v4;
extern const CpuLevel cpu_level_x86_64_v4_avx512_bf16, cpu_level_x86_64_v4_amx;

typedef struct CpuFeatures {
    int is_intel;
    int has_avx512_bf16, has_amx_bf16;
} CpuFeatures;

/* Bits of leaf 7 of CPUID. Source: Intel's manual, volume 2, CPUID. */
enum { LEAF7_EDX_AMX_BF16 = 1 << 22, LEAF7_EDX_AMX_TILE = 1 << 24, LEAF7_1_EAX_AVX512_BF16 = 1 << 5 };

static CpuFeatures cpu_features(void)
{
    CpuFeatures features = {0, 0, 0};
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx)) {
        features.is_intel = ebx == signature_INTEL_ebx;
    }
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        features.has_amx_bf16 = (edx & LEAF7_EDX_AMX_BF16) && (edx & LEAF7_EDX_AMX_TILE);
        features.has_avx512_bf16 =
            eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & LEAF7_1_EAX_AVX512_BF16);
    }
    return features;
}

/* Linux keeps the 8 KB of tile registers only for processes that have asked. Those who may not, for want of
 * room on a signal stack or under an old kernel, do without AMX. */
static int may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* On Intel's CPUs of today AVX512_BF16 runs at half the rate of fp32's multiply-adds, so bf16 inputs are
 * better widened; on AMD's (Zen 4, Zen 5) at twice their rate. */
int cpu_levels(const CpuLevel *levels[CPU_LEVELS_MAX])
{
    int count = 0;
    __builtin_cpu_init();
    int has_v3 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    int has_v4 = has_v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
    CpuFeatures features = cpu_features();
    if (has_v4 && features.has_amx_bf16 && may_use_tiles()) {
        levels[count++] = &cpu_level_x86_64_v4_amx;
    }
    if (has_v4 && features.has_avx512_bf16 && !features.is_intel) {
        levels[count++] = &cpu_level_x86_64_v4_avx512_bf16;
    }
    if (has_v4) {
        levels[count++] = &cpu_level_x86_64_v4;
    }
    if (has_v4 && features.has_avx512_bf16 && features.is_intel) {
        levels[count++] = &cpu_level_x86_64_v4_avx512_bf16;
    }
    if (has_v3) {
        levels[count++] = &cpu_level_x86_64_v3;
    }
    levels[count++] = &cpu_level_x86_64_v2;
    return count;
}
