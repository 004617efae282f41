#include "llmc/compute/cuda/classifier.cuh"

enum { THREADS = 512 };

/* Four logits from column i on, -infinity for padding. Vp is a multiple of four. */
template <typename T>
static __device__ __forceinline__ float4 load_logits(const T *row, int i, int V)
{
    float4 x = value_load4(row + i);
    if (i + 3 >= V) {
        x.x = i < V ? x.x : -INFINITY;
        x.y = i + 1 < V ? x.y : -INFINITY;
        x.z = i + 2 < V ? x.z : -INFINITY;
        x.w = -INFINITY;
    }
    return x;
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
    for (int i = 4 * (int)threadIdx.x; i < a.V; i += 4 * THREADS) {
        float4 x = load_logits(row, i, a.V);
        float higher = fmaxf(maximum, max4(x));
        if (higher > maximum) {
            sum *= expf(maximum - higher);
            maximum = higher;
        }
        sum += (expf(x.x - maximum) + expf(x.y - maximum)) + (expf(x.z - maximum) + expf(x.w - maximum));
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
    for (int i = 4 * (int)threadIdx.x; i < a.Vp; i += 4 * THREADS) {
        float4 x = load_logits(row, i, a.V);
        float4 d = make_float4(factor * expf(x.x - highest), factor * expf(x.y - highest),
                               factor * expf(x.z - highest), factor * expf(x.w - highest));
        d.x -= i == target ? a.scale : 0.0f;
        d.y -= i + 1 == target ? a.scale : 0.0f;
        d.z -= i + 2 == target ? a.scale : 0.0f;
        d.w -= i + 3 == target ? a.scale : 0.0f;
        value_store4(row + i, d);
    }
}

void classifier_rows(const Classifier *args, cudaStream_t stream)
{
    size_t bytes = THREADS / WARP * sizeof(float);
    WITH_TYPE(args->logits.type,
              launch(classifier_kernel<T>, dim3((unsigned)args->rows), dim3(THREADS), bytes, stream, *args));
}
