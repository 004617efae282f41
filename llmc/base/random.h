/* Counter-based random numbers: the same (seed, purpose, step, slot, element) gives the same number on any
 * rank, thread or device, and no generator has state to save.  Source: Philox4x32-10, Salmon et al., SC 2011.
 */
#ifndef LLMC_BASE_RANDOM_H
#define LLMC_BASE_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum RandomPurpose {
    RANDOM_INIT = 1,    /* slot: parameter tensor; element: index in it */
    RANDOM_DROPOUT = 2, /* slot: micro-batch; element: site and index */
    RANDOM_SAMPLE = 3,  /* step: sample; element: position */
    RANDOM_SHUFFLE = 4, /* step: epoch; element: Feistel round keys */
    RANDOM_TEST = 5
} RandomPurpose;

/* Where in the stream of one purpose a number stands. */
typedef struct RandomKey {
    uint64_t seed;
    RandomPurpose purpose;
    uint32_t step;
    uint32_t slot;
} RandomKey;

/* Four independent uniform 32-bit numbers for block `block` (elements 4*block .. 4*block+3). */
void random_block(uint32_t numbers[4], const RandomKey *key, uint64_t block);

/* Uniform in [0, 1), 24 bits. */
static inline float random_uniform_from(uint32_t number)
{
    return (float)(number >> 8) * 0x1p-24f;
}

/* Fill out[0 .. count) with normal numbers of mean 0 and this standard deviation: element i of the stream
 * depends on the key and first + i alone. Box-Muller in fp32 with fixed polynomials, so every machine draws
 * the same bits. */
void random_normal(float *out, int64_t count, float standard_deviation, const RandomKey *key, uint64_t first);

#ifdef __cplusplus
}
#endif
#endif
