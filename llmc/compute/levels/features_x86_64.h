/* What this CPU and its operating system say that they can do. */
#ifndef LLMC_COMPUTE_LEVELS_FEATURES_X86_64_H
#define LLMC_COMPUTE_LEVELS_FEATURES_X86_64_H

typedef struct CpuFeatures {
    int is_intel;
    int has_v3, has_v4;  /* levels of the instruction set, x86-64-v3 and x86-64-v4 */
    int has_avx512_bf16; /* beside x86-64-v4 */
    int has_amx_bf16;    /* beside x86-64-v4, and the process may use it */
} CpuFeatures;

/* Asks Linux for AMX's registers where the CPU has them, for all threads of the process. */
CpuFeatures cpu_features(void);

#endif
