#define _GNU_SOURCE
#include "llmc/compute/levels/features_x86_64.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of leaf 7 of CPUID. Source: Intel's manual, volume 2, CPUID. */
enum { LEAF7_EDX_AMX_BF16 = 1 << 22, LEAF7_EDX_AMX_TILE = 1 << 24, LEAF7_1_EAX_AVX512_BF16 = 1 << 5 };

/* Linux keeps the 8 KB of tile registers only for processes that have asked. Those who may not, for want of
 * room on a signal stack or under an old kernel, do without AMX. */
static int may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

CpuFeatures cpu_features(void)
{
    CpuFeatures cpu = {0, 0, 0, 0, 0};
    unsigned eax, ebx, ecx, edx;
    __builtin_cpu_init();
    cpu.has_v3 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    cpu.has_v4 = cpu.has_v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx)) {
        cpu.is_intel = ebx == signature_INTEL_ebx;
    }
    if (cpu.has_v4 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        int has_tiles = (edx & LEAF7_EDX_AMX_BF16) && (edx & LEAF7_EDX_AMX_TILE);
        cpu.has_amx_bf16 = has_tiles && may_use_tiles();
        cpu.has_avx512_bf16 =
            eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & LEAF7_1_EAX_AVX512_BF16);
    }
    return cpu;
}
