/* Measured choices that the program brings along, for the GPUs and libraries they were measured on. Made by
 * dev/bench/tune_matmul.cu. */
#ifndef LLMC_COMPUTE_CUDA_TUNED_PLANS_CUH
#define LLMC_COMPUTE_CUDA_TUNED_PLANS_CUH

/* Texts as model/plans.h has them, several for a device where need be; the last is NULL. */
extern const char *const tuned_plans[];

#endif
