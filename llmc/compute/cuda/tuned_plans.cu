#include "llmc/compute/cuda/tuned_plans.cuh"

#include <stddef.h>

/* Empty: no GPU was at hand to measure on, and a choice that was not measured is worth less than the
 * library's first. What dev/bench/tune_matmul.cu prints goes before the NULL; an entry is used by runs on
 * the GPU and with the library version that its first line names, and by no others. */
const char *const tuned_plans[] = {
    NULL,
};
