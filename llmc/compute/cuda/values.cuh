/* What all kernels share: rows of fp32 or bf16 read and written as fp32, and sums over a warp or a block in a
 * fixed order. Included by the CUDA operations only.
 */
#ifndef LLMC_COMPUTE_CUDA_VALUES_CUH
#define LLMC_COMPUTE_CUDA_VALUES_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#include "instructions.cuh"
#include "llmc/base/cuda/launch.cuh"
#include "llmc/model/dtype.h"

static const int WARP = 32;

/* An array on the device whose elements are fp32 or bf16. Borrowed, never owned. */
typedef struct Tensor {
    void *data;
    DType type;
} Tensor;

static inline Tensor tensor_at(Tensor tensor, int64_t offset)
{
    return Tensor{(char *)tensor.data + offset * dtype_bytes(tensor.type), tensor.type};
}

/* An operation's kernels are templates of the element type. Runs `statement` with T standing for a
 * tensor's. */
#define WITH_TYPE(type, statement)                                                                           \
    do {                                                                                                     \
        if ((type) == DTYPE_FP32) {                                                                          \
            typedef float T;                                                                                 \
            statement;                                                                                       \
        } else {                                                                                             \
            typedef __nv_bfloat16 T;                                                                         \
            statement;                                                                                       \
        }                                                                                                    \
    } while (0)

/* The same for operations on the residual stream, whose type R is fp32, or bf16 if T is too. */
#define WITH_STREAM_TYPE(type, stream_type, statement)                                                       \
    do {                                                                                                     \
        CHECK((type) == DTYPE_BF16 || (stream_type) == DTYPE_FP32, "a residual stream in bf16 under fp32");  \
        if ((stream_type) == DTYPE_FP32) {                                                                   \
            typedef float R;                                                                                 \
            WITH_TYPE(type, statement);                                                                      \
        } else {                                                                                             \
            typedef __nv_bfloat16 R;                                                                         \
            typedef __nv_bfloat16 T;                                                                         \
            statement;                                                                                       \
        }                                                                                                    \
    } while (0)

static inline int64_t div_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step;
}

/* ---- one element --------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float value_load(const float *in)
{
    return *in;
}

static __device__ __forceinline__ float value_load(const __nv_bfloat16 *in)
{
    return __bfloat162float(*in);
}

static __device__ __forceinline__ void value_store(float *out, float value)
{
    *out = value;
}

static __device__ __forceinline__ void value_store(__nv_bfloat16 *out, float value)
{
    *out = __float2bfloat16_rn(value);
}

/* A value as an array of T keeps it. */
template <typename T>
static __device__ __forceinline__ float value_kept(float value)
{
    T kept;
    value_store(&kept, value);
    return value_load(&kept);
}

/* ---- four neighbours, aligned to four elements --------------------------------------------------------- */

static __device__ __forceinline__ float4 value_load4(const float *in)
{
    return *(const float4 *)in;
}

static __device__ __forceinline__ float4 value_load4(const __nv_bfloat16 *in)
{
    uint2 bits = *(const uint2 *)in;
    return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                       __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

static __device__ __forceinline__ void value_store4(float *out, float4 value)
{
    *(float4 *)out = value;
}

static __device__ __forceinline__ void value_store4(__nv_bfloat16 *out, float4 value)
{
    /* One number: a vector of two nvcc may store by its elements. */
    *(uint64_t *)out = (uint64_t)pack_bf16(value.z, value.w) << 32 | pack_bf16(value.x, value.y);
}

/* W neighbours: four, aligned to four elements, or one. Kernels have both kinds, for rows of whole fours and
 * for others. */
template <int W, typename T>
static __device__ __forceinline__ void values_load(float (&out)[W], const T *in)
{
    if constexpr (W == 4) {
        float4 values = value_load4(in);
        out[0] = values.x;
        out[1] = values.y;
        out[2] = values.z;
        out[3] = values.w;
    } else {
        out[0] = value_load(in);
    }
}

template <int W, typename T>
static __device__ __forceinline__ void values_store(T *out, const float (&values)[W])
{
    if constexpr (W == 4) {
        value_store4(out, make_float4(values[0], values[1], values[2], values[3]));
    } else {
        value_store(out, values[0]);
    }
}

/* ---- reductions ---------------------------------------------------------------------------------------- */

template <typename T>
static __device__ __forceinline__ T warp_sum(T value)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}

static __device__ __forceinline__ float warp_max(float value)
{
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
    return value;
}

/* Sums over lanes that differ in bits 16 .. LAST only: in each step a lane passes on half of its values, and
 * adds what it gets to the others. The first COUNT * LAST / 32 are then sums of those from
 * lane / LAST * (COUNT * LAST / 32) on. */
template <int LAST, int DISTANCE = 16, int COUNT>
static __device__ __forceinline__ void scatter_sums(float (&values)[COUNT], int lane)
{
    constexpr int HALF = COUNT * DISTANCE / 32; /* of what a lane still has */
    static_assert(COUNT * LAST % 32 == 0, "each step has halves");
    bool is_upper = lane & DISTANCE;
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        float sent = is_upper ? values[k] : values[k + HALF];
        float kept = is_upper ? values[k + HALF] : values[k];
        values[k] = kept + __shfl_xor_sync(0xffffffffu, sent, DISTANCE);
    }
    if constexpr (DISTANCE > LAST) {
        scatter_sums<LAST, DISTANCE / 2>(values, lane);
    }
}

/* The sum over all threads of a block of whole warps, for every thread. `shared` holds one T a warp; a
 * barrier stands at both ends, so it may be used again at once. */
template <typename T>
static __device__ __forceinline__ T block_sum(T value, T *shared)
{
    int warps = (int)blockDim.x / WARP;
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0) {
        shared[threadIdx.x / WARP] = value;
    }
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < warps; i++) {
        sum += shared[i];
    }
    __syncthreads();
    return sum;
}

static __device__ __forceinline__ float block_max(float value, float *shared)
{
    int warps = (int)blockDim.x / WARP;
    value = warp_max(value);
    if (threadIdx.x % WARP == 0) {
        shared[threadIdx.x / WARP] = value;
    }
    __syncthreads();
    float maximum = shared[0];
    for (int i = 1; i < warps; i++) {
        maximum = fmaxf(maximum, shared[i]);
    }
    __syncthreads();
    return maximum;
}

#endif
