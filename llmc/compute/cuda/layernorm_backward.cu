/* Backward of layer norm. A block takes neighbouring rows, a few at a time; a thread keeps to its columns, so
 * that the sums over rows (d_weight, d_bias and that of d_branch) stay in its registers. The two sums over
 * each row meet in shared memory. columns.cu adds up the blocks' parts. */
#include "llmc/compute/cuda/columns.cuh"
#include "llmc/compute/cuda/dropout.cuh"
#include "llmc/compute/cuda/layernorm.cuh"

enum { ROWS_MIN = 64, PARTS_MAX = 512, PARTS = 3 };

/* Few rows a block keep all multiprocessors at work, but each block leaves a part to be added up. */
static int rows_a_block(int64_t rows)
{
    int64_t fewest = div_up(rows, PARTS_MAX);
    return fewest > ROWS_MIN ? (int)fewest : (int)ROWS_MIN;
}

static int block_count(int64_t rows)
{
    return (int)div_up(rows, rows_a_block(rows));
}

int64_t layernorm_partial_count(int64_t rows, int C)
{
    return (int64_t)block_count(rows) * PARTS * C;
}

/* A thread's columns are VECTORS times W neighbours; it meets ROWS rows at once, whose loads are all under
 * way before the first is used: so many that two blocks of the largest size fit into a multiprocessor's
 * registers, or one where columns are many. Single columns (W 1) take as many threads as spill nothing on any
 * GPU (found by trying): random numbers of dropout take registers too. */
template <typename Number, typename Stream, int WIDTH, int COUNT, bool DROPOUT>
struct BackwardShape {
    typedef Number T;
    typedef Stream R;
    static constexpr int W = WIDTH, VECTORS = COUNT, ROWS = W * VECTORS == 4 ? 2 : 1;
    static constexpr bool IS_SINGLE = W == 1 && sizeof(R) == sizeof(float);
    static constexpr int THREADS = IS_SINGLE ? (DROPOUT ? 384 : 1024) : 512, BLOCKS = VECTORS == 1 ? 2 : 1;
    static constexpr int COLUMNS = THREADS * W * VECTORS;
    static constexpr bool HAS_DROPOUT = DROPOUT;
    /* Weights are kept, and the gradient that is added to is read ahead; else registers are too few. */
    static constexpr bool LOADS_EARLY = W > 1;
};

/* This thread's part of ROWS rows, and of the sums over all rows of the block. */
template <typename Shape>
struct RowValues {
    float normal[Shape::ROWS][Shape::VECTORS][Shape::W], d[Shape::ROWS][Shape::VECTORS][Shape::W];
    float before[Shape::ROWS][Shape::VECTORS][Shape::W], rstd[Shape::ROWS];
};

template <typename Shape>
struct ColumnValues {
    float weight[Shape::VECTORS][Shape::W];
    float d_weight[Shape::VECTORS][Shape::W], d_bias[Shape::VECTORS][Shape::W];
    float d_branch[Shape::VECTORS][Shape::W];
};

template <typename Shape>
static __device__ __forceinline__ int column_of(int vector)
{
    return Shape::W * ((int)threadIdx.x + vector * (int)blockDim.x);
}

template <typename Shape>
static __device__ __forceinline__ float weight_of(const ColumnValues<Shape> &columns,
                                                  const LayernormBackward &a, int vector, int k)
{
    if (Shape::LOADS_EARLY) {
        return columns.weight[vector][k];
    }
    int column = column_of<Shape>(vector) + k;
    return column < a.C ? a.weight[column] : 0.0f;
}

/* Zeros where there is no such row or column. */
template <typename Shape>
static __device__ __forceinline__ void load_values(RowValues<Shape> &values, const LayernormBackward &a,
                                                   int64_t first, int64_t end)
{
#pragma unroll
    for (int r = 0; r < Shape::ROWS; r++) {
        int64_t row = first + r < end ? first + r : first;
        const typename Shape::R *inp = (const typename Shape::R *)a.inp.data + row * a.C;
        const typename Shape::R *d_stream = (const typename Shape::R *)a.d_stream.data + row * a.C;
        const typename Shape::T *d_out = (const typename Shape::T *)a.d_out.data + row * a.C;
        float mean = a.mean[row];
        values.rstd[r] = a.rstd[row];
#pragma unroll
        for (int v = 0; v < Shape::VECTORS; v++) {
            int column = column_of<Shape>(v);
            bool is_valid = first + r < end && column < a.C;
            float x[Shape::W] = {};
            for (int k = 0; k < Shape::W; k++) {
                values.d[r][v][k] = values.before[r][v][k] = 0;
            }
            if (is_valid) {
                values_load(x, inp + column);
                values_load(values.d[r][v], d_out + column);
            }
            if (Shape::LOADS_EARLY && is_valid && !a.is_first) {
                values_load(values.before[r][v], d_stream + column);
            }
            for (int k = 0; k < Shape::W; k++) {
                values.normal[r][v][k] = (x[k] - mean) * values.rstd[r];
            }
        }
    }
}

/* sums[0 .. ROWS - 1] = this thread's part of the sum of d * weight over each row, then of that times normal;
 * the columns' sums += theirs. */
template <typename Shape>
static __device__ __forceinline__ void sum_values(float (&sums)[2 * Shape::ROWS],
                                                  ColumnValues<Shape> &columns,
                                                  const RowValues<Shape> &values, const LayernormBackward &a)
{
#pragma unroll
    for (int r = 0; r < Shape::ROWS; r++) {
        sums[r] = sums[Shape::ROWS + r] = 0;
#pragma unroll
        for (int v = 0; v < Shape::VECTORS; v++) {
#pragma unroll
            for (int k = 0; k < Shape::W; k++) {
                float d = values.d[r][v][k], normal = values.normal[r][v][k];
                float weighted = weight_of(columns, a, v, k) * d;
                sums[r] += weighted;
                sums[Shape::ROWS + r] += weighted * normal;
                columns.d_weight[v][k] += d * normal;
                columns.d_bias[v][k] += d;
            }
        }
    }
}

/* The sums over the block for all its threads. `shared` holds COUNT floats a warp; the threads may still be
 * reading those of the call before last, not of the last. */
template <int COUNT>
static __device__ __forceinline__ void block_sums(float (&values)[COUNT], float *shared)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    scatter_sums<WARP / COUNT>(values, lane);
    float sum = values[0];
    for (int distance = WARP / COUNT / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (lane % (WARP / COUNT) == 0) {
        shared[warp * COUNT + lane / (WARP / COUNT)] = sum;
    }
    __syncthreads();
    sum = 0;
    for (int w = 0; w < warps; w++) {
        sum += shared[w * COUNT + lane % COUNT];
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        values[k] = __shfl_sync(0xffffffffu, sum, k);
    }
}

/* The rows' gradients, given the sums over them. */
template <typename Shape>
static __device__ __forceinline__ void
store_values(ColumnValues<Shape> &columns, const RowValues<Shape> &values,
             const float (&sums)[2 * Shape::ROWS], const LayernormBackward &a, int64_t first, int64_t end)
{
    float scale = 1.0f / (float)a.C;
#pragma unroll
    for (int r = 0; r < Shape::ROWS; r++) {
        typename Shape::R *d_stream = (typename Shape::R *)a.d_stream.data + (first + r) * a.C;
        typename Shape::T *d_branch = (typename Shape::T *)a.d_branch.data + (first + r) * a.C;
        float mean_d = sums[r] * scale, mean_dx = sums[Shape::ROWS + r] * scale;
#pragma unroll
        for (int v = 0; v < Shape::VECTORS; v++) {
            int column = column_of<Shape>(v);
            float before[Shape::W] = {}, sum[Shape::W];
            if (first + r >= end || column >= a.C) {
                continue;
            }
            if (!Shape::LOADS_EARLY && !a.is_first) {
                values_load(before, d_stream + column);
            }
#pragma unroll
            for (int k = 0; k < Shape::W; k++) {
                float d = weight_of(columns, a, v, k) * values.d[r][v][k] - mean_d -
                          values.normal[r][v][k] * mean_dx;
                sum[k] = (Shape::LOADS_EARLY ? values.before[r][v][k] : before[k]) + d * values.rstd[r];
            }
            values_store(d_stream + column, sum);
            if (a.d_branch.data) {
                if constexpr (Shape::HAS_DROPOUT) {
                    drop(sum, a.dropout, (first + r) * a.C + column);
                }
                values_store(d_branch + column, sum);
                for (int k = 0; k < Shape::W; k++) {
                    columns.d_branch[v][k] += sum[k];
                }
            }
        }
    }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    layernorm_backward_kernel(LayernormBackward a, int block_rows)
{
    constexpr int SUMS = 2 * Shape::ROWS;
    float *shared = (float *)dynamic_shared(); /* twice what block_sums() needs */
    int turn = 0, turn_count = SUMS * ((int)blockDim.x / WARP);
    ColumnValues<Shape> columns = {};
#pragma unroll
    for (int v = 0; v < Shape::VECTORS; v++) {
        if (Shape::LOADS_EARLY && column_of<Shape>(v) < a.C) {
            values_load(columns.weight[v], a.weight + column_of<Shape>(v));
        }
    }
    int64_t first = (int64_t)blockIdx.x * block_rows;
    int64_t end = first + block_rows < a.rows ? first + block_rows : a.rows;
    for (int64_t row = first; row < end; row += Shape::ROWS) {
        RowValues<Shape> values;
        float sums[SUMS];
        load_values(values, a, row, end);
        sum_values(sums, columns, values, a);
        block_sums(sums, shared + turn * turn_count);
        store_values(columns, values, sums, a, row, end);
        turn ^= 1;
    }
    float *parts = a.partial + (int64_t)blockIdx.x * PARTS * a.C;
#pragma unroll
    for (int v = 0; v < Shape::VECTORS; v++) {
        int column = column_of<Shape>(v);
        if (column < a.C) {
            values_store(parts + column, columns.d_weight[v]);
            values_store(parts + a.C + column, columns.d_bias[v]);
            values_store(parts + 2 * a.C + column, columns.d_branch[v]);
        }
    }
}

template <typename Shape>
static void run_shape(const LayernormBackward &args, cudaStream_t stream)
{
    int threads = (int)div_up(args.C, Shape::W * Shape::VECTORS * WARP) * WARP;
    size_t bytes = 2 * sizeof(float) * 2 * Shape::ROWS * (size_t)(threads / WARP);
    launch(layernorm_backward_kernel<Shape>, dim3(block_count(args.rows)), dim3(threads), bytes, stream, args,
           rows_a_block(args.rows));
}

template <typename T, typename R, int W, int VECTORS, int DROPOUT_VECTORS = VECTORS>
static void run(const LayernormBackward &args, cudaStream_t stream)
{
    if (args.dropout.probability > 0) {
        run_shape<BackwardShape<T, R, W, DROPOUT_VECTORS, true>>(args, stream);
    } else {
        run_shape<BackwardShape<T, R, W, VECTORS, false>>(args, stream);
    }
}

template <typename T, typename R>
static void run_single(const LayernormBackward &args, cudaStream_t stream)
{
    if constexpr (sizeof(R) == sizeof(float)) {
        run<T, R, 1, 6, 16>(args, stream);
    } else {
        run<T, R, 1, 12>(args, stream);
    }
}

static ColumnParts parts_of(const float *partial, int64_t rows, int C, int accumulates)
{
    ColumnParts parts = {};
    parts.parts = partial;
    parts.count = block_count(rows);
    parts.stride = PARTS * C;
    parts.columns = C;
    parts.accumulates = accumulates;
    return parts;
}

void layernorm_backward(const LayernormBackward *args, cudaStream_t stream)
{
    DType type = args->d_out.type, stream_type = args->d_stream.type;
    if (args->C % 4) {
        WITH_STREAM_TYPE(type, stream_type, (run_single<T, R>(*args, stream)));
    } else if (args->C <= BackwardShape<float, float, 4, 1, false>::COLUMNS) {
        WITH_STREAM_TYPE(type, stream_type, (run<T, R, 4, 1>(*args, stream)));
    } else {
        WITH_STREAM_TYPE(type, stream_type, (run<T, R, 4, 3>(*args, stream)));
    }
    ColumnParts parts = parts_of(args->partial, args->rows, args->C, args->accumulates);
    parts.out[0] = args->d_weight;
    parts.out[1] = args->d_bias;
    parts.out[2] = args->d_branch_bias;
    column_parts_sum(&parts, stream);
}

void layernorm_branch_bias(float *d_branch_bias, const float *partial, int64_t rows, int C, int accumulates,
                           cudaStream_t stream)
{
    ColumnParts parts = parts_of(partial + 2 * C, rows, C, accumulates);
    parts.out[0] = d_branch_bias;
    column_parts_sum(&parts, stream);
}
