/* Attention forward on the tensor cores. A block owns a tile of a head's queries, a warp M * 16 of them
 * with their running softmax in registers; keys and values stream by in tiles, the next one copied while
 * this one is at work.  Source: arXiv:2205.14135, arXiv:2307.08691 */
#include "llmc/compute/cuda/attention_tile.cuh"

template <int HEAD_SIZE, bool DROPOUT>
struct ForwardTile {
    static constexpr int HS = HEAD_SIZE;
    static constexpr bool HAS_DROPOUT = DROPOUT;
    static constexpr int M = tile_row_groups(HS, HAS_DROPOUT);
    static constexpr int QUERIES = TILE_WARPS * M * 16;
    static constexpr int KEYS = 64;
    static constexpr int STRIDE = HS + TILE_PAD;
    static constexpr int QUERY_ELEMENTS = QUERIES * STRIDE;
    static constexpr int KEY_ELEMENTS = KEYS * STRIDE;
    static constexpr int SHARED_BYTES = (QUERY_ELEMENTS + 4 * KEY_ELEMENTS) * (int)sizeof(bf16);
};

/* A warp's queries: running maximum of the raw scores, this lane's part of the running sum, weighted
 * values. */
template <typename Tile>
struct ForwardState {
    static constexpr int M = Tile::M;
    uint32_t q[M][Tile::HS / 16][4];
    float sums[M][Tile::HS / 8][4];
    float maximum[M][2], total[M][2];
};

/* How far a score may rise above the row's maximum, in powers of 2, before what was summed is brought to a
 * new one: weights up to 2^8 cost neither range nor precision, as all are divided by their sum. */
static const float MAXIMUM_SLACK = 8;

static __device__ __forceinline__ bool is_above(float score, float maximum, float scale)
{
    return (score - maximum) * scale > MAXIMUM_SLACK;
}

/* Raise the maximum of rows whose scores are far above it; what was summed before is brought to it. */
template <typename Tile>
static __device__ __forceinline__ void raise_maximum(ForwardState<Tile> &state,
                                                     const float (&scores)[Tile::M][8][4], float scale)
{
    float maximum[Tile::M][2];
    bool is_raised = false;
#pragma unroll
    for (int m = 0; m < Tile::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            maximum[m][half] = scores[m][0][half * 2];
#pragma unroll
            for (int n = 0; n < 8; n++) {
                maximum[m][half] =
                    fmaxf(maximum[m][half], fmaxf(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
            }
            is_raised |= is_above(maximum[m][half], state.maximum[m][half], scale);
        }
    }
    if (!__any_sync(0xffffffffu, is_raised)) {
        return;
    }
#pragma unroll
    for (int m = 0; m < Tile::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float highest = quad_max(maximum[m][half]);
            highest = is_above(highest, state.maximum[m][half], scale) ? highest : state.maximum[m][half];
            float factor = exp2_fast((state.maximum[m][half] - highest) * scale);
            state.maximum[m][half] = highest;
            state.total[m][half] *= factor;
#pragma unroll
            for (int n = 0; n < Tile::HS / 8; n++) {
                state.sums[m][n][half * 2] *= factor;
                state.sums[m][n][half * 2 + 1] *= factor;
            }
        }
    }
}

/* Scores become weights relative to the maximum. */
template <typename Tile>
static __device__ __forceinline__ void softmax_step(ForwardState<Tile> &state, float (&scores)[Tile::M][8][4],
                                                    float scale)
{
    raise_maximum<Tile>(state, scores, scale);
#pragma unroll
    for (int m = 0; m < Tile::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float offset = state.maximum[m][half] * scale;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int i = half * 2; i < half * 2 + 2; i++) {
                    scores[m][n][i] = exp2_fast(scores[m][n][i] * scale - offset);
                    sum += scores[m][n][i];
                }
            }
            state.total[m][half] += sum;
        }
    }
}

/* Keys after a query get no weight. `ahead`: how far this lane's first key is after its first query. */
template <int M>
static __device__ __forceinline__ void mask_scores(float (&scores)[M][8][4], int ahead)
{
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                bool is_seen = ahead <= m * 16 + i / 2 * 8 - n * 8 - i % 2;
                scores[m][n][i] = is_seen ? scores[m][n][i] : -INFINITY;
            }
        }
    }
}

template <int M>
static __device__ __forceinline__ void drop_weights(float (&weights)[M][8][4], const Dropout &dropout,
                                                    int64_t first_element, int T, int query, int key)
{
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t row = first_element + (int64_t)(query + m * 16 + half * 8) * T;
#pragma unroll
            for (int n = 0; n < 8; n++) {
                float2 kept = dropout_pair(dropout, (uint64_t)(row + key + n * 8));
                weights[m][n][half * 2] *= kept.x;
                weights[m][n][half * 2 + 1] *= kept.y;
            }
        }
    }
}

/* One tile of keys and values. */
template <typename Tile>
static __device__ __forceinline__ void attend(ForwardState<Tile> &state, const bf16 *k, const bf16 *v,
                                              const TensorForwardArgs &args, const AttentionHead &head,
                                              int warp_query, int first_key)
{
    constexpr int M = Tile::M;
    int lane = (int)threadIdx.x % WARP;
    int query = warp_query + lane / 4;
    int key = first_key + lane % 4 * 2;
    float scores[M][8][4] = {};
    multiply_transposed<Tile::HS>(scores, state.q, k);
    if (first_key + Tile::KEYS - 1 > warp_query) {
        mask_scores(scores, key - query);
    }
    softmax_step<Tile>(state, scores, args.scale.log2);
    if (Tile::HAS_DROPOUT) {
        drop_weights(scores, args.dropout, head.first_element, args.shape.T, query, key);
    }
    uint32_t weights[M][4][4];
    pack_left(weights, scores);
    multiply<Tile::HS>(state.sums, weights, v);
}

template <typename Tile>
static __device__ __forceinline__ void
forward_finish(ForwardState<Tile> &state, const TensorForwardArgs &args, const AttentionHead &head,
               int warp_query, bf16 *staging)
{
    constexpr int M = Tile::M;
    int lane = (int)threadIdx.x % WARP;
    float factors[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = warp_query + m * 16 + half * 8 + lane / 4;
            float total = quad_sum(state.total[m][half]);
            factors[m][half] = 1.0f / total;
            if (lane % 4 == 0 && query < args.shape.T) {
                args.lse[head.lse + query] = state.maximum[m][half] * args.scale.natural + logf(total);
            }
        }
    }
    store_rows<Tile::HS>(args.out + head.out, head.qkv_row / 3, warp_query, args.shape, state.sums, factors,
                         staging);
}

/* grid: heads times tiles of queries, the tiles of a head side by side, which share its keys in the cache;
 * the one with most keys first, so that no long one is left for the end. */
template <typename Tile>
static __global__ void __launch_bounds__(TILE_THREADS, 2) attention_forward_kernel(TensorForwardArgs args)
{
    bf16 *q = (bf16 *)dynamic_shared();
    bf16 *k = q + Tile::QUERY_ELEMENTS; /* two tiles, then two of v */
    bf16 *v = k + 2 * Tile::KEY_ELEMENTS;
    int T = args.shape.T;
    int tiles = (T + Tile::QUERIES - 1) / Tile::QUERIES;
    AttentionHead head = attention_head(args.shape, (int)blockIdx.x / tiles);
    int first = (tiles - 1 - (int)blockIdx.x % tiles) * Tile::QUERIES;
    int warp_row = (int)threadIdx.x / WARP * Tile::M * 16;
    int end = first + Tile::QUERIES < T ? first + Tile::QUERIES : T; /* of the keys */

    copy_rows_async<Tile::HS, Tile::QUERIES>(q, args.qkv + head.q, head.qkv_row, first, args.shape);
    copy_rows_async<Tile::HS, Tile::KEYS>(k, args.qkv + head.k, head.qkv_row, 0, args.shape);
    copy_rows_async<Tile::HS, Tile::KEYS>(v, args.qkv + head.v, head.qkv_row, 0, args.shape);
    copy_async_commit();
    ForwardState<Tile> state = {};
#pragma unroll
    for (int m = 0; m < Tile::M; m++) {
        state.maximum[m][0] = state.maximum[m][1] = -INFINITY;
    }
    copy_async_wait<0>();
    __syncthreads();
    load_left<Tile::HS>(state.q, q + warp_row * Tile::STRIDE);
    int now = 0;
    for (int key = 0; key < end; key += Tile::KEYS) {
        int next = now ^ 1;
        if (key + Tile::KEYS < end) {
            copy_rows_async<Tile::HS, Tile::KEYS>(k + next * Tile::KEY_ELEMENTS, args.qkv + head.k,
                                                  head.qkv_row, key + Tile::KEYS, args.shape);
            copy_rows_async<Tile::HS, Tile::KEYS>(v + next * Tile::KEY_ELEMENTS, args.qkv + head.v,
                                                  head.qkv_row, key + Tile::KEYS, args.shape);
            copy_async_commit();
        }
        if (key < first + warp_row + Tile::M * 16) { /* else no query of this warp sees a key of the tile */
            attend<Tile>(state, k + now * Tile::KEY_ELEMENTS, v + now * Tile::KEY_ELEMENTS, args, head,
                         first + warp_row, key);
        }
        copy_async_wait<0>();
        __syncthreads(); /* the next tile is there, and this one is done with */
        now = next;
    }
    forward_finish<Tile>(state, args, head, first + warp_row, q + warp_row * Tile::STRIDE);
}

template <typename Tile>
static void run(const TensorForwardArgs &args, cudaStream_t stream)
{
    int64_t tiles = div_up(args.shape.T, Tile::QUERIES);
    unsigned blocks = (unsigned)(tiles * args.shape.B * args.shape.NH);
    launch(attention_forward_kernel<Tile>, blocks, TILE_THREADS, Tile::SHARED_BYTES, stream, args);
}

template <typename Tile>
static void prepare(void)
{
    allow_shared_bytes(attention_forward_kernel<Tile>, Tile::SHARED_BYTES);
}

static const TensorPath<TensorForwardArgs> paths[] = {
    {32,
     {run<ForwardTile<32, false>>, run<ForwardTile<32, true>>},
     {prepare<ForwardTile<32, false>>, prepare<ForwardTile<32, true>>}},
    {64,
     {run<ForwardTile<64, false>>, run<ForwardTile<64, true>>},
     {prepare<ForwardTile<64, false>>, prepare<ForwardTile<64, true>>}},
    {96,
     {run<ForwardTile<96, false>>, run<ForwardTile<96, true>>},
     {prepare<ForwardTile<96, false>>, prepare<ForwardTile<96, true>>}},
    {128,
     {run<ForwardTile<128, false>>, run<ForwardTile<128, true>>},
     {prepare<ForwardTile<128, false>>, prepare<ForwardTile<128, true>>}},
};

void attention_forward_tensor_prepare(void)
{
    tensor_path_prepare(paths);
}

void attention_forward_tensor(const TensorForwardArgs &args, cudaStream_t stream)
{
    tensor_path_run(paths, args, stream);
}
