#include "dev/emulated_cpu/available.h"
#include "llmc/compute/cpu/x86/bf16_kernels.h"
#include "llmc/compute/levels/features_x86_64.h"

int kernel_is_available(const MatmulKernel *kernel)
{
    CpuFeatures cpu = cpu_features();
    return kernel == &matmul_amx ? cpu.has_amx_bf16 : cpu.has_avx512_bf16;
}
