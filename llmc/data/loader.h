/* Batches for training, made ahead by one thread. Slot k of step s holds rows b = 0 .. B-1, which are the
 * samples n = (s*G + k)*B + b. The only state is n: a loader may start anywhere.
 */
#ifndef LLMC_DATA_LOADER_H
#define LLMC_DATA_LOADER_H

#include "llmc/data/dataset.h"

typedef struct LoaderConfig {
    const DataSet *set; /* borrowed */
    int batch_size;     /* B */
    int window_tokens;  /* T */
    int slots_per_step; /* G */
    int first_slot;     /* of this rank in each step */
    int slot_count;     /* of this rank in each step */
    int64_t first_step;
    uint64_t seed;
    int is_shuffled;
    int vocab_size;
} LoaderConfig;

typedef struct Loader Loader;

Loader *loader_create(const LoaderConfig *config);
void loader_free(Loader *loader);

/* The next slot of this rank: its slots of a step in order, then those of the next step. tokens and targets
 * (B,T) stay valid until the next call. -1 with *error of data_set_window. */
int loader_next(Loader *loader, const int32_t **tokens, const int32_t **targets, Error *error);

#endif
