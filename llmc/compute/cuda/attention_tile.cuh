/* Tiles of attention on the tensor cores, as pieces that forward and backward share: rows copied to shared
 * memory, fragments (the parts of a small matrix that each lane of a warp holds), and products of them.
 *
 *
 * A warp owns M * 16 rows of its block's tile and meets the other side in tiles that all warps read from
 * shared memory, where each row takes HS + 8 elements: 16 bytes more than it has, so that the eight rows
 * that load_matrix_x4 reads at once lie in different banks. The product of one step is the left operand of
 * the next in the same registers: an accumulator (16,8) and its right neighbour are, packed to bf16, a left
 * operand (16,16). */
#ifndef LLMC_COMPUTE_CUDA_ATTENTION_TILE_CUH
#define LLMC_COMPUTE_CUDA_ATTENTION_TILE_CUH

#include "llmc/compute/cuda/attention_parts.cuh"

enum { TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * WARP, TILE_PAD = 8 };

/* Groups of 16 rows that a warp owns: what it reads of the other side serves them all, so as many as
 * registers hold without spilling. */
static constexpr int tile_row_groups(int HS, bool has_dropout)
{
    return HS <= (has_dropout ? 32 : 64) ? 2 : 1;
}

/* ---- copies ------------------------------------------------------------------------------------------ */

/* Start to copy rows first .. first + ROWS - 1 of a head; rows from T on, and the columns that a smaller head
 * lacks, become zeros. */
template <int HS, int ROWS>
static __device__ __forceinline__ void copy_rows_async(bf16 *shared, const bf16 *head, int row_elements,
                                                       int first, const CudaAttention &shape)
{
    constexpr int CHUNKS = HS / 8;                       /* 16 bytes each */
    constexpr bool IS_EVEN = TILE_THREADS % CHUNKS == 0; /* a thread keeps to its column */
    static_assert(ROWS * CHUNKS % TILE_THREADS == 0, "all threads copy alike");
    int thread = (int)threadIdx.x;
#pragma unroll
    for (int i = 0; i < ROWS * CHUNKS; i += TILE_THREADS) {
        int row = IS_EVEN ? thread / CHUNKS + i / CHUNKS : (i + thread) / CHUNKS;
        int column = (IS_EVEN ? thread % CHUNKS : (i + thread) % CHUNKS) * 8;
        bool is_valid = first + row < shape.T && column < shape.HS;
        copy_async_16(shared + row * (HS + TILE_PAD) + column,
                      head + (is_valid ? (first + row) * row_elements + column : 0), is_valid);
    }
}

/* Start to copy what d_keys needs of ROWS queries: lse in powers of 2, then delta. `rows` is the head's. */
template <int ROWS>
static __device__ __forceinline__ void copy_row_values_async(float *shared, const float *rows, int first,
                                                             int T)
{
    constexpr int CHUNKS = ROWS / 4; /* 16 bytes each */
    static_assert(2 * CHUNKS <= TILE_THREADS && ATTENTION_ROWS_PAD % ROWS == 0,
                  "at most one for each thread");
    int thread = (int)threadIdx.x;
    if (thread < 2 * CHUNKS) {
        const float *values = rows + (thread < CHUNKS ? 0 : attention_padded_T(T));
        copy_async_16(shared + thread * 4, values + first + thread % CHUNKS * 4, true);
    }
}

/* Store a warp's accumulators, times a factor for each row, as rows of bf16. They pass through `shared`, rows
 * of the warp's own, so that each lane writes 16 bytes. All threads of the block take part. */
template <int HS, int M>
static __device__ __forceinline__ void
store_rows(bf16 *head, int row_elements, int first, const CudaAttention &shape,
           const float (&sums)[M][HS / 8][4], const float (&factors)[M][2], bf16 *shared)
{
    constexpr int CHUNKS = HS / 8;
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            bf16 *row = shared + (m * 16 + half * 8 + lane / 4) * (HS + TILE_PAD) + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < HS / 8; n++) {
                *(uint32_t *)(row + n * 8) = pack_bf16(sums[m][n][half * 2] * factors[m][half],
                                                       sums[m][n][half * 2 + 1] * factors[m][half]);
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < M * 16 * CHUNKS; i += WARP) {
        int row = (i + lane) / CHUNKS;
        int column = (i + lane) % CHUNKS * 8;
        if (first + row < shape.T && column < shape.HS) {
            *(uint4 *)(head + (first + row) * row_elements + column) =
                *(const uint4 *)(shared + row * (HS + TILE_PAD) + column);
        }
    }
}

/* The sums over a warp's rows of its accumulators, times a factor, into `shared`, (HS) a warp. */
template <int HS, int M>
static __device__ __forceinline__ void sum_rows(float *shared, const float (&sums)[M][HS / 8][4],
                                                float factor)
{
    constexpr int COUNT = HS / 4, LEFT = COUNT / 8; /* of a lane, before and after lanes share them out */
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    float columns[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        columns[i] = 0;
#pragma unroll
        for (int m = 0; m < M; m++) {
            columns[i] += sums[m][i / 2][i % 2] + sums[m][i / 2][2 + i % 2];
        }
    }
    scatter_sums<4>(columns, lane);
#pragma unroll
    for (int k = 0; k < LEFT; k++) {
        int i = lane / 4 * LEFT + k;
        shared[warp * HS + i / 2 * 8 + lane % 4 * 2 + i % 2] = columns[k] * factor;
    }
}

/* What the block's warps left there, added in their order, into the head's columns of a part. */
template <int HS>
static __device__ __forceinline__ void store_sums(float *part, const float *shared, int columns)
{
    static_assert(HS <= TILE_THREADS, "a thread has one column");
    int i = (int)threadIdx.x;
    if (i < columns) {
        float sum = 0;
        for (int warp = 0; warp < TILE_WARPS; warp++) {
            sum += shared[warp * HS + i];
        }
        part[i] = sum;
    }
}

/* ---- fragments and products -------------------------------------------------------------------------- */

/* Left operand (M * 16, K * 16) from rows of shared memory. */
template <int HS, int M, int K>
static __device__ __forceinline__ void load_left(uint32_t (&a)[M][K][4], const bf16 *rows)
{
    int lane = (int)threadIdx.x % WARP;
    const bf16 *own = rows + lane % 16 * (HS + TILE_PAD) + lane / 16 * 8;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            load_matrix_x4(a[m][k], own + m * 16 * (HS + TILE_PAD) + k * 16);
        }
    }
}

/* Accumulators (M * 16, N * 8), rounded to bf16, as left operand (M * 16, N / 2 * 16). */
template <int M, int N>
static __device__ __forceinline__ void pack_left(uint32_t (&a)[M][N / 2][4], const float (&d)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int k = 0; k < N / 2; k++) {
            a[m][k][0] = pack_bf16(d[m][2 * k][0], d[m][2 * k][1]);
            a[m][k][1] = pack_bf16(d[m][2 * k][2], d[m][2 * k][3]);
            a[m][k][2] = pack_bf16(d[m][2 * k + 1][0], d[m][2 * k + 1][1]);
            a[m][k][3] = pack_bf16(d[m][2 * k + 1][2], d[m][2 * k + 1][3]);
        }
    }
}

/* d (M * 16, N * 8) += a (M * 16, K * 16) times the transpose of b (N * 8, K * 16), rows in shared memory. */
template <int HS, int M, int N, int K>
static __device__ __forceinline__ void multiply_transposed(float (&d)[M][N][4], const uint32_t (&a)[M][K][4],
                                                           const bf16 *b)
{
    int lane = (int)threadIdx.x % WARP;
    const bf16 *own = b + (lane % 8 + lane / 16 * 8) * (HS + TILE_PAD) + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t right[4];
            load_matrix_x4(right, own + n * 8 * (HS + TILE_PAD) + k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_bf16(d[m][n], a[m][k], right[0], right[1]);
                mma_bf16(d[m][n + 1], a[m][k], right[2], right[3]);
            }
        }
    }
}

/* The same with a (M * 16, HS) from rows in shared memory too, where registers are scarce. */
template <int HS, int M, int N>
static __device__ __forceinline__ void multiply_rows_transposed(float (&d)[M][N][4], const bf16 *a,
                                                                const bf16 *b)
{
    int lane = (int)threadIdx.x % WARP;
    const bf16 *own_a = a + lane % 16 * (HS + TILE_PAD) + lane / 16 * 8;
    const bf16 *own_b = b + (lane % 8 + lane / 16 * 8) * (HS + TILE_PAD) + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < HS / 16; k++) {
        uint32_t left[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            load_matrix_x4(left[m], own_a + m * 16 * (HS + TILE_PAD) + k * 16);
        }
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t right[4];
            load_matrix_x4(right, own_b + n * 8 * (HS + TILE_PAD) + k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_bf16(d[m][n], left[m], right[0], right[1]);
                mma_bf16(d[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* d (M * 16, N * 8) += a (M * 16, K * 16) times b (K * 16, N * 8), rows in shared memory. */
template <int HS, int M, int N, int K>
static __device__ __forceinline__ void multiply(float (&d)[M][N][4], const uint32_t (&a)[M][K][4],
                                                const bf16 *b)
{
    int lane = (int)threadIdx.x % WARP;
    const bf16 *own = b + lane % 16 * (HS + TILE_PAD) + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t right[4];
            load_matrix_x4_transposed(right, own + k * 16 * (HS + TILE_PAD) + n * 8);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_bf16(d[m][n], a[m][k], right[0], right[1]);
                mma_bf16(d[m][n + 1], a[m][k], right[2], right[3]);
            }
        }
    }
}

/* ---- lanes ------------------------------------------------------------------------------------------- */

/* The four lanes of a quad hold the same rows. */
static __device__ __forceinline__ float quad_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

static __device__ __forceinline__ float quad_sum(float value)
{
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

/* Factors of dropout for an element and the next, mostly from one block of random numbers. */
static __device__ __forceinline__ float2 dropout_pair(const Dropout &dropout, uint64_t element)
{
    float4 factors = dropout_factors(dropout, element & ~(uint64_t)3);
    int place = (int)(element & 3);
    float first = place == 0 ? factors.x : place == 1 ? factors.y : place == 2 ? factors.z : factors.w;
    float second = place == 0 ? factors.y : place == 1 ? factors.z : factors.w;
    if (place == 3) {
        second = dropout_factor(dropout, element + 1);
    }
    return make_float2(first, second);
}

/* ---- backward ---------------------------------------------------------------------------------------- */

/* A weight that dropout drops is kept as its negative: the gradient of its score needs it. These give what
 * the values saw, and the gradient of the score. */
template <bool HAS_DROPOUT>
static __device__ __forceinline__ float weight_seen(float weight, float kept_factor)
{
    return HAS_DROPOUT ? fmaxf(weight, 0.0f) * kept_factor : weight;
}

template <bool HAS_DROPOUT>
static __device__ __forceinline__ float score_gradient(float weight, float d_weight, float delta,
                                                       float kept_factor)
{
    if (HAS_DROPOUT) {
        return fabsf(weight) * ((weight > 0.0f ? d_weight * kept_factor : 0.0f) - delta);
    }
    return weight * (d_weight - delta);
}

/* Where the sums over a tile's tokens of a head's d_q begin; d_k's and d_v's follow, each (C) on. */
static __device__ __forceinline__ float *parts_of(const TensorBackwardArgs &args, const AttentionHead &head,
                                                  int tiles, int tile)
{
    return args.parts + ((int64_t)head.b * tiles + tile) * head.qkv_row + head.column;
}

/* ---- choice of a kernel ------------------------------------------------------------------------------ */

/* What is compiled for one head size: without dropout, and with. It serves smaller ones, down to the next. */
template <typename Args>
struct TensorPath {
    int HS;
    void (*run[2])(const Args &args, cudaStream_t stream);
    void (*prepare[2])(void);
};

template <typename Args, int COUNT>
static void tensor_path_prepare(const TensorPath<Args> (&paths)[COUNT])
{
    for (int i = 0; i < COUNT; i++) {
        paths[i].prepare[0]();
        paths[i].prepare[1]();
    }
}

template <typename Args, int COUNT>
static void tensor_path_run(const TensorPath<Args> (&paths)[COUNT], const Args &args, cudaStream_t stream)
{
    int i = 0;
    while (paths[i].HS < args.shape.HS) {
        i++;
    }
    paths[i].run[args.dropout.probability > 0](args, stream);
}

#endif
