#include "llmc/compute/cuda/classifier.cuh"

/* A row is cut into chunks of 16 bytes, of which thread i has every THREADS-th from the i-th on. The columns
 * behind the vocabulary's last whole chunk are peeled off: a thread has one, most have none. */
enum { THREADS = 512, WARPS = THREADS / WARP, LOADS = 2 };

/* 2^(x*LOG2_E - offset) is exp(x - highest), by one fma and one instruction. Offset is highest*LOG2_E,
 * rounded: a factor that all columns share with their sum, and that the loss takes out again. */
static const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

/* Below every logit; and finite, so that no difference of two is undefined. */
static const float LOWEST = -1e30f;

/* The highest logit so far, and the sum of exp of all relative to it. */
struct Softmax {
    float highest, offset, sum;
};

static __device__ __forceinline__ float exp_of(float x, float offset)
{
    return exp2_fast(__fmaf_rn(x, LOG2_E, -offset));
}

static __device__ __forceinline__ void softmax_raise(Softmax &s, float x)
{
    if (x > s.highest) {
        float offset = x * LOG2_E;
        s.sum *= exp2_fast(s.offset - offset);
        s.highest = x;
        s.offset = offset;
    }
}

template <int W>
static __device__ __forceinline__ void softmax_add(Softmax &s, const float (&x)[W])
{
    float highest = x[0], sum = 0;
#pragma unroll
    for (int k = 1; k < W; k++) {
        highest = fmaxf(highest, x[k]);
    }
    softmax_raise(s, highest);
#pragma unroll
    for (int k = 0; k < W; k += 2) {
        sum += exp_of(x[k], s.offset) + exp_of(x[k + 1], s.offset);
    }
    s.sum += sum;
}

/* What all threads found, for each of them. */
static __device__ __forceinline__ Softmax softmax_join(const Softmax &own, float *shared)
{
    Softmax all;
    all.highest = block_max(own.highest, shared);
    all.offset = all.highest * LOG2_E;
    all.sum = block_sum(own.sum * exp2_fast(own.offset - all.offset), shared);
    return all;
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void unpack(float (&x)[4], uint4 chunk)
{
    x[0] = __uint_as_float(chunk.x);
    x[1] = __uint_as_float(chunk.y);
    x[2] = __uint_as_float(chunk.z);
    x[3] = __uint_as_float(chunk.w);
}

static __device__ __forceinline__ void unpack(float (&x)[8], uint4 chunk)
{
    const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        x[2 * k] = __uint_as_float(pairs[k] << 16);
        x[2 * k + 1] = __uint_as_float(pairs[k] & 0xffff0000u);
    }
}

static __device__ __forceinline__ uint4 pack(const float (&x)[4])
{
    return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                      __float_as_uint(x[3]));
}

static __device__ __forceinline__ uint4 pack(const float (&x)[8])
{
    return make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                      pack_bf16(x[6], x[7]));
}

/* ---- a row --------------------------------------------------------------------------------------------- */

/* This thread's part of the `chunks` at `from`, LOADS of which are read before the first is used. */
template <int W>
static __device__ __forceinline__ Softmax sum_chunks(const uint4 *from, int chunks)
{
    Softmax s = {LOWEST, LOWEST, 0};
    for (int i = (int)threadIdx.x; i < chunks; i += LOADS * THREADS) {
        uint4 loaded[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            loaded[k] = from[i + k * THREADS < chunks ? i + k * THREADS : i];
        }
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            float x[W];
            unpack(x, loaded[k]);
            if (i + k * THREADS < chunks) {
                softmax_add(s, x);
            }
        }
    }
    return s;
}

/* to = factor * exp of from, which may be the same. */
template <int W>
static __device__ __forceinline__ void scale_chunks(uint4 *to, const uint4 *from, int chunks, float factor,
                                                    float offset)
{
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < chunks; i += THREADS) {
        float x[W];
        unpack(x, from[i]);
#pragma unroll
        for (int k = 0; k < W; k++) {
            x[k] = factor * exp_of(x[k], offset);
        }
        to[i] = pack(x);
    }
}

/* One block a row. If the row waits in shared memory, it is read once; each thread reads there what it copied
 * itself, so that no barrier is needed. Otherwise it is read twice. */
template <typename T, bool IS_SHARED>
__global__ void __launch_bounds__(THREADS, 2) classifier_kernel(Classifier a)
{
    constexpr int W = 16 / (int)sizeof(T);
    float *sums = (float *)dynamic_shared();
    T *row = (T *)a.logits.data + (int64_t)blockIdx.x * a.Vp;
    uint4 *to = (uint4 *)row, *copy = (uint4 *)(sums + WARPS);
    const uint4 *from = IS_SHARED ? copy : to;
    int chunks = a.V / W, target = a.targets[blockIdx.x], last = chunks * W + (int)threadIdx.x;
    if (IS_SHARED) {
        for (int i = (int)threadIdx.x; i < chunks; i += THREADS) {
            copy_async_16(copy + i, to + i, true);
        }
        copy_async_commit();
    }
    float target_logit = value_load(row + target), last_logit = last < a.V ? value_load(row + last) : LOWEST;
    copy_async_wait<0>();
    Softmax own = sum_chunks<W>(from, chunks);
    if (last < a.V) {
        softmax_raise(own, last_logit);
        own.sum += exp_of(last_logit, own.offset);
    }
    Softmax all = softmax_join(own, sums);
    if (threadIdx.x == 0) {
        float rounding = __fmaf_rn(all.highest, LOG2_E, -all.offset);
        a.losses[blockIdx.x] = logf(all.sum) - LN_2 * rounding + (all.highest - target_logit);
    }
    if (!a.has_gradient) {
        return;
    }
    float factor = a.scale / all.sum;
    scale_chunks<W>(to, from, chunks, factor, all.offset);
    for (int column = last; column < a.Vp; column += THREADS) {
        value_store(row + column, column < a.V ? factor * exp_of(last_logit, all.offset) : 0.0f);
    }
    /* By the thread that wrote there before. */
    if (target < chunks * W ? target / W % THREADS == (int)threadIdx.x : target == last) {
        value_store(row + target, factor * exp_of(target_logit, all.offset) - a.scale);
    }
}

void classifier_prepare(int64_t shared_bytes_max)
{
    allow_shared_bytes(classifier_kernel<float, true>, (size_t)shared_bytes_max);
    allow_shared_bytes(classifier_kernel<__nv_bfloat16, true>, (size_t)shared_bytes_max);
}

void classifier_rows(const Classifier *args, cudaStream_t stream)
{
    int64_t row_bytes = args->V * dtype_bytes(args->logits.type) / 16 * 16;
    int64_t bytes = WARPS * (int64_t)sizeof(float);
    bool is_shared = bytes + row_bytes <= args->shared_bytes_max;
    bytes += is_shared ? row_bytes : 0;
    WITH_TYPE(args->logits.type,
              launch(is_shared ? classifier_kernel<T, true> : classifier_kernel<T, false>,
                     dim3((unsigned)args->rows), dim3(THREADS), (size_t)bytes, stream, *args));
}
