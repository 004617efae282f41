/* Gradients of keys and values. A block owns a tile of a head's keys, a warp M * 16 of them with both
 * gradients in registers; the queries from the tile on stream by with the gradients of their results.
 * Everything is transposed, (keys, queries), so that weights and gradients of scores are left operands as
 * they stand.  Source: arXiv:2205.14135, arXiv:2307.08691 */
#include "llmc/compute/cuda/attention_tile.cuh"

template <int HEAD_SIZE, bool DROPOUT>
struct KeysTile {
    static constexpr int HS = HEAD_SIZE;
    static constexpr bool HAS_DROPOUT = DROPOUT;
    static constexpr int M = tile_row_groups(HS, HAS_DROPOUT);
    static constexpr int KEYS = TILE_WARPS * M * 16;
    static constexpr int QUERIES = HS <= 64 ? 64 : 32;
    static constexpr int STEP = 32; /* queries of the tile at a time */
    static constexpr int STRIDE = HS + TILE_PAD;
    static constexpr int KEY_ELEMENTS = KEYS * STRIDE;
    static constexpr int QUERY_ELEMENTS = QUERIES * STRIDE;
    static constexpr int SHARED_BYTES =
        (2 * KEY_ELEMENTS + 4 * QUERY_ELEMENTS) * (int)sizeof(bf16) + 4 * QUERIES * (int)sizeof(float);
};

/* A warp's keys and values, and their gradients so far. */
template <typename Tile>
struct KeysState {
    const bf16 *k, *v; /* rows in shared memory */
    float d_k[Tile::M][Tile::HS / 8][4], d_v[Tile::M][Tile::HS / 8][4];
};

/* Queries that it meets, in shared memory. */
struct QueryRows {
    const bf16 *q, *d_out;
    const float *lse; /* in powers of 2; delta follows */
};

template <typename Tile>
static __device__ __forceinline__ void copy_queries(bf16 *q, bf16 *d_out, float *rows,
                                                    const TensorBackwardArgs &args, const AttentionHead &head,
                                                    int first)
{
    copy_rows_async<Tile::HS, Tile::QUERIES>(q, args.qkv + head.q, head.qkv_row, first, args.shape);
    copy_rows_async<Tile::HS, Tile::QUERIES>(d_out, args.d_out + head.out, head.qkv_row / 3, first,
                                             args.shape);
    copy_row_values_async<Tile::QUERIES>(rows, args.rows + head.rows, first, args.shape.T);
    copy_async_commit();
}

/* Scores become weights. `key` and `query` are those of this lane's first element. */
template <typename Tile, bool IS_DIAGONAL>
static __device__ __forceinline__ void make_weights(float (&scores)[Tile::M][Tile::STEP / 8][4],
                                                    const float *lse, const TensorBackwardArgs &args,
                                                    const AttentionHead &head, int key, int query)
{
#pragma unroll
    for (int n = 0; n < Tile::STEP / 8; n++) {
        float2 lse_pair = *(const float2 *)(lse + n * 8);
#pragma unroll
        for (int m = 0; m < Tile::M; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float offset = i % 2 == 0 ? lse_pair.x : lse_pair.y;
                scores[m][n][i] = exp2_fast(scores[m][n][i] * args.scale.log2 - offset);
                int own_query = query + n * 8 + i % 2;
                int own_key = key + m * 16 + i / 2 * 8;
                if (IS_DIAGONAL && key - query > n * 8 + i % 2 - m * 16 - i / 2 * 8) {
                    scores[m][n][i] = 0.0f;
                }
                if (Tile::HAS_DROPOUT) {
                    int64_t element = head.first_element + (int64_t)own_query * args.shape.T + own_key;
                    bool is_kept = dropout_factor(args.dropout, (uint64_t)element) > 0.0f;
                    scores[m][n][i] = is_kept ? scores[m][n][i] : -scores[m][n][i];
                }
            }
        }
    }
}

/* STEP queries against this warp's keys. IS_DIAGONAL: some of the keys are after some of the queries. */
template <typename Tile, bool IS_DIAGONAL>
static __device__ __forceinline__ void gather_step(KeysState<Tile> &state, const QueryRows &rows,
                                                   const TensorBackwardArgs &args, const AttentionHead &head,
                                                   int warp_key, int first_query)
{
    constexpr int M = Tile::M, N = Tile::STEP / 8;
    int lane = (int)threadIdx.x % WARP;
    float kept_factor = Tile::HAS_DROPOUT ? 1.0f / (1.0f - args.dropout.probability) : 1.0f;
    const float *lse = rows.lse + lane % 4 * 2;
    const float *delta = lse + Tile::QUERIES;
    float weights[M][N][4] = {};
    multiply_rows_transposed<Tile::HS>(weights, state.k, rows.q);
    make_weights<Tile, IS_DIAGONAL>(weights, lse, args, head, warp_key + lane / 4,
                                    first_query + lane % 4 * 2);
    float d_scores[M][N][4];
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        d_scores[i / (N * 4)][i / 4 % N][i % 4] =
            weight_seen<Tile::HAS_DROPOUT>(weights[i / (N * 4)][i / 4 % N][i % 4], kept_factor);
    }
    uint32_t left[M][N / 2][4];
    pack_left(left, d_scores);
    multiply<Tile::HS>(state.d_v, left, rows.d_out);
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        d_scores[i / (N * 4)][i / 4 % N][i % 4] = 0.0f;
    }
    multiply_rows_transposed<Tile::HS>(d_scores, state.v, rows.d_out);
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 delta_pair = *(const float2 *)(delta + n * 8);
#pragma unroll
        for (int i = 0; i < M * 4; i++) {
            float &d_score = d_scores[i / 4][n][i % 4];
            d_score = score_gradient<Tile::HAS_DROPOUT>(
                weights[i / 4][n][i % 4], d_score, i % 2 == 0 ? delta_pair.x : delta_pair.y, kept_factor);
        }
    }
    pack_left(left, d_scores);
    multiply<Tile::HS>(state.d_k, left, rows.q);
}

/* grid: heads times tiles of keys, those of a head side by side; the first has most queries. */
template <typename Tile>
static __global__ void __launch_bounds__(TILE_THREADS, 2) attention_d_keys_kernel(TensorBackwardArgs args)
{
    constexpr int M = Tile::M;
    bf16 *shared_k = (bf16 *)dynamic_shared();
    bf16 *shared_v = shared_k + Tile::KEY_ELEMENTS;
    bf16 *q = shared_v + Tile::KEY_ELEMENTS; /* two tiles, then two of d_out */
    bf16 *d_out = q + 2 * Tile::QUERY_ELEMENTS;
    float *rows = (float *)(d_out + 2 * Tile::QUERY_ELEMENTS); /* twice lse in powers of 2, then delta */
    int T = args.shape.T;
    int tiles = (T + Tile::KEYS - 1) / Tile::KEYS;
    AttentionHead head = attention_head(args.shape, (int)blockIdx.x / tiles);
    int first = (int)blockIdx.x % tiles * Tile::KEYS;
    int warp_row = (int)threadIdx.x / WARP * M * 16;
    int warp_key = first + warp_row;

    copy_rows_async<Tile::HS, Tile::KEYS>(shared_k, args.qkv + head.k, head.qkv_row, first, args.shape);
    copy_rows_async<Tile::HS, Tile::KEYS>(shared_v, args.qkv + head.v, head.qkv_row, first, args.shape);
    copy_queries<Tile>(q, d_out, rows, args, head, first);
    KeysState<Tile> state = {shared_k + warp_row * Tile::STRIDE, shared_v + warp_row * Tile::STRIDE, {}, {}};
    copy_async_wait<0>();
    __syncthreads();
    int now = 0;
    for (int query = first; query < T; query += Tile::QUERIES) {
        int next = now ^ 1;
        if (query + Tile::QUERIES < T) {
            copy_queries<Tile>(q + next * Tile::QUERY_ELEMENTS, d_out + next * Tile::QUERY_ELEMENTS,
                               rows + next * 2 * Tile::QUERIES, args, head, query + Tile::QUERIES);
        }
#pragma unroll 1
        for (int step = 0; step < Tile::QUERIES; step += Tile::STEP) {
            bool is_full = !Tile::HAS_DROPOUT && query + step + 1 >= warp_key + M * 16;
            if (query + step + Tile::STEP <= warp_key) {
                continue; /* no query of the step sees a key of this warp */
            }
            int offset = now * Tile::QUERY_ELEMENTS + step * Tile::STRIDE;
            QueryRows step_rows = {q + offset, d_out + offset, rows + now * 2 * Tile::QUERIES + step};
            if (is_full) {
                gather_step<Tile, false>(state, step_rows, args, head, warp_key, query + step);
            } else {
                gather_step<Tile, true>(state, step_rows, args, head, warp_key, query + step);
            }
        }
        copy_async_wait<0>();
        __syncthreads(); /* the next tile is there, and this one is done with */
        now = next;
    }
    float k_factors[M][2], v_factors[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
        k_factors[m][0] = k_factors[m][1] = args.scale.natural;
        v_factors[m][0] = v_factors[m][1] = 1.0f;
    }
    float *k_sums = (float *)q, *v_sums = k_sums + TILE_WARPS * Tile::HS; /* nobody reads q any more */
    sum_rows<Tile::HS>(k_sums, state.d_k, args.scale.natural);
    sum_rows<Tile::HS>(v_sums, state.d_v, 1.0f);
    head = attention_head(args.shape, block_again() / tiles);
    store_rows<Tile::HS>(args.d_qkv + head.k, head.qkv_row, warp_key, args.shape, state.d_k, k_factors,
                         shared_k + warp_row * Tile::STRIDE);
    store_rows<Tile::HS>(args.d_qkv + head.v, head.qkv_row, warp_key, args.shape, state.d_v, v_factors,
                         shared_v + warp_row * Tile::STRIDE);
    float *parts = parts_of(args, head, tiles, block_again() % tiles);
    store_sums<Tile::HS>(parts + head.qkv_row / 3, k_sums, args.shape.HS);
    store_sums<Tile::HS>(parts + head.qkv_row / 3 * 2, v_sums, args.shape.HS);
}

template <typename Tile>
static void run(const TensorBackwardArgs &args, cudaStream_t stream)
{
    int64_t tiles = div_up(args.shape.T, Tile::KEYS);
    unsigned blocks = (unsigned)(tiles * args.shape.B * args.shape.NH);
    launch(attention_d_keys_kernel<Tile>, blocks, TILE_THREADS, Tile::SHARED_BYTES, stream, args);
}

template <typename Tile>
static void prepare(void)
{
    allow_shared_bytes(attention_d_keys_kernel<Tile>, Tile::SHARED_BYTES);
}

static const TensorPath<TensorBackwardArgs> paths[] = {
    {32,
     {run<KeysTile<32, false>>, run<KeysTile<32, true>>},
     {prepare<KeysTile<32, false>>, prepare<KeysTile<32, true>>}},
    {64,
     {run<KeysTile<64, false>>, run<KeysTile<64, true>>},
     {prepare<KeysTile<64, false>>, prepare<KeysTile<64, true>>}},
    {96,
     {run<KeysTile<96, false>>, run<KeysTile<96, true>>},
     {prepare<KeysTile<96, false>>, prepare<KeysTile<96, true>>}},
    {128,
     {run<KeysTile<128, false>>, run<KeysTile<128, true>>},
     {prepare<KeysTile<128, false>>, prepare<KeysTile<128, true>>}},
};

void attention_d_keys_tensor_prepare(void)
{
    tensor_path_prepare(paths);
}

void attention_d_keys_tensor(const TensorBackwardArgs &args, cudaStream_t stream)
{
    tensor_path_run(paths, args, stream);
}
