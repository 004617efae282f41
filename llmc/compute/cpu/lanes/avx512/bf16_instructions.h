/* The instructions for products of bf16 values: AVX512_BF16 and AMX. dev/emulated_cpu has a header of the
 * same name that computes what they do, for tests on machines without them.
 */
#ifndef LLMC_COMPUTE_CPU_BF16_INSTRUCTIONS_H
#define LLMC_COMPUTE_CPU_BF16_INSTRUCTIONS_H

#include <immintrin.h>

#include "lanes.h"

/* sum + left * right for pairs of bf16: first the products of the high halves, then those of the low. */
static inline Lanes dot_pairs(Lanes left, Lanes right, Lanes sum)
{
    return (Lanes)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)right);
}

/* A thread's eight tile registers, each of 16 rows of 64 bytes once they are configured. Their numbers are
 * literals. */
#define tiles_configure(config) _tile_loadconfig(config)
#define tiles_release() _tile_release()
/* gcc 12 does not know that tile_load and tile_store touch memory: no access may be moved over this. */
#define tiles_fence() __asm__ volatile("" ::: "memory")
#define tile_zero(tile) _tile_zero(tile)
#define tile_load(tile, rows, stride_bytes) _tile_loadd(tile, rows, stride_bytes)
#define tile_store(tile, rows, stride_bytes) _tile_stored(tile, rows, stride_bytes)
/* sums (16,16) fp32 += a (16 rows of 16 pairs) b (16 pairs of 16 columns) */
#define tile_dot_pairs(sums, a, b) _tile_dpbf16ps(sums, a, b)

#endif
