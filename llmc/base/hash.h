/* A 64-bit hash for comparing runs: data fingerprints, options, weights. Not for secrets.
 * Words are mixed by multiply and fold over four lanes, so that it runs near memory speed.
 */
#ifndef LLMC_BASE_HASH_H
#define LLMC_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Hash of `bytes` bytes, continuing from `seed` (0 to begin, or the hash of what came before). */
uint64_t hash_bytes(const void *data, size_t bytes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
