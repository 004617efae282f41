/* What VDPBF16PS and the tile instructions of AMX compute, in portable C: the same bits. Denormal inputs
 * count as zero, denormal results become zero, sums are rounded to nearest even.
 * Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS and TDPBF16PS.
 */
#ifndef LLMC_COMPUTE_CPU_BF16_INSTRUCTIONS_H
#define LLMC_COMPUTE_CPU_BF16_INSTRUCTIONS_H

#include <math.h>

#include "lanes.h"
#include "llmc/model/dtype.h"

static inline float emulated_flush(float value)
{
    return fabsf(value) < 0x1p-126f ? copysignf(0.0f, value) : value;
}

static inline float emulated_fma(bf16 left, bf16 right, float sum)
{
    float a = emulated_flush(bf16_to_float(left)), b = emulated_flush(bf16_to_float(right));
    return emulated_flush(fmaf(a, b, emulated_flush(sum)));
}

static inline Lanes dot_pairs(Lanes left, Lanes right, Lanes sum)
{
    bf16 a[LANES][2], b[LANES][2];
    float sums[LANES];
    memcpy(a, &left, sizeof(a));
    memcpy(b, &right, sizeof(b));
    memcpy(sums, &sum, sizeof(sums));
    for (int i = 0; i < LANES; i++) {
        sums[i] = emulated_fma(a[i][1], b[i][1], sums[i]);
        sums[i] = emulated_fma(a[i][0], b[i][0], sums[i]);
    }
    memcpy(&sum, sums, sizeof(sums));
    return sum;
}

/* A tile register: 16 rows of 64 bytes. */
typedef struct EmulatedTile {
    union {
        float sums[16][16];
        bf16 pairs[16][16][2];
    };
} EmulatedTile;

static _Thread_local EmulatedTile emulated_tiles[8];
static _Thread_local int emulated_is_configured;

static inline void tiles_configure(const void *config)
{
    const uint8_t *bytes = config;
    emulated_is_configured = bytes[0] == 1;
    for (int i = 0; i < 8; i++) { /* no other shape is emulated */
        emulated_is_configured &= bytes[16 + 2 * i] == 64 && bytes[48 + i] == 16;
    }
}

static inline void tiles_release(void)
{
    emulated_is_configured = 0;
}

static inline void tiles_fence(void)
{
}

/* An instruction on a register that is not configured is an invalid opcode. */
static inline EmulatedTile *emulated_tile(int tile)
{
    if (!emulated_is_configured || tile < 0 || tile > 7) {
        __builtin_trap();
    }
    return &emulated_tiles[tile];
}

static inline void tile_zero(int tile)
{
    memset(emulated_tile(tile), 0, sizeof(EmulatedTile));
}

static inline void tile_load(int tile, const void *rows, int64_t stride_bytes)
{
    for (int i = 0; i < 16; i++) {
        memcpy(emulated_tile(tile)->sums[i], (const char *)rows + i * stride_bytes, 64);
    }
}

static inline void tile_store(int tile, void *rows, int64_t stride_bytes)
{
    for (int i = 0; i < 16; i++) {
        memcpy((char *)rows + i * stride_bytes, emulated_tile(tile)->sums[i], 64);
    }
}

/* For each sum one chain over the low halves and one over the high, then both are added to it. */
static inline void tile_dot_pairs(int sums, int a, int b)
{
    EmulatedTile *out = emulated_tile(sums);
    const EmulatedTile *left = emulated_tile(a), *right = emulated_tile(b);
    for (int m = 0; m < 16; m++) {
        for (int n = 0; n < 16; n++) {
            float low = 0, high = 0;
            for (int k = 0; k < 16; k++) {
                low = emulated_fma(left->pairs[m][k][0], right->pairs[k][n][0], low);
                high = emulated_fma(left->pairs[m][k][1], right->pairs[k][n][1], high);
            }
            float both = emulated_flush(low + high);
            out->sums[m][n] = emulated_flush(emulated_flush(out->sums[m][n]) + both);
        }
    }
}

#endif
