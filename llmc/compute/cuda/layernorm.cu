#include "llmc/compute/cuda/layernorm.cuh"

#include "llmc/compute/cuda/dropout.cuh"

/* One warp a row, which waits in registers or in shared memory between the sums and the output. */
enum { THREADS = 256, WARPS = THREADS / 32, SHARED_BYTES_MAX = 48 << 10 };

static __device__ __forceinline__ void store_moments(const LayernormForward &a, int64_t row, float mean,
                                                     float rstd)
{
    if (threadIdx.x % WARP == 0) {
        a.mean[row] = mean;
        a.rstd[row] = rstd;
    }
}

static __device__ __forceinline__ float rstd_of(float squares, int C)
{
    return rsqrtf(warp_sum(squares) / (float)C + 1e-5f);
}

/* ---- in registers: bf16, rows of whole fours, at most VECTORS of them a lane, without dropout ---------- */

template <int VECTORS>
struct Lane {
    float x[VECTORS][4];
};

static __device__ __forceinline__ int column_of(int vector)
{
    return 4 * (vector * WARP + (int)threadIdx.x % WARP);
}

/* Zeros where there is no such column. */
template <int VECTORS, typename T>
static __device__ __forceinline__ void load_lane(Lane<VECTORS> &lane, const T *row, int C)
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        for (int k = 0; k < 4; k++) {
            lane.x[v][k] = 0;
        }
        if (column_of(v) < C) {
            values_load(lane.x[v], row + column_of(v));
        }
    }
}

template <int VECTORS>
static __device__ __forceinline__ float lane_sum(const Lane<VECTORS> &lane)
{
    float sum = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        sum += (lane.x[v][0] + lane.x[v][1]) + (lane.x[v][2] + lane.x[v][3]);
    }
    return sum;
}

/* The row less its mean, and the sum of the squares of that. */
template <int VECTORS>
static __device__ __forceinline__ float shift_lane(Lane<VECTORS> &lane, float mean, int C)
{
    float squares = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        for (int k = 0; k < 4; k++) {
            lane.x[v][k] = column_of(v) < C ? lane.x[v][k] - mean : 0.0f;
            squares += lane.x[v][k] * lane.x[v][k];
        }
    }
    return squares;
}

template <typename R, int VECTORS>
__global__ void __launch_bounds__(THREADS) layernorm_forward_registers(LayernormForward a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, offset = row * a.C;
    if (row >= a.rows) {
        return;
    }
    Lane<VECTORS> lane;
    load_lane(lane, (const R *)a.residual.data + offset, a.C);
    if (a.branch.data) {
        Lane<VECTORS> branch;
        load_lane(branch, (const __nv_bfloat16 *)a.branch.data + offset, a.C);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            for (int k = 0; k < 4; k++) {
                lane.x[v][k] = value_kept<R>(lane.x[v][k] + branch.x[v][k]);
            }
            if (column_of(v) < a.C) {
                values_store((R *)a.stream.data + offset + column_of(v), lane.x[v]);
            }
        }
    }
    float mean = warp_sum(lane_sum(lane)) / (float)a.C;
    float rstd = rstd_of(shift_lane(lane, mean, a.C), a.C);
    store_moments(a, row, mean, rstd);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        if (column_of(v) < a.C) {
            float weight[4], bias[4];
            values_load(weight, a.weight + column_of(v));
            values_load(bias, a.bias + column_of(v));
            for (int k = 0; k < 4; k++) {
                lane.x[v][k] = lane.x[v][k] * rstd * weight[k] + bias[k];
            }
            values_store((__nv_bfloat16 *)a.out.data + offset + column_of(v), lane.x[v]);
        }
    }
}

/* ---- in shared memory: all others. A block has as many warps as there is room for. --------------------- */

static int shared_warps(int row_bytes)
{
    int warps = SHARED_BYTES_MAX / row_bytes;
    return warps < 1 ? 1 : warps < WARPS ? warps : WARPS;
}

/* Read the row, add the branch, keep it in shared memory: returns this lane's part of the sum. */
template <typename T, typename R, int W>
static __device__ float enter_row(float *row, const LayernormForward &a, int64_t offset, int lane)
{
    float sum = 0;
    for (int i = W * lane; i < a.C; i += W * WARP) {
        float x[W];
        values_load(x, (const R *)a.residual.data + offset + i);
        if (a.branch.data) {
            float branch[W];
            values_load(branch, (const T *)a.branch.data + offset + i);
            drop(branch, a.dropout, offset + i);
            for (int k = 0; k < W; k++) {
                x[k] = value_kept<R>(x[k] + branch[k]);
            }
            values_store((R *)a.stream.data + offset + i, x);
        }
        values_store(row + i, x);
        for (int k = 0; k < W; k++) {
            sum += x[k];
        }
    }
    return sum;
}

template <typename T, typename R, int W>
__global__ void __launch_bounds__(THREADS, 4) layernorm_forward_shared(LayernormForward a)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int64_t index = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp;
    if (index >= a.rows) {
        return;
    }
    int64_t offset = index * a.C;
    float *row = (float *)dynamic_shared() + warp * a.C;
    float mean = warp_sum(enter_row<T, R, W>(row, a, offset, lane)) / (float)a.C;
    float squares = 0;
    for (int i = W * lane; i < a.C; i += W * WARP) {
        float x[W];
        values_load(x, row + i);
        for (int k = 0; k < W; k++) {
            float shifted = x[k] - mean;
            squares += shifted * shifted;
        }
    }
    float rstd = rstd_of(squares, a.C);
    store_moments(a, index, mean, rstd);
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

/* ---- launches ------------------------------------------------------------------------------------------ */

template <typename T, typename R>
static void run_shared(const LayernormForward &args, cudaStream_t stream)
{
    int warps = shared_warps(args.C * (int)sizeof(float));
    size_t bytes = (size_t)warps * (size_t)args.C * sizeof(float);
    launch(args.C % 4 ? layernorm_forward_shared<T, R, 1> : layernorm_forward_shared<T, R, 4>,
           dim3((unsigned)div_up(args.rows, warps)), dim3(warps * WARP), bytes, stream, args);
}

template <typename R>
static void run_registers(const LayernormForward &args, cudaStream_t stream)
{
    int vectors = (int)div_up(args.C, 4 * WARP);
    launch(vectors <= 6    ? layernorm_forward_registers<R, 6>
           : vectors <= 8  ? layernorm_forward_registers<R, 8>
           : vectors <= 10 ? layernorm_forward_registers<R, 10>
                           : layernorm_forward_registers<R, 13>,
           dim3((unsigned)div_up(args.rows, WARPS)), dim3(THREADS), 0, stream, args);
}

void layernorm_forward(const LayernormForward *args, cudaStream_t stream)
{
    bool fits = args->C % 4 == 0 && args->C <= 13 * 4 * WARP && args->dropout.probability == 0;
    if (fits && args->out.type == DTYPE_BF16) {
        WITH_TYPE(args->residual.type, run_registers<T>(*args, stream));
    } else {
        WITH_STREAM_TYPE(args->out.type, args->residual.type, (run_shared<T, R>(*args, stream)));
    }
}
