/* Where dropout is applied and what decides it, for every device. By counter: element i of a site in (step,
 * slot) is kept or not, whoever asks, forward or backward. An element that is kept is scaled by 1 / (1 -
 * probability).
 */
#ifndef LLMC_COMPUTE_DROPOUT_H
#define LLMC_COMPUTE_DROPOUT_H

#include <stdint.h>

#include "llmc/base/random.h"
#include "llmc/compute/backend.h"

/* Places in a block where dropout is applied; the embedding is site 0 of the layer after the last. */
typedef enum DropoutSite { DROPOUT_ATTENTION, DROPOUT_PROJ, DROPOUT_FCPROJ, DROPOUT_SITES } DropoutSite;

typedef struct Dropout {
    float probability; /* 0: off */
    RandomKey key;
    uint64_t site; /* layer * DROPOUT_SITES + site */
} Dropout;

/* Four neighbours of a site share one block of random numbers: elements 4*i .. 4*i+3 have this block's. */
static inline uint64_t dropout_block(uint64_t site, uint64_t element)
{
    return (site << 40) + element / 4;
}

/* context is NULL where there is no dropout: evaluation. */
static inline Dropout dropout_at(const ModelConfig *config, const SlotContext *context, int layer,
                                 DropoutSite site)
{
    Dropout dropout;
    dropout.probability = context ? config->dropout : 0.0f;
    dropout.key.seed = config->seed;
    dropout.key.purpose = RANDOM_DROPOUT;
    dropout.key.step = context ? context->step : 0;
    dropout.key.slot = context ? context->slot : 0;
    dropout.site = (uint64_t)layer * DROPOUT_SITES + (uint64_t)site;
    return dropout;
}

#endif
