/* Which kernels this test program can run. */
#ifndef DEV_EMULATED_CPU_AVAILABLE_H
#define DEV_EMULATED_CPU_AVAILABLE_H

#include "llmc/compute/cpu/matmul_kernel.h"

int kernel_is_available(const MatmulKernel *kernel);

#endif
