#include "llmc/compute/cuda/classifier.cuh"

enum { THREADS = 512, LOADS = 4, STEP = 4 * THREADS };

/* Four logits from each of columns i, i + STEP, ..., -infinity from column V on. All loads are under way
 * before the first is used. Vp is a multiple of four. */
template <typename T>
static __device__ __forceinline__ void load_logits(float4 (&x)[LOADS], const T *row, int i, int V, int Vp)
{
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
        int column = i + k * STEP;
        x[k] = value_load4(row + (column < Vp ? column : i));
    }
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
        int rest = V - i - k * STEP; /* how many columns there are from here on */
        x[k].x = rest > 0 ? x[k].x : -INFINITY;
        x[k].y = rest > 1 ? x[k].y : -INFINITY;
        x[k].z = rest > 2 ? x[k].z : -INFINITY;
        x[k].w = rest > 3 ? x[k].w : -INFINITY;
    }
}

static __device__ __forceinline__ float max4(float4 x)
{
    return fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
}

/* One block a row. Each thread carries a maximum and the sum of exp below it through one visit of the row. */
template <typename T>
__global__ void __launch_bounds__(THREADS) classifier_kernel(Classifier a)
{
    float *shared = (float *)dynamic_shared();
    T *row = (T *)a.logits.data + (int64_t)blockIdx.x * a.Vp;
    int target = a.targets[blockIdx.x];
    float target_logit = value_load(row + target);
    float maximum = -INFINITY, sum = 0;
    for (int i = 4 * (int)threadIdx.x; i < a.V; i += LOADS * STEP) {
        float4 x[LOADS];
        load_logits(x, row, i, a.V, a.Vp);
        float higher = fmaxf(fmaxf(max4(x[0]), max4(x[1])), fmaxf(max4(x[2]), max4(x[3])));
        if (higher > maximum) {
            sum *= expf(maximum - higher);
            maximum = higher;
        }
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            sum += (expf(x[k].x - maximum) + expf(x[k].y - maximum)) +
                   (expf(x[k].z - maximum) + expf(x[k].w - maximum));
        }
    }
    float highest = block_max(maximum, shared);
    sum = block_sum(maximum == -INFINITY ? 0.0f : sum * expf(maximum - highest), shared);
    if (threadIdx.x == 0) {
        a.losses[blockIdx.x] = logf(sum) + (highest - target_logit);
    }
    if (!a.has_gradient) {
        return;
    }
    float factor = a.scale / sum;
    for (int i = 4 * (int)threadIdx.x; i < a.Vp; i += LOADS * STEP) {
        float4 x[LOADS];
        load_logits(x, row, i, a.V, a.Vp);
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            int column = i + k * STEP;
            float4 d = make_float4(factor * expf(x[k].x - highest), factor * expf(x[k].y - highest),
                                   factor * expf(x[k].z - highest), factor * expf(x[k].w - highest));
            d.x -= column == target ? a.scale : 0.0f;
            d.y -= column + 1 == target ? a.scale : 0.0f;
            d.z -= column + 2 == target ? a.scale : 0.0f;
            d.w -= column + 3 == target ? a.scale : 0.0f;
            if (column < a.Vp) {
                value_store4(row + column, d);
            }
        }
    }
}

void classifier_rows(const Classifier *args, cudaStream_t stream)
{
    size_t bytes = THREADS / WARP * sizeof(float);
    WITH_TYPE(args->logits.type,
              launch(classifier_kernel<T>, dim3((unsigned)args->rows), dim3(THREADS), bytes, stream, *args));
}
