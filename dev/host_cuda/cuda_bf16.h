/* bfloat16 as CUDA has it: the upper half of an fp32, rounded to nearest even. */
#ifndef HOST_CUDA_BF16_H
#define HOST_CUDA_BF16_H

#include "device_functions.h"

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    inline __nv_bfloat16(float value);
    inline operator float() const;
};
typedef __nv_bfloat16 nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat162 nv_bfloat162;

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 value;
    value.bits = bits;
    return value;
}

static inline float __bfloat162float(__nv_bfloat16 value)
{
    return __uint_as_float((unsigned int)value.bits << 16);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    unsigned int bits = __float_as_uint(value);
    if (value != value) {
        return __ushort_as_bfloat16(0x7FFF);
    }
    return __ushort_as_bfloat16((unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16));
}

static inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __float2bfloat16_rn(value);
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162{__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

static inline float2 __bfloat1622float2(__nv_bfloat162 pair)
{
    return make_float2(__bfloat162float(pair.x), __bfloat162float(pair.y));
}

static inline float __low2float(__nv_bfloat162 pair)
{
    return __bfloat162float(pair.x);
}

static inline float __high2float(__nv_bfloat162 pair)
{
    return __bfloat162float(pair.y);
}

inline __nv_bfloat16::__nv_bfloat16(float value) : bits(__float2bfloat16_rn(value).bits)
{
}

inline __nv_bfloat16::operator float() const
{
    return __bfloat162float(*this);
}

#endif
