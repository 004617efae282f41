/* The CPU backend is compiled once for each level of the instruction set; the best one that this machine runs
 * is chosen when the program starts. In fp32 all levels compute the same bits. In bf16 a level is as exact as
 * any other, but kernels for matrix products add in different orders, so bits are the same within one only.
 */
#ifndef LLMC_COMPUTE_CPU_LEVELS_H
#define LLMC_COMPUTE_CPU_LEVELS_H

#include <stdio.h>

#include "llmc/compute/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CPU_LEVELS_MAX = 8 };

/* One way to compute on this kind of CPU. */
typedef struct CpuLevel {
    const Backend *backend;
    int (*is_right)(void); /* whether its matrix products come out right, tried on a small one */
} CpuLevel;

/* The name of a level is that of its backend without "cpu ". */
const char *cpu_level_name(const CpuLevel *level);

/* Levels that this machine says it can run, best first. Returns how many were written. */
int cpu_levels(const CpuLevel *levels[CPU_LEVELS_MAX]);

/* For --version: a line with the levels that this machine says it can run, best first. */
void cpu_levels_print(FILE *out);

/* The best one, or the one named by the environment variable CPU_LEVEL ("x86-64-v2", to reproduce the run of
 * another machine, or to compare). A level whose products are wrong, or whose instructions are missing though
 * CPUID has them (a hypervisor, an emulator), is left out with a line on stderr. Returns NULL with *error set
 * when the name is unknown or that level cannot run here. Call before other threads are started. */
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
