#include "llmc/compute/cuda/layernorm.cuh"

#include "llmc/compute/cuda/columns.cuh"
#include "llmc/compute/cuda/dropout.cuh"

/* One warp a row. Its values wait in shared memory between the sums and the output: a block has as many warps
 * as there is room for. */
enum { FORWARD_THREADS = 256, FORWARD_BYTES_MAX = 48 << 10 };

static int warps_of(int threads, int warp_bytes, int bytes_max)
{
    int warps = bytes_max / warp_bytes;
    return warps < 1 ? 1 : warps < threads / WARP ? warps : threads / WARP;
}

/* Read the row, add the branch, keep it in shared memory: returns this lane's part of the sum. */
template <typename T, int W>
static __device__ float enter_row(float *row, const LayernormForward &a, int64_t offset, int lane)
{
    float sum = 0;
    for (int i = W * lane; i < a.C; i += W * WARP) {
        float x[W];
        values_load(x, a.residual + offset + i);
        if (a.branch.data) {
            float branch[W];
            values_load(branch, (const T *)a.branch.data + offset + i);
            drop(branch, a.dropout, offset + i);
            for (int k = 0; k < W; k++) {
                x[k] += branch[k];
            }
            values_store(a.stream + offset + i, x);
        }
        values_store(row + i, x);
        for (int k = 0; k < W; k++) {
            sum += x[k];
        }
    }
    return sum;
}

template <typename T, int W>
__global__ void __launch_bounds__(FORWARD_THREADS) layernorm_forward_kernel(LayernormForward a)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t index = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp;
    if (index >= a.rows) {
        return;
    }
    int64_t offset = index * a.C;
    float *row = (float *)dynamic_shared() + warp * a.C;
    float mean = warp_sum(enter_row<T, W>(row, a, offset, lane)) / (float)a.C;
    float squares = 0;
    for (int i = W * lane; i < a.C; i += W * WARP) {
        float x[W];
        values_load(x, row + i);
        for (int k = 0; k < W; k++) {
            float shifted = x[k] - mean;
            squares += shifted * shifted;
        }
    }
    float rstd = rsqrtf(warp_sum(squares) / (float)a.C + 1e-5f);
    if (lane == 0) {
        a.mean[index] = mean;
        a.rstd[index] = rstd;
    }
    for (int i = W * lane; i < a.C; i += W * WARP) {
        float x[W], weight[W], bias[W];
        values_load(x, row + i);
        values_load(weight, a.weight + i);
        values_load(bias, a.bias + i);
        for (int k = 0; k < W; k++) {
            x[k] = (x[k] - mean) * rstd * weight[k] + bias[k];
        }
        values_store((T *)a.out.data + offset + i, x);
    }
}

void layernorm_forward(const LayernormForward *args, cudaStream_t stream)
{
    int warps = warps_of(FORWARD_THREADS, args->C * (int)sizeof(float), FORWARD_BYTES_MAX);
    dim3 grid((unsigned)div_up(args->rows, warps));
    size_t bytes = (size_t)warps * (size_t)args->C * sizeof(float);
    WITH_TYPE(args->out.type,
              launch(args->C % 4 ? layernorm_forward_kernel<T, 1> : layernorm_forward_kernel<T, 4>, grid,
                     dim3(warps * WARP), bytes, stream, *args));
}

/* ---- backward -------------------------------------------------------------------------------------------
 * Each block takes neighbouring rows, one warp a row at a time, and adds up its part of d_weight and d_bias;
 * columns.cu adds up the blocks' parts. Each warp has sums of its own in shared memory, which is what limits
 * how many work at once. A block takes little enough of it that four fit a multiprocessor of an H100 (228 KB)
 * and three one of an A100 (164 KB), each with 1 KB for the system. */
enum { BACKWARD_THREADS = 256, BACKWARD_BYTES_MAX = 53 << 10, ROWS_A_WARP = 8, PARTS_MAX = 512 };

static int backward_warps(int C)
{
    return warps_of(BACKWARD_THREADS, 2 * C * (int)sizeof(float), BACKWARD_BYTES_MAX);
}

/* Few rows a block keep all multiprocessors at work, but each block leaves a part to be added up by few
 * threads. */
static int rows_a_block(int64_t rows, int C)
{
    int64_t fewest = div_up(rows, PARTS_MAX), wanted = ROWS_A_WARP * backward_warps(C);
    return (int)(fewest > wanted ? fewest : wanted);
}

int64_t layernorm_partial_count(int64_t rows, int C)
{
    return div_up(rows, rows_a_block(rows, C)) * 2 * C;
}

/* What a lane knows of its row. */
typedef struct Row {
    int64_t offset;
    float mean, rstd;
} Row;

/* This lane's part of the two sums over the row; d_weight and d_bias += the row's part. */
template <typename T, int W>
static __device__ __forceinline__ void sum_row(float *sum_d, float *sum_dx, float *d_weight, float *d_bias,
                                               const LayernormBackward &a, const Row &row, int lane)
{
    *sum_d = *sum_dx = 0;
#pragma unroll 2
    for (int i = W * lane; i < a.C; i += W * WARP) {
        float x[W], d_out[W], weight[W], weight_sum[W], bias_sum[W];
        values_load(x, a.inp + row.offset + i);
        values_load(d_out, (const T *)a.d_out.data + row.offset + i);
        values_load(weight, a.weight + i);
        values_load(weight_sum, d_weight + i);
        values_load(bias_sum, d_bias + i);
        for (int k = 0; k < W; k++) {
            float normal = (x[k] - row.mean) * row.rstd;
            *sum_d += weight[k] * d_out[k];
            *sum_dx += weight[k] * d_out[k] * normal;
            weight_sum[k] += d_out[k] * normal;
            bias_sum[k] += d_out[k];
        }
        values_store(d_weight + i, weight_sum);
        values_store(d_bias + i, bias_sum);
    }
}

/* The row's gradient, given the two means over it. */
template <typename T, int W>
static __device__ __forceinline__ void leave_row(const LayernormBackward &a, const Row &row, float mean_d,
                                                 float mean_dx, int lane)
{
    float *d_stream = a.d_stream + row.offset; /* made outside: else nvcc stores a vector by its elements */
#pragma unroll 1
    for (int i = W * lane; i < a.C; i += W * WARP) {
        float x[W], d_out[W], weight[W], before[W] = {}, sum[W];
        values_load(x, a.inp + row.offset + i);
        values_load(d_out, (const T *)a.d_out.data + row.offset + i);
        values_load(weight, a.weight + i);
        if (!a.is_first) {
            values_load(before, d_stream + i);
        }
        for (int k = 0; k < W; k++) {
            float normal = (x[k] - row.mean) * row.rstd;
            sum[k] = before[k] + (weight[k] * d_out[k] - mean_d - normal * mean_dx) * row.rstd;
        }
        values_store(d_stream + i, sum);
        if (a.d_branch.data) {
            drop(sum, a.dropout, row.offset + i);
            values_store((T *)a.d_branch.data + row.offset + i, sum);
        }
    }
}

template <typename T, int W>
__global__ void __launch_bounds__(BACKWARD_THREADS, 4)
    layernorm_backward_kernel(LayernormBackward a, int block_rows)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    float *d_weight = (float *)dynamic_shared() + warp * 2 * a.C; /* this warp's sums, then d_bias */
    for (int i = W * lane; i < a.C; i += W * WARP) {
        for (int k = 0; k < W; k++) {
            d_weight[i + k] = d_weight[a.C + i + k] = 0;
        }
    }
    int64_t first = (int64_t)blockIdx.x * block_rows;
    int64_t end = first + block_rows < a.rows ? first + block_rows : a.rows;
    for (int64_t index = first + warp; index < end; index += warps) {
        Row row = {index * a.C, a.mean[index], a.rstd[index]};
        float sum_d, sum_dx;
        sum_row<T, W>(&sum_d, &sum_dx, d_weight, d_weight + a.C, a, row, lane);
        leave_row<T, W>(a, row, warp_sum(sum_d) / (float)a.C, warp_sum(sum_dx) / (float)a.C, lane);
    }
    __syncthreads();
    const float *all = (const float *)dynamic_shared();
    for (int i = (int)threadIdx.x; i < 2 * a.C; i += (int)blockDim.x) {
        float sum = 0;
        for (int w = 0; w < warps; w++) {
            sum += all[(int64_t)w * 2 * a.C + i];
        }
        a.partial[(int64_t)blockIdx.x * 2 * a.C + i] = sum;
    }
}

void layernorm_prepare(void)
{
    allow_shared_bytes(layernorm_backward_kernel<float, 1>, BACKWARD_BYTES_MAX);
    allow_shared_bytes(layernorm_backward_kernel<float, 4>, BACKWARD_BYTES_MAX);
    allow_shared_bytes(layernorm_backward_kernel<__nv_bfloat16, 1>, BACKWARD_BYTES_MAX);
    allow_shared_bytes(layernorm_backward_kernel<__nv_bfloat16, 4>, BACKWARD_BYTES_MAX);
}

void layernorm_backward(const LayernormBackward *args, cudaStream_t stream)
{
    int warps = backward_warps(args->C), block_rows = rows_a_block(args->rows, args->C);
    int blocks = (int)div_up(args->rows, block_rows);
    size_t bytes = (size_t)warps * 2 * (size_t)args->C * sizeof(float);
    WITH_TYPE(args->d_out.type,
              launch(args->C % 4 ? layernorm_backward_kernel<T, 1> : layernorm_backward_kernel<T, 4>,
                     dim3(blocks), dim3(warps * WARP), bytes, stream, *args, block_rows));
    ColumnParts parts = {args->partial, blocks, 2 * args->C, args->accumulates};
    column_parts_sum(args->d_weight, &parts, 0, args->C, stream);
    column_parts_sum(args->d_bias, &parts, args->C, args->C, stream);
}
