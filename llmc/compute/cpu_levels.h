/* The CPU backend is compiled once for each level of the instruction set; the best one that this machine runs
 * is chosen when the program starts. Results are the same for any number of threads, but may differ between
 * levels in rounding.
 */
#ifndef LLMC_COMPUTE_CPU_LEVELS_H
#define LLMC_COMPUTE_CPU_LEVELS_H

#include "llmc/compute/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CPU_LEVELS_MAX = 4 };

/* Backends that this machine can run, best first. Returns how many were written. */
int cpu_levels(const Backend *backends[CPU_LEVELS_MAX]);

/* The best one, or the one named by the environment variable CPU_LEVEL ("x86-64-v2", for tests and
 * comparisons). Returns NULL with *error set when that name is unknown or cannot run here. */
const Backend *cpu_backend(Error *error);

/* Call first of all in main. Threads of libgomp spin at barriers before they sleep; where cores are shared
 * (other programs, more ranks than cores) that keeps the very thread that is waited for from running: three
 * times slower, measured at a load of 10 on two cores. libgomp reads GOMP_SPINCOUNT before main, so the
 * program starts itself once more with a small one. What the user has set stays. */
void cpu_spin_briefly(char **argv);

#ifdef __cplusplus
}
#endif
#endif
