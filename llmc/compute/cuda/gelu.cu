#include "llmc/compute/cuda/gelu.cuh"

enum { THREADS = 256 };

/* x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
static __device__ __forceinline__ float sigmoid_of_twice_u(float x)
{
    return 1.0f / (1.0f + expf(-1.5957691216f * (x + 0.044715f * x * x * x)));
}

static __device__ __forceinline__ float gelu_of(float x)
{
    return x * sigmoid_of_twice_u(x);
}

static __device__ __forceinline__ float gelu_slope_of(float x)
{
    float s = sigmoid_of_twice_u(x);
    return s + x * s * (1.0f - s) * 1.5957691216f * (1.0f + 0.134145f * x * x);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) gelu_forward_kernel(T *out, const T *inp, int64_t count)
{
    int64_t i = 4 * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (i < count) {
        float4 x = value_load4(inp + i);
        value_store4(out + i, make_float4(gelu_of(x.x), gelu_of(x.y), gelu_of(x.z), gelu_of(x.w)));
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) gelu_backward_kernel(T *d, const T *inp, int64_t count)
{
    int64_t i = 4 * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (i < count) {
        float4 x = value_load4(inp + i), y = value_load4(d + i);
        value_store4(d + i, make_float4(y.x * gelu_slope_of(x.x), y.y * gelu_slope_of(x.y),
                                        y.z * gelu_slope_of(x.z), y.w * gelu_slope_of(x.w)));
    }
}

static dim3 grid_of(int64_t count)
{
    CHECK(count % 4 == 0, "GELU of %lld elements: expected whole fours, as rows of 4*C are",
          (long long)count);
    return dim3((unsigned)div_up(count, 4 * THREADS));
}

void gelu_forward(Tensor out, Tensor inp, int64_t count, cudaStream_t stream)
{
    dim3 grid = grid_of(count);
    WITH_TYPE(inp.type, launch(gelu_forward_kernel<T>, grid, dim3(THREADS), 0, stream, (T *)out.data,
                               (const T *)inp.data, count));
}

void gelu_backward(Tensor d, Tensor inp, int64_t count, cudaStream_t stream)
{
    dim3 grid = grid_of(count);
    WITH_TYPE(inp.type, launch(gelu_backward_kernel<T>, grid, dim3(THREADS), 0, stream, (T *)d.data,
                               (const T *)inp.data, count));
}
