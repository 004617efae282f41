/* Number formats of weights and activations in memory. Files, master weights and moments are always fp32. */
#ifndef LLMC_MODEL_DTYPE_H
#define LLMC_MODEL_DTYPE_H

#include <stdint.h>
#include <string.h>

typedef enum DType { DTYPE_FP32, DTYPE_BF16 } DType;

typedef uint16_t bf16; /* the upper half of an fp32 */

static inline float bf16_to_float(bf16 value)
{
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

/* Round to nearest even; a NaN stays a NaN. */
static inline bf16 bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = (bits >> 16) | 0x40u;
    return (bf16)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline int dtype_bytes(DType type)
{
    return type == DTYPE_FP32 ? 4 : 2;
}

#endif
