/* Loops that the compiler turns into vector code: rows in either number format, exp, and what GELU needs of
 * it. Included by the CPU operations only.
 */
#ifndef LLMC_COMPUTE_CPU_VECTOR_H
#define LLMC_COMPUTE_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "fma.h"
#include "llmc/model/dtype.h"

/* An array whose elements are fp32 or bf16. Borrowed, never owned. */
typedef struct Tensor {
    void *data;
    DType type;
} Tensor;

static inline Tensor tensor_at(Tensor tensor, int64_t offset)
{
    Tensor moved = {(char *)tensor.data + offset * dtype_bytes(tensor.type), tensor.type};
    return moved;
}

/* Elements [offset, offset + count) as fp32: the array itself, or a converted copy in scratch. */
static inline const float *tensor_row(Tensor tensor, int64_t offset, int64_t count, float *scratch)
{
    if (tensor.type == DTYPE_FP32) {
        return (const float *)tensor.data + offset;
    }
    const bf16 *low = (const bf16 *)tensor.data + offset;
    for (int64_t i = 0; i < count; i++) {
        scratch[i] = bf16_to_float(low[i]);
    }
    return scratch;
}

static inline void tensor_load(float *out, Tensor tensor, int64_t offset, int64_t count)
{
    const float *row = tensor_row(tensor, offset, count, out);
    if (row != out) {
        memcpy(out, row, (size_t)count * sizeof(float));
    }
}

static inline void tensor_store(Tensor tensor, int64_t offset, const float *values, int64_t count)
{
    if (tensor.type == DTYPE_FP32) {
        float *out = (float *)tensor.data + offset;
        if (out != values) {
            memcpy(out, values, (size_t)count * sizeof(float));
        }
        return;
    }
    bf16 *low = (bf16 *)tensor.data + offset;
    for (int64_t i = 0; i < count; i++) {
        low[i] = bf16_from_float(values[i]);
    }
}

/* e^x within 2 ulp; 0 below -87, so that a masked -INFINITY weighs nothing; infinite above 88; NaN of NaN.
 * x = n ln 2 + r, then a polynomial in r and n added to the exponent. */
static inline float exp_of(float x)
{
    const float round_to_integer = 12582912.0f; /* 1.5 * 2^23: adding it leaves n in the low bits */
    float clamped = x < -87.0f ? -87.0f : x;
    clamped = clamped > 88.0f ? 88.0f : clamped;
    float shifted = fma_of(clamped, 1.44269504f, round_to_integer);
    float n = shifted - round_to_integer;
    float r = fma_of(n, -0.693145752f, clamped);
    r = fma_of(n, -1.42860677e-6f, r);
    float series = 1.0f / 5040;
    series = fma_of(series, r, 1.0f / 720);
    series = fma_of(series, r, 1.0f / 120);
    series = fma_of(series, r, 1.0f / 24);
    series = fma_of(series, r, 1.0f / 6);
    series = fma_of(series, r, 0.5f);
    series = fma_of(series, r, 1.0f);
    series = fma_of(series, r, 1.0f);
    uint32_t bits, series_bits;
    memcpy(&bits, &shifted, sizeof(bits));
    memcpy(&series_bits, &series, sizeof(series_bits));
    series_bits += bits << 23;
    float result;
    memcpy(&result, &series_bits, sizeof(result));
    result = x < -87.0f ? 0.0f : result;
    result = x > 88.0f ? INFINITY : result;
    return x != x ? x : result;
}

#endif
