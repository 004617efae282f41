/* numpy's default_rng(seed), as far as shuffling needs it: a data set that others have split with numpy is
 * split here into the same parts. Equal to numpy 1.17 and later, bit for bit (dev/test/test_numpy_random.c).
 * Source: PCG64 is pcg_xsl_rr_128_64, O'Neill, "PCG", HMC-CS-2014-0905; the seed goes through numpy's
 * SeedSequence, after O'Neill's randutils seed_seq.
 */
#ifndef LLMC_BASE_NUMPY_RANDOM_H
#define LLMC_BASE_NUMPY_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct NumpyRandom {
    uint64_t state[2]; /* high and low half */
    uint64_t increment[2];
    uint32_t kept; /* the upper half of a number whose lower half was given out */
    int has_kept;
} NumpyRandom;

/* numpy.random.default_rng(seed) */
void numpy_random_init(NumpyRandom *random, uint64_t seed);

/* The next 64 bits: bit_generator.random_raw(). */
uint64_t numpy_random_next(NumpyRandom *random);

/* order[0 .. count) = default_rng(seed).permutation(count): the numbers 0 .. count-1 in random order. */
void numpy_permutation(uint32_t *order, uint32_t count, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
