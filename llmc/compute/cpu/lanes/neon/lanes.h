/* A register of fp32 values and its fused multiply-add: NEON of 64-bit Arm. See lanes/soft/lanes.h for the
 * contract. */
#ifndef LLMC_COMPUTE_CPU_LANES_H
#define LLMC_COMPUTE_CPU_LANES_H

#include <arm_neon.h>
#include <stdint.h>

enum { LANES = 4, LANE_REGISTERS = 32 };

typedef float Lanes __attribute__((vector_size(16), aligned(4)));
typedef uint32_t LaneBits __attribute__((vector_size(16), aligned(4)));

static inline Lanes lanes_fma(Lanes a, Lanes b, Lanes c)
{
    return (Lanes)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

static inline Lanes lanes_of(float value)
{
    return (Lanes)vdupq_n_f32(value);
}

/* Exchange rows and columns of LANES x LANES values. */
static inline void lanes_transpose(Lanes rows[LANES])
{
    float32x4x2_t low = vzipq_f32((float32x4_t)rows[0], (float32x4_t)rows[2]);
    float32x4x2_t high = vzipq_f32((float32x4_t)rows[1], (float32x4_t)rows[3]);
    for (int i = 0; i < 2; i++) {
        float32x4x2_t pair = vzipq_f32(low.val[i], high.val[i]);
        rows[2 * i] = (Lanes)pair.val[0];
        rows[2 * i + 1] = (Lanes)pair.val[1];
    }
}

static inline LaneBits lanes_load_halves(const uint16_t *in)
{
    return (LaneBits)vmovl_u16(vld1_u16(in));
}

#endif
