#include "dev/emulated_cpu/available.h"

int kernel_is_available(const MatmulKernel *kernel)
{
    return kernel->multiply != 0;
}
