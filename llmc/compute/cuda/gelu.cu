#include "llmc/compute/cuda/gelu.cuh"

enum { THREADS = 256 };

/* With sums over rows a block takes four columns a thread and COLUMN_ROWS rows, of which it reads so many
 * before it writes one. */
enum { SUM_THREADS = 64, ROWS_AT_ONCE = 4 };

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

static __device__ __forceinline__ float4 gelu_gradient_of(float4 d, float4 x)
{
    return make_float4(d.x * gelu_slope_of(x.x), d.y * gelu_slope_of(x.y), d.z * gelu_slope_of(x.z),
                       d.w * gelu_slope_of(x.w));
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
        value_store4(d + i, gelu_gradient_of(value_load4(d + i), value_load4(inp + i)));
    }
}

template <typename T>
__global__ void __launch_bounds__(SUM_THREADS)
    gelu_backward_bias_kernel(float *partial, T *d, const T *inp, int64_t rows, int columns)
{
    int column = 4 * (int)(blockIdx.x * SUM_THREADS + threadIdx.x);
    if (column >= columns) {
        return;
    }
    int64_t first = (int64_t)blockIdx.y * COLUMN_ROWS;
    int64_t end = first + COLUMN_ROWS < rows ? first + COLUMN_ROWS : rows;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int64_t row = first; row < end; row += ROWS_AT_ONCE) {
        float4 x[ROWS_AT_ONCE], y[ROWS_AT_ONCE];
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; k++) {
            if (row + k < end) {
                int64_t at = (row + k) * columns + column;
                x[k] = value_load4(inp + at);
                y[k] = value_load4(d + at);
            }
        }
#pragma unroll
        for (int k = 0; k < ROWS_AT_ONCE; k++) {
            if (row + k < end) {
                float4 found = gelu_gradient_of(y[k], x[k]);
                value_store4(d + (row + k) * columns + column, found);
                sum = make_float4(sum.x + found.x, sum.y + found.y, sum.z + found.z, sum.w + found.w);
            }
        }
    }
    value_store4(partial + (int64_t)blockIdx.y * columns + column, sum);
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

void gelu_backward_bias(float *d_bias, Tensor d, Tensor inp, int64_t rows, int columns, int accumulates,
                        float *partial, cudaStream_t stream)
{
    CHECK(columns % 4 == 0, "GELU of rows of %d: expected whole fours, as rows of 4*C are", columns);
    int blocks = (int)div_up(rows, COLUMN_ROWS);
    dim3 grid((unsigned)div_up(columns, 4 * SUM_THREADS), (unsigned)blocks);
    WITH_TYPE(inp.type, launch(gelu_backward_bias_kernel<T>, grid, dim3(SUM_THREADS), 0, stream, partial,
                               (T *)d.data, (const T *)inp.data, rows, columns));
    ColumnParts parts = {partial, blocks, columns, columns, accumulates, {d_bias}};
    column_parts_sum(&parts, stream);
}
