/* Gradient of the queries. A block owns a tile of a head's queries, a warp M * 16 of them; keys and values
 * stream by as in forward. On the way it makes what the gradients of keys and values need of each query.
 * Source: arXiv:2205.14135, arXiv:2307.08691 */
#include "llmc/compute/cuda/attention_tile.cuh"

template <int HEAD_SIZE, bool DROPOUT>
struct QueriesTile {
    static constexpr int HS = HEAD_SIZE;
    static constexpr bool HAS_DROPOUT = DROPOUT;
    static constexpr int M = tile_row_groups(HS, HAS_DROPOUT);
    static constexpr int QUERIES = TILE_WARPS * M * 16;
    static constexpr int KEYS = HS <= 64 ? 64 : 32;
    static constexpr int STEP = 32; /* keys of the tile at a time */
    static constexpr int STRIDE = HS + TILE_PAD;
    static constexpr int QUERY_ELEMENTS = QUERIES * STRIDE;
    static constexpr int KEY_ELEMENTS = KEYS * STRIDE;
    static constexpr int SHARED_BYTES =
        (2 * QUERY_ELEMENTS + 4 * KEY_ELEMENTS) * (int)sizeof(bf16) + 2 * QUERIES * (int)sizeof(float);
};

/* A warp's queries, the gradients of their results, and their own gradient so far. */
template <typename Tile>
struct QueriesState {
    static constexpr int M = Tile::M;
    uint32_t q[M][Tile::HS / 16][4], d_out[M][Tile::HS / 16][4];
    float d_q[M][Tile::HS / 8][4];
};

/* Scores become weights. `ahead`: how far this lane's first key is after its first query. */
template <typename Tile, bool IS_DIAGONAL>
static __device__ __forceinline__ void make_weights(float (&scores)[Tile::M][Tile::STEP / 8][4],
                                                    const float *rows, float scale, int ahead)
{
#pragma unroll
    for (int m = 0; m < Tile::M; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float lse = rows[m * 16 + i / 2 * 8];
#pragma unroll
            for (int n = 0; n < Tile::STEP / 8; n++) {
                scores[m][n][i] = exp2_fast(scores[m][n][i] * scale - lse);
                if (IS_DIAGONAL && ahead > m * 16 + i / 2 * 8 - n * 8 - i % 2) {
                    scores[m][n][i] = 0.0f;
                }
            }
        }
    }
}

/* A weight that dropout drops becomes its negative. `element` is that of this lane's first weight. */
template <typename Tile>
static __device__ __forceinline__ void mark_dropped(float (&weights)[Tile::M][Tile::STEP / 8][4],
                                                    const Dropout &dropout, int64_t element, int T)
{
#pragma unroll
    for (int m = 0; m < Tile::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int n = 0; n < Tile::STEP / 8; n++) {
                int64_t own = element + (int64_t)(m * 16 + half * 8) * T + n * 8;
                float2 kept = dropout_pair(dropout, (uint64_t)own);
                float &first = weights[m][n][half * 2], &second = weights[m][n][half * 2 + 1];
                first = kept.x > 0.0f ? first : -first;
                second = kept.y > 0.0f ? second : -second;
            }
        }
    }
}

/* STEP keys, of which k and v are the rows, against this warp's queries. IS_DIAGONAL: some of the keys are
 * after some of the queries. */
template <typename Tile, bool IS_DIAGONAL>
static __device__ __forceinline__ void attend_step(QueriesState<Tile> &state, const bf16 *k, const bf16 *v,
                                                   const float *rows, const TensorBackwardArgs &args,
                                                   const AttentionHead &head, int warp_query, int first_key)
{
    constexpr int M = Tile::M, N = Tile::STEP / 8;
    int lane = (int)threadIdx.x % WARP;
    rows += lane / 4;
    float kept_factor = Tile::HAS_DROPOUT ? 1.0f / (1.0f - args.dropout.probability) : 1.0f;
    float weights[M][N][4] = {}, d_scores[M][N][4] = {};
    multiply_transposed<Tile::HS>(weights, state.q, k);
    int query = warp_query + lane / 4, key = first_key + lane % 4 * 2;
    make_weights<Tile, IS_DIAGONAL>(weights, rows, args.scale.log2, key - query);
    if (Tile::HAS_DROPOUT) {
        mark_dropped<Tile>(weights, args.dropout, head.first_element + (int64_t)query * args.shape.T + key,
                           args.shape.T);
    }
    multiply_transposed<Tile::HS>(d_scores, state.d_out, v);
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float delta = rows[Tile::QUERIES + m * 16 + i / 2 * 8];
#pragma unroll
            for (int n = 0; n < N; n++) {
                d_scores[m][n][i] = score_gradient<Tile::HAS_DROPOUT>(weights[m][n][i], d_scores[m][n][i],
                                                                      delta, kept_factor);
            }
        }
    }
    uint32_t left[M][N / 2][4];
    pack_left(left, d_scores);
    multiply<Tile::HS>(state.d_q, left, k);
}

template <typename Tile>
static __device__ __forceinline__ void copy_keys(bf16 *k, bf16 *v, const TensorBackwardArgs &args,
                                                 const AttentionHead &head, int first)
{
    copy_rows_async<Tile::HS, Tile::KEYS>(k, args.qkv + head.k, head.qkv_row, first, args.shape);
    copy_rows_async<Tile::HS, Tile::KEYS>(v, args.qkv + head.v, head.qkv_row, first, args.shape);
    copy_async_commit();
}

/* The sum of products of eight bf16. */
static __device__ __forceinline__ float dot_eight(uint4 a, uint4 b)
{
    const uint32_t pairs_a[4] = {a.x, a.y, a.z, a.w}, pairs_b[4] = {b.x, b.y, b.z, b.w};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum += __uint_as_float(pairs_a[i] << 16) * __uint_as_float(pairs_b[i] << 16);
        sum += __uint_as_float(pairs_a[i] & 0xffff0000u) * __uint_as_float(pairs_b[i] & 0xffff0000u);
    }
    return sum;
}

/* Of this warp's queries lse in powers of 2, and delta Tile::QUERIES later: for this kernel in `rows`, for
 * d_keys in args.rows. A query has four lanes. d_out has the warp's rows. */
template <typename Tile>
static __device__ __forceinline__ void make_rows(float *rows, const TensorBackwardArgs &args,
                                                 const AttentionHead &head, const bf16 *d_out, int warp_query)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int row = lane / 4; row < Tile::M * 16; row += WARP / 4) {
        int query = warp_query + row;
        bool is_valid = query < args.shape.T;
        const bf16 *out = args.out + head.out + (is_valid ? query : 0) * (head.qkv_row / 3);
        float delta = 0;
#pragma unroll
        for (int column = lane % 4 * 8; column < Tile::HS; column += 32) {
            if (is_valid && column < args.shape.HS) {
                delta += dot_eight(*(const uint4 *)(out + column),
                                   *(const uint4 *)(d_out + row * Tile::STRIDE + column));
            }
        }
        delta = quad_sum(delta);
        if (lane % 4 == 0) {
            float *global = args.rows + head.rows + query;
            rows[row] = global[0] = is_valid ? args.lse[head.lse + query] * LOG2_E : INFINITY;
            rows[Tile::QUERIES + row] = global[attention_padded_T(args.shape.T)] = delta;
        }
    }
}

/* grid: as forward's. */
template <typename Tile>
static __global__ void __launch_bounds__(TILE_THREADS, 2) attention_d_queries_kernel(TensorBackwardArgs args)
{
    constexpr int M = Tile::M;
    bf16 *q = (bf16 *)dynamic_shared();
    bf16 *d_out = q + Tile::QUERY_ELEMENTS;
    bf16 *k = d_out + Tile::QUERY_ELEMENTS; /* two tiles, then two of v */
    bf16 *v = k + 2 * Tile::KEY_ELEMENTS;
    float *rows = (float *)(v + 2 * Tile::KEY_ELEMENTS); /* lse in powers of 2, then delta */
    int T = args.shape.T;
    int tiles = (T + Tile::QUERIES - 1) / Tile::QUERIES;
    AttentionHead head = attention_head(args.shape, (int)blockIdx.x / tiles);
    int first = (tiles - 1 - (int)blockIdx.x % tiles) * Tile::QUERIES;
    int warp_row = (int)threadIdx.x / WARP * M * 16;
    int warp_query = first + warp_row;
    int end = first + Tile::QUERIES < T ? first + Tile::QUERIES : T; /* of the keys */

    copy_rows_async<Tile::HS, Tile::QUERIES>(q, args.qkv + head.q, head.qkv_row, first, args.shape);
    copy_rows_async<Tile::HS, Tile::QUERIES>(d_out, args.d_out + head.out, head.qkv_row / 3, first,
                                             args.shape);
    copy_keys<Tile>(k, v, args, head, 0);
    copy_async_wait<0>();
    __syncthreads();
    make_rows<Tile>(rows + warp_row, args, head, d_out + warp_row * Tile::STRIDE, warp_query);
    __syncwarp();
    QueriesState<Tile> state = {};
    load_left<Tile::HS>(state.q, q + warp_row * Tile::STRIDE);
    load_left<Tile::HS>(state.d_out, d_out + warp_row * Tile::STRIDE);
    int now = 0;
    for (int key = 0; key < end; key += Tile::KEYS) {
        int next = now ^ 1;
        if (key + Tile::KEYS < end) {
            copy_keys<Tile>(k + next * Tile::KEY_ELEMENTS, v + next * Tile::KEY_ELEMENTS, args, head,
                            key + Tile::KEYS);
        }
#pragma unroll 1
        for (int step = 0; step < Tile::KEYS; step += Tile::STEP) {
            int offset = now * Tile::KEY_ELEMENTS + step * Tile::STRIDE;
            /* With dropout the mask is lost among its random numbers: one kind of step does for all. */
            if (!Tile::HAS_DROPOUT && key + step + Tile::STEP <= warp_query + 1) {
                attend_step<Tile, false>(state, k + offset, v + offset, rows + warp_row, args, head,
                                         warp_query, key + step);
            } else if (key + step < warp_query + M * 16) { /* else no query of this warp sees one of them */
                attend_step<Tile, true>(state, k + offset, v + offset, rows + warp_row, args, head,
                                        warp_query, key + step);
            }
        }
        copy_async_wait<0>();
        __syncthreads(); /* the next tile is there, and this one is done with */
        now = next;
    }
    float factors[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
        factors[m][0] = factors[m][1] = args.scale.natural;
    }
    float *sums = (float *)k; /* of which nobody reads any more */
    sum_rows<Tile::HS>(sums, state.d_q, args.scale.natural);
    head = attention_head(args.shape, block_again() / tiles);
    store_rows<Tile::HS>(args.d_qkv + head.q, head.qkv_row, warp_query, args.shape, state.d_q, factors,
                         q + warp_row * Tile::STRIDE);
    store_sums<Tile::HS>(parts_of(args, head, tiles, first / Tile::QUERIES), sums, args.shape.HS);
}

template <typename Tile>
static void run(const TensorBackwardArgs &args, cudaStream_t stream)
{
    int64_t tiles = div_up(args.shape.T, Tile::QUERIES);
    unsigned blocks = (unsigned)(tiles * args.shape.B * args.shape.NH);
    launch(attention_d_queries_kernel<Tile>, blocks, TILE_THREADS, Tile::SHARED_BYTES, stream, args);
}

template <typename Tile>
static void prepare(void)
{
    allow_shared_bytes(attention_d_queries_kernel<Tile>, Tile::SHARED_BYTES);
}

static const TensorPath<TensorBackwardArgs> paths[] = {
    {32,
     {run<QueriesTile<32, false>>, run<QueriesTile<32, true>>},
     {prepare<QueriesTile<32, false>>, prepare<QueriesTile<32, true>>}},
    {64,
     {run<QueriesTile<64, false>>, run<QueriesTile<64, true>>},
     {prepare<QueriesTile<64, false>>, prepare<QueriesTile<64, true>>}},
    {96,
     {run<QueriesTile<96, false>>, run<QueriesTile<96, true>>},
     {prepare<QueriesTile<96, false>>, prepare<QueriesTile<96, true>>}},
    {128,
     {run<QueriesTile<128, false>>, run<QueriesTile<128, true>>},
     {prepare<QueriesTile<128, false>>, prepare<QueriesTile<128, true>>}},
};

int attention_tensor_tiles(const CudaAttention &shape, bool has_dropout)
{
    int HS = (int)div_up(shape.HS, 32) * 32;
    return (int)div_up(shape.T, TILE_WARPS * 16 * tile_row_groups(HS, has_dropout));
}

void attention_d_queries_tensor_prepare(void)
{
    tensor_path_prepare(paths);
}

void attention_d_queries_tensor(const TensorBackwardArgs &args, cudaStream_t stream)
{
    tensor_path_run(paths, args, stream);
}
