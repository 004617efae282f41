/* GELU in its tanh form, as GPT-2 has it: x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), which is x
 * sigmoid(2u). Source: arXiv:1606.08415
 */
#ifndef LLMC_COMPUTE_CPU_GELU_H
#define LLMC_COMPUTE_CPU_GELU_H

#include "llmc/compute/cpu/vector.h"

static inline float gelu_sigmoid(float x)
{
    float twice_u = 1.5957691216f * (x + 0.044715f * x * x * x);
    return 1.0f / (1.0f + exp_of(-twice_u));
}

static inline float gelu_of(float x)
{
    return x * gelu_sigmoid(x);
}

static inline float gelu_slope_of(float x)
{
    float s = gelu_sigmoid(x);
    return s + x * s * (1.0f - s) * 1.5957691216f * (1.0f + 0.134145f * x * x);
}

#endif
