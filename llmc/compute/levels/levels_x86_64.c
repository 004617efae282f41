#include <stdlib.h>
#include <string.h>

#include "llmc/compute/cpu_levels.h"

extern const Backend cpu_backend_x86_64_v2, cpu_backend_x86_64_v3, cpu_backend_x86_64_v4;

int cpu_levels(const Backend *backends[CPU_LEVELS_MAX])
{
    int count = 0;
    __builtin_cpu_init();
    int has_v3 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    int has_v4 = has_v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
    if (has_v4) {
        backends[count++] = &cpu_backend_x86_64_v4;
    }
    if (has_v3) {
        backends[count++] = &cpu_backend_x86_64_v3;
    }
    backends[count++] = &cpu_backend_x86_64_v2;
    return count;
}
