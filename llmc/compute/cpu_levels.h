/* The CPU backend is compiled once for each level of the instruction set; the best one that this machine runs
 * is chosen when the program starts. Results are the same for any number of threads, but may differ between
 * levels in rounding.
 */
#ifndef LLMC_COMPUTE_CPU_LEVELS_H
#define LLMC_COMPUTE_CPU_LEVELS_H

#include "llmc/compute/backend.h"

enum { CPU_LEVELS_MAX = 4 };

/* Backends that this machine can run, best first. Returns how many were written. */
int cpu_levels(const Backend *backends[CPU_LEVELS_MAX]);

/* The best one, or the one named by the environment variable CPU_LEVEL ("x86-64-v2", for tests and
 * comparisons). Returns NULL with *error set when that name is unknown or cannot run here. */
const Backend *cpu_backend(Error *error);

#endif
