#include "llmc/compute/cuda/adamw.cuh"

#include "llmc/compute/cuda/exact.cuh"

enum { THREADS = 256, SUM_THREADS = 1024, NORM_LOADS = 4 };

/* Both counts of one chunk's bad elements in one number. */
enum { NOT_FINITE_SHIFT = 32 };
static_assert(ARENA_CHUNK < 1ll << (63 - NOT_FINITE_SHIFT), "a chunk's counts fit");

/* An element as the optimizer sees it; *bad counts fp32 ones that are not finite or out of range (in exact
 * sums they were counted when they were folded), those that are not finite also in its upper half. */
static __device__ __forceinline__ float gradient_of(int64_t sum, const Gradients &, int64_t *)
{
    return exact_to_float(sum);
}

static __device__ __forceinline__ float gradient_of(float value, const Gradients &g, int64_t *bad)
{
    int is_good = fabsf(value) <= g.limit; /* false for a NaN */
    *bad += is_good ? 0 : 1 + ((int64_t)!isfinite(value) << NOT_FINITE_SHIFT);
    return g.is_rounded && is_good ? exact_to_float(exact_from_float(value)) : value;
}

static __device__ __forceinline__ float load_gradient(const Gradients &g, int64_t i, int64_t *bad)
{
    return g.sums ? gradient_of(g.sums[i], g, bad) : gradient_of(g.values[i], g, bad);
}

/* This thread's part of the sum of squares of `count` elements, in the order in which they lie; several loads
 * are under way before the first is used. */
template <typename T>
static __device__ __forceinline__ double sum_squares(const T *elements, int count, const Gradients &g,
                                                     int64_t *bad)
{
    double sum = 0;
    for (int first = (int)threadIdx.x; first < count; first += NORM_LOADS * THREADS) {
        T loaded[NORM_LOADS];
#pragma unroll
        for (int k = 0; k < NORM_LOADS; k++) {
            int i = first + k * THREADS;
            loaded[k] = i < count ? elements[i] : 0; /* adds nothing, and is not bad */
        }
#pragma unroll
        for (int k = 0; k < NORM_LOADS; k++) {
            double value = gradient_of(loaded[k], g, bad);
            sum += value * value;
        }
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS) norm_kernel(AdamwUpdate a)
{
    ArenaChunk chunk = a.chunks[blockIdx.x];
    const Gradients &g = a.gradients;
    int64_t bad = 0;
    double sum = g.sums ? sum_squares(g.sums + chunk.offset, chunk.count, g, &bad)
                        : sum_squares(g.values + chunk.offset, chunk.count, g, &bad);
    sum = block_sum(sum, (double *)dynamic_shared());
    bad = block_sum(bad, (int64_t *)dynamic_shared());
    if (threadIdx.x == 0) {
        a.norm_partial[blockIdx.x] = sum;
        a.bad_partial[blockIdx.x] = bad;
    }
}

__global__ void __launch_bounds__(SUM_THREADS) outcome_kernel(AdamwUpdate a)
{
    double sum = 0;
    int64_t bad = 0, not_finite = 0;
    for (int i = (int)threadIdx.x; i < a.chunk_count; i += SUM_THREADS) {
        sum += a.norm_partial[i];
        bad += a.bad_partial[i] & ((1ll << NOT_FINITE_SHIFT) - 1);
        not_finite += a.bad_partial[i] >> NOT_FINITE_SHIFT;
    }
    sum = block_sum(sum, (double *)dynamic_shared());
    bad = block_sum(bad, (int64_t *)dynamic_shared());
    not_finite = block_sum(not_finite, (int64_t *)dynamic_shared());
    if (threadIdx.x == 0) {
        a.outcome->norm = sqrt(sum);
        a.outcome->loss = a.tail[TAIL_LOSS];
        a.outcome->bad = bad + a.tail[TAIL_BAD];
        a.outcome->not_finite = not_finite + a.tail[TAIL_NOT_FINITE];
    }
}

__global__ void __launch_bounds__(THREADS) adamw_kernel(AdamwUpdate a)
{
    double norm = a.outcome->norm;
    if (a.outcome->bad > 0 || !isfinite(norm)) {
        return;
    }
    float clip = 1.0f;
    if (a.grad_clip > 0 && norm > a.grad_clip) {
        clip = (float)(a.grad_clip / (norm + 1e-6)); /* torch.nn.utils.clip_grad_norm_ */
    }
    ArenaChunk chunk = a.chunks[blockIdx.x];
    float keep = chunk.decays ? a.decay : 1.0f;
    int64_t bad = 0;
    for (int64_t i = chunk.offset + threadIdx.x; i < chunk.offset + chunk.count; i += THREADS) {
        float gradient = clip * load_gradient(a.gradients, i, &bad);
        float m = a.beta1 * a.moment1[i] + (1.0f - a.beta1) * gradient;
        float v = a.beta2 * a.moment2[i] + (1.0f - a.beta2) * gradient * gradient;
        a.moment1[i] = m;
        a.moment2[i] = v;
        float weight = a.weights[i] * keep - a.step * m / (sqrtf(v) * a.inverse_root + a.epsilon);
        a.weights[i] = weight;
        if (a.weights_low) {
            a.weights_low[i] = __float2bfloat16_rn(weight);
        }
    }
}

void adamw_update(const AdamwUpdate *args, cudaStream_t stream)
{
    dim3 grid((unsigned)args->chunk_count);
    launch(norm_kernel, grid, dim3(THREADS), THREADS / WARP * sizeof(double), stream, *args);
    launch(outcome_kernel, dim3(1), dim3(SUM_THREADS), SUM_THREADS / WARP * sizeof(double), stream, *args);
    launch(adamw_kernel, grid, dim3(THREADS), 0, stream, *args);
}

__global__ void __launch_bounds__(THREADS)
    gradients_kernel(float *out, Gradients gradients, int64_t offset, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t bad = 0;
    if (i < count) {
        out[i] = load_gradient(gradients, offset + i, &bad);
    }
}

void gradients_read(float *out, const Gradients *gradients, int64_t offset, int64_t count,
                    cudaStream_t stream)
{
    launch(gradients_kernel, dim3((unsigned)div_up(count, THREADS)), dim3(THREADS), 0, stream, out,
           *gradients, offset, count);
}
