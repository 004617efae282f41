/* Dropout on the CPU. */
#ifndef LLMC_COMPUTE_CPU_DROPOUT_H
#define LLMC_COMPUTE_CPU_DROPOUT_H

#include "llmc/compute/dropout.h"

/* values[i] *= 0 or 1/(1-p), for elements first + i of the site. Does nothing when probability is 0. */
void dropout_apply(float *values, const Dropout *dropout, int64_t first, int64_t count);

#endif
