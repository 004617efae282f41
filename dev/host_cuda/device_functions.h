/* What a kernel may call, on the CPU. Threads of a block are fibers: the meeting points here are where one
 * stops and another goes on. */
#ifndef HOST_CUDA_DEVICE_FUNCTIONS_H
#define HOST_CUDA_DEVICE_FUNCTIONS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* Where the running fiber is. */
extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;
extern __thread unsigned int host_cuda_thread; /* its number in its block */
static const int warpSize = 32;

/* ---- meeting points (fibers.cpp) ---------------------------------------------------------------------- */

/* Wait for all threads of the block; returns in how many `predicate` held. */
int host_cuda_barrier(bool predicate);

void host_cuda_warp_sync(unsigned int mask);
unsigned int host_cuda_ballot(unsigned int mask, bool predicate);

/* *value = the value of `source`, a lane named by mask. */
void host_cuda_shuffle(unsigned int mask, void *value, size_t bytes, unsigned int source);

#define __syncthreads() ((void)host_cuda_barrier(false))
#define __syncthreads_count(predicate) host_cuda_barrier((predicate) != 0)
#define __syncthreads_or(predicate) ((int)(host_cuda_barrier((predicate) != 0) != 0))
#define __syncthreads_and(predicate) ((int)(host_cuda_barrier((predicate) == 0) == 0))
#define __ballot_sync(mask, predicate) host_cuda_ballot(mask, (predicate) != 0)
#define __any_sync(mask, predicate) ((int)(host_cuda_ballot(mask, (predicate) != 0) != 0))
#define __all_sync(mask, predicate) ((int)(host_cuda_ballot(mask, (predicate) == 0) == 0))

static inline void __syncwarp(unsigned int mask = 0xFFFFFFFFu)
{
    host_cuda_warp_sync(mask);
}

template <typename T>
static inline T __shfl_sync(unsigned int mask, T value, int source, int width = 32)
{
    unsigned int lane = host_cuda_thread % 32;
    host_cuda_shuffle(mask, &value, sizeof value, (lane & -width) | (source & (width - 1)));
    return value;
}

template <typename T>
static inline T __shfl_xor_sync(unsigned int mask, T value, int lanes, int width = 32)
{
    unsigned int lane = host_cuda_thread % 32;
    unsigned int source = lane ^ lanes;
    host_cuda_shuffle(mask, &value, sizeof value, source < (lane & -width) + width ? source : lane);
    return value;
}

template <typename T>
static inline T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32)
{
    unsigned int lane = host_cuda_thread % 32;
    bool is_inside = (lane & (width - 1)) + delta < (unsigned int)width;
    host_cuda_shuffle(mask, &value, sizeof value, is_inside ? lane + delta : lane);
    return value;
}

template <typename T>
static inline T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32)
{
    unsigned int lane = host_cuda_thread % 32;
    host_cuda_shuffle(mask, &value, sizeof value, (lane & (width - 1)) >= delta ? lane - delta : lane);
    return value;
}

/* ---- atomic operations (check.cpp) -------------------------------------------------------------------- */

/* The address and races are checked, then the value before is returned. */
int atomicAdd(int *address, int value);
unsigned int atomicAdd(unsigned int *address, unsigned int value);
unsigned long long atomicAdd(unsigned long long *address, unsigned long long value);
#define __threadfence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* ---- loads, stores, bits ------------------------------------------------------------------------------ */

#define __ldg(address) (*(address))
#define __ldcg(address) (*(address))
#define __ldcs(address) (*(address))
#define __stcg(address, value) ((void)(*(address) = (value)))
#define __stcs(address, value) ((void)(*(address) = (value)))

template <typename To, typename From>
static inline To host_cuda_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define __float_as_uint(x) host_cuda_bits<unsigned int, float>(x)
#define __float_as_int(x) host_cuda_bits<int, float>(x)
#define __uint_as_float(x) host_cuda_bits<float, unsigned int>(x)
#define __int_as_float(x) host_cuda_bits<float, int>(x)
#define __double_as_longlong(x) host_cuda_bits<long long, double>(x)
#define __longlong_as_double(x) host_cuda_bits<double, long long>(x)
#define __popc(x) __builtin_popcount((unsigned int)(x))
#define __popcll(x) __builtin_popcountll((unsigned long long)(x))
#define __ffs(x) __builtin_ffs((int)(x))
#define __clz(x) ((x) ? __builtin_clz((unsigned int)(x)) : 32)
#define __umulhi(a, b) ((unsigned int)(((uint64_t)(unsigned int)(a) * (unsigned int)(b)) >> 32))

/* ---- arithmetic --------------------------------------------------------------------------------------- */

#define __fmaf_rn(a, b, c) fmaf(a, b, c)
#define __fadd_rn(a, b) ((float)(a) + (float)(b))
#define __fmul_rn(a, b) ((float)(a) * (float)(b))
#define __fdividef(a, b) ((float)(a) / (float)(b))
#define __frcp_rn(a) (1.0f / (float)(a))
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __exp2f(x) exp2f(x)
#define __log2f(x) log2f(x)
#define __float2int_rn(x) ((int)lrintf(x))
#define __float2ll_rn(x) llrintf(x)
#define __double2ll_rn(x) llrint(x)
#define __ll2float_rn(x) ((float)(long long)(x))
#define __ll2double_rn(x) ((double)(long long)(x))
#define rsqrtf(x) (1.0f / sqrtf(x))

#define HOST_CUDA_MIN_MAX(type, smaller, larger)                                                             \
    static inline type min(type a, type b)                                                                   \
    {                                                                                                        \
        return smaller;                                                                                      \
    }                                                                                                        \
    static inline type max(type a, type b)                                                                   \
    {                                                                                                        \
        return larger;                                                                                       \
    }
HOST_CUDA_MIN_MAX(int, b < a ? b : a, a < b ? b : a)
HOST_CUDA_MIN_MAX(unsigned int, b < a ? b : a, a < b ? b : a)
HOST_CUDA_MIN_MAX(long, b < a ? b : a, a < b ? b : a)
HOST_CUDA_MIN_MAX(unsigned long, b < a ? b : a, a < b ? b : a)
HOST_CUDA_MIN_MAX(long long, b < a ? b : a, a < b ? b : a)
HOST_CUDA_MIN_MAX(unsigned long long, b < a ? b : a, a < b ? b : a)
HOST_CUDA_MIN_MAX(float, fminf(a, b), fmaxf(a, b))
HOST_CUDA_MIN_MAX(double, fmin(a, b), fmax(a, b))

#endif
