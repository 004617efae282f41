/* Kernels for products of bf16 inputs that only some CPUs of the level x86-64-v4 have. */
#ifndef LLMC_COMPUTE_CPU_BF16_KERNELS_H
#define LLMC_COMPUTE_CPU_BF16_KERNELS_H

#include "llmc/compute/cpu/matmul_kernel.h"

extern const MatmulKernel matmul_avx512_bf16;
/* The process must have asked the kernel for AMX's registers (cpu_levels.h). */
extern const MatmulKernel matmul_amx;

#endif
