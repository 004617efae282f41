/* AVX-512's registers in portable C, so that kernels written for them can be tested on any machine. */
#ifndef LLMC_COMPUTE_CPU_LANES_H
#define LLMC_COMPUTE_CPU_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16, LANE_REGISTERS = 32 };

typedef float Lanes __attribute__((vector_size(64), aligned(4)));
typedef uint32_t LaneBits __attribute__((vector_size(64), aligned(4)));

static inline Lanes lanes_fma(Lanes a, Lanes b, Lanes c)
{
    for (int i = 0; i < LANES; i++) {
        c[i] = fmaf(a[i], b[i], c[i]);
    }
    return c;
}

static inline Lanes lanes_of(float value)
{
    Lanes lanes;
    for (int i = 0; i < LANES; i++) {
        memcpy((char *)&lanes + i * (int)sizeof(value), &value, sizeof(value));
    }
    return lanes;
}

static inline void lanes_transpose(Lanes rows[LANES])
{
    uint32_t in[LANES][LANES], out[LANES][LANES];
    memcpy(in, rows, sizeof(in));
    for (int i = 0; i < LANES; i++) {
        for (int j = 0; j < LANES; j++) {
            out[i][j] = in[j][i];
        }
    }
    memcpy(rows, out, sizeof(out));
}

static inline LaneBits lanes_load_halves(const uint16_t *in)
{
    LaneBits bits;
    for (int i = 0; i < LANES; i++) {
        bits[i] = in[i];
    }
    return bits;
}

#endif
