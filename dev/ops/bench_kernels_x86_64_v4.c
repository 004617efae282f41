#include <string.h>

#include "dev/ops/bench_peer.h"
#include "llmc/compute/cpu/x86/bf16_kernels.h"
#include "llmc/compute/levels/features_x86_64.h"

const MatmulKernel *bench_kernel(const char *name)
{
    CpuFeatures cpu = cpu_features();
    if (cpu.has_amx_bf16 && (!name || strcmp(name, "amx") == 0)) {
        return &matmul_amx;
    }
    if (cpu.has_avx512_bf16 && (name ? strcmp(name, "avx512_bf16") == 0 : !cpu.is_intel)) {
        return &matmul_avx512_bf16;
    }
    return !name || strcmp(name, "widened") == 0 ? &matmul_widened : NULL;
}
