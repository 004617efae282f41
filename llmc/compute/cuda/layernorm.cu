#include "llmc/compute/cuda/layernorm.cuh"

#include "llmc/compute/cuda/columns.cuh"
#include "llmc/compute/cuda/dropout.cuh"

/* One warp a row. Its values wait in shared memory between the sums and the output; rows of more than 48 KB
 * would need fewer warps. */
enum { FORWARD_THREADS = 256, ROW_BYTES_MAX = 48 << 10 };

static int warps_of(int C, int threads, int floats)
{
    int warps = threads / WARP;
    while (warps > 1 && warps * C * floats * (int)sizeof(float) > ROW_BYTES_MAX) {
        warps /= 2;
    }
    return warps;
}

/* Read the row, add the branch, keep it in shared memory: returns this lane's part of the sum. */
template <typename T>
static __device__ float enter_row(float *row, const LayernormForward &a, int64_t offset, int lane)
{
    float sum = 0;
    if (a.C % 4 == 0) {
        for (int i = 4 * lane; i < a.C; i += 4 * WARP) {
            float4 x = value_load4(a.residual + offset + i);
            if (a.branch.data) {
                float4 y = value_load4((const T *)a.branch.data + offset + i);
                float4 keep = make_float4(1, 1, 1, 1);
                if (a.dropout.probability > 0) {
                    keep = dropout_factors(a.dropout, (uint64_t)(offset + i));
                }
                x = make_float4(x.x + keep.x * y.x, x.y + keep.y * y.y, x.z + keep.z * y.z,
                                x.w + keep.w * y.w);
                value_store4(a.stream + offset + i, x);
            }
            value_store4(row + i, x);
            sum += (x.x + x.y) + (x.z + x.w);
        }
        return sum;
    }
    for (int i = lane; i < a.C; i += WARP) {
        float x = a.residual[offset + i];
        if (a.branch.data) {
            x += dropout_factor(a.dropout, (uint64_t)(offset + i)) *
                 value_load((const T *)a.branch.data + offset + i);
            a.stream[offset + i] = x;
        }
        row[i] = x;
        sum += x;
    }
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(FORWARD_THREADS) layernorm_forward_kernel(LayernormForward a)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t index = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp;
    if (index >= a.rows) {
        return;
    }
    int64_t offset = index * a.C;
    float *row = (float *)dynamic_shared() + warp * a.C;
    float mean = warp_sum(enter_row<T>(row, a, offset, lane)) / (float)a.C;
    __syncwarp();
    float squares = 0;
    for (int i = lane; i < a.C; i += WARP) {
        float shifted = row[i] - mean;
        squares += shifted * shifted;
    }
    float rstd = rsqrtf(warp_sum(squares) / (float)a.C + 1e-5f);
    if (lane == 0) {
        a.mean[index] = mean;
        a.rstd[index] = rstd;
    }
    T *out = (T *)a.out.data + offset;
    if (a.C % 4 == 0) {
        for (int i = 4 * lane; i < a.C; i += 4 * WARP) {
            float4 x = value_load4(row + i), w = value_load4(a.weight + i), b = value_load4(a.bias + i);
            value_store4(out + i,
                         make_float4((x.x - mean) * rstd * w.x + b.x, (x.y - mean) * rstd * w.y + b.y,
                                     (x.z - mean) * rstd * w.z + b.z, (x.w - mean) * rstd * w.w + b.w));
        }
        return;
    }
    for (int i = lane; i < a.C; i += WARP) {
        value_store(out + i, (row[i] - mean) * rstd * a.weight[i] + a.bias[i]);
    }
}

void layernorm_forward(const LayernormForward *args, cudaStream_t stream)
{
    int warps = warps_of(args->C, FORWARD_THREADS, 1);
    dim3 grid((unsigned)div_up(args->rows, warps));
    size_t bytes = (size_t)warps * (size_t)args->C * sizeof(float);
    WITH_TYPE(args->out.type,
              launch(layernorm_forward_kernel<T>, grid, dim3(warps * WARP), bytes, stream, *args));
}

/* ---- backward -------------------------------------------------------------------------------------------
 * Each block takes ROWS_A_BLOCK neighbouring rows, one warp a row at a time, and adds up its part of d_weight
 * and d_bias; columns.cu adds up the blocks' parts. */
enum { ROWS_A_BLOCK = 128, BACKWARD_THREADS = 256 };

int64_t layernorm_partial_count(int64_t rows, int C)
{
    return div_up(rows, ROWS_A_BLOCK) * 2 * C;
}

/* The row's gradient, given the two means over it. */
template <typename T>
static __device__ void leave_row(const LayernormBackward &a, int64_t offset, float mean, float rstd,
                                 float mean_d, float mean_dx, int lane)
{
    for (int i = lane; i < a.C; i += WARP) {
        float normal = (a.inp[offset + i] - mean) * rstd;
        float d = a.weight[i] * value_load((const T *)a.d_out.data + offset + i);
        float d_inp = (d - mean_d - normal * mean_dx) * rstd;
        float sum = a.is_first ? d_inp : a.d_stream[offset + i] + d_inp;
        a.d_stream[offset + i] = sum;
        if (a.d_branch.data) {
            value_store((T *)a.d_branch.data + offset + i,
                        sum * dropout_factor(a.dropout, (uint64_t)(offset + i)));
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(BACKWARD_THREADS) layernorm_backward_kernel(LayernormBackward a)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    float *d_weight = (float *)dynamic_shared() + (int64_t)warp * 2 * a.C; /* this warp's sums, then d_bias */
    float *d_bias = d_weight + a.C;
    for (int i = lane; i < 2 * a.C; i += WARP) {
        d_weight[i] = 0;
    }
    __syncwarp();
    int64_t first = (int64_t)blockIdx.x * ROWS_A_BLOCK;
    int64_t end = first + ROWS_A_BLOCK < a.rows ? first + ROWS_A_BLOCK : a.rows;
    for (int64_t index = first + warp; index < end; index += warps) {
        int64_t offset = index * a.C;
        float mean = a.mean[index], rstd = a.rstd[index];
        float sum_d = 0, sum_dx = 0;
        for (int i = lane; i < a.C; i += WARP) {
            float normal = (a.inp[offset + i] - mean) * rstd;
            float d_out = value_load((const T *)a.d_out.data + offset + i);
            float d = a.weight[i] * d_out;
            sum_d += d;
            sum_dx += d * normal;
            d_weight[i] += d_out * normal;
            d_bias[i] += d_out;
        }
        leave_row<T>(a, offset, mean, rstd, warp_sum(sum_d) / (float)a.C, warp_sum(sum_dx) / (float)a.C,
                     lane);
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

void layernorm_backward(const LayernormBackward *args, cudaStream_t stream)
{
    int warps = warps_of(args->C, BACKWARD_THREADS, 2);
    int blocks = (int)div_up(args->rows, ROWS_A_BLOCK);
    size_t bytes = (size_t)warps * 2 * (size_t)args->C * sizeof(float);
    WITH_TYPE(args->d_out.type,
              launch(layernorm_backward_kernel<T>, dim3(blocks), dim3(warps * WARP), bytes, stream, *args));
    ColumnParts parts = {args->partial, blocks, 2 * args->C, args->accumulates};
    column_parts_sum(args->d_weight, &parts, 0, args->C, stream);
    column_parts_sum(args->d_bias, &parts, args->C, args->C, stream);
}
