#include "llmc/snapshot/transpose.h"

#include <string.h>

enum { SIDE = 16 /* floats of a line of cache */, LANES = 4 };

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));

static inline Lanes load_lanes(const float *from)
{
    Lanes lanes;
    memcpy(&lanes, from, sizeof(lanes));
    return lanes;
}

static inline void store_lanes(float *to, Lanes lanes)
{
    memcpy(to, &lanes, sizeof(lanes));
}

/* 4 x 4 values by shuffles: first pairs of rows are interleaved, then pairs of those. */
static inline void transpose_lanes(float *out, int64_t out_stride, const float *in, int64_t in_stride)
{
    Lanes a = load_lanes(in), b = load_lanes(in + in_stride);
    Lanes c = load_lanes(in + 2 * in_stride), d = load_lanes(in + 3 * in_stride);
    Lanes ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    Lanes ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    Lanes cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    Lanes cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_lanes(out, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store_lanes(out + out_stride, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store_lanes(out + 2 * out_stride, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store_lanes(out + 3 * out_stride, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

/* A square whose rows are lines of the cache: four lines are written at a time, and left when they are full.
 * The places of lines may be a multiple of a page apart, and the cache holds few of those together. */
static void transpose_square(float *out, int64_t out_stride, const float *in, int64_t in_stride)
{
    for (int c = 0; c < SIDE; c += LANES) {
        for (int r = 0; r < SIDE; r += LANES) {
            transpose_lanes(out + c * out_stride + r, out_stride, in + r * in_stride + c, in_stride);
        }
    }
}

void transpose_floats(float *out, int64_t out_stride, const float *in, int64_t in_stride, int64_t rows,
                      int64_t columns)
{
    for (int64_t r = 0; r < rows; r += SIDE) {
        for (int64_t c = 0; c < columns; c += SIDE) {
            float *to = out + c * out_stride + r;
            const float *from = in + r * in_stride + c;
            if (rows - r >= SIDE && columns - c >= SIDE) {
                transpose_square(to, out_stride, from, in_stride);
                continue;
            }
            for (int64_t i = 0; i < SIDE && i < rows - r; i++) {
                for (int64_t k = 0; k < SIDE && k < columns - c; k++) {
                    to[k * out_stride + i] = from[i * in_stride + k];
                }
            }
        }
    }
}
