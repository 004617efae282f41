/* Dropout by counter: element i of a site in (step, slot) is kept or not, whoever asks, forward or backward.
 * An element that is kept is scaled by 1 / (1 - probability).
 */
#ifndef LLMC_COMPUTE_CPU_DROPOUT_H
#define LLMC_COMPUTE_CPU_DROPOUT_H

#include <stdint.h>

#include "llmc/base/random.h"

/* Places in a block where dropout is applied; the embedding is site 0 of the layer after the last. */
typedef enum DropoutSite { DROPOUT_ATTENTION, DROPOUT_PROJ, DROPOUT_FCPROJ, DROPOUT_SITES } DropoutSite;

typedef struct Dropout {
    float probability; /* 0: off */
    RandomKey key;
    uint64_t site; /* layer * DROPOUT_SITES + site */
} Dropout;

/* values[i] *= 0 or 1/(1-p), for elements first + i of the site. Does nothing when probability is 0. */
void dropout_apply(float *values, const Dropout *dropout, int64_t first, int64_t count);

#endif
