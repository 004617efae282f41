/* Attention: the choice of path, and the plain path for fp32 and for head sizes that the tensor cores' does
 * not know. Read it beside llmc/compute/cpu/attention.c: the same tiles and the same running softmax.
 *
 *
 * Plain: a block of 16 x 16 threads owns 16 queries of a head (16 keys where gradients of keys and values
 * are made) and meets the others tile by tile in shared memory. Thread (row, part) makes one score of the
 * tile, and columns part, part + 16, ... of its row's result. */
#include "llmc/compute/cuda/attention.cuh"

#include "llmc/compute/cuda/attention_parts.cuh"
#include "llmc/compute/cuda/columns.cuh"

enum {
    PLAIN_TILE = 16,
    PLAIN_THREADS = PLAIN_TILE * PLAIN_TILE,
    PLAIN_COLUMNS = ATTENTION_HEAD_SIZE_MAX / PLAIN_TILE, /* of a thread */
    PLAIN_STRIDE = PLAIN_TILE + 1, /* of a tile of scores: columns in different banks */
    ROWS_LANES = 8,                /* lanes of a warp that share a query */
    ROWS_THREADS = 256,
};

/* Shared memory of the plain kernels: four tiles of rows (PLAIN_TILE, HS + 1) and two of scores. */
struct PlainTiles {
    float *rows[4];
    float *scores[2];
    int stride; /* of rows */
};

static int64_t plain_shared_bytes(int HS)
{
    return (4 * PLAIN_TILE * (HS + 1) + 2 * PLAIN_TILE * PLAIN_STRIDE) * (int64_t)sizeof(float);
}

static __device__ __forceinline__ PlainTiles plain_tiles(int HS)
{
    PlainTiles tiles;
    float *next = (float *)dynamic_shared();
    tiles.stride = HS + 1;
    for (int i = 0; i < 4; i++) {
        tiles.rows[i] = next;
        next += PLAIN_TILE * tiles.stride;
    }
    tiles.scores[0] = next;
    tiles.scores[1] = next + PLAIN_TILE * PLAIN_STRIDE;
    return tiles;
}

/* Rows first .. first + PLAIN_TILE - 1 of a head to shared memory; zeros from row T on. */
template <typename Number>
static __device__ void load_rows(float *shared, const Number *head, int64_t row_elements, int first,
                                 const CudaAttention &shape)
{
    for (int i = (int)threadIdx.x; i < PLAIN_TILE * shape.HS; i += PLAIN_THREADS) {
        int row = i / shape.HS;
        int column = i % shape.HS;
        bool is_valid = first + row < shape.T;
        shared[row * (shape.HS + 1) + column] =
            is_valid ? value_load(head + (first + row) * row_elements + column) : 0.0f;
    }
}

static __device__ float dot(const float *a, const float *b, int count)
{
    float sum = 0;
    for (int i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* sums[i] += the product of this thread's row of weights with column part + 16 * i of rows. */
static __device__ __forceinline__ void weigh_rows(float (&sums)[PLAIN_COLUMNS], const float *weights,
                                                  const float *rows, int stride, int part, int HS)
{
#pragma unroll
    for (int i = 0; i < PLAIN_COLUMNS; i++) {
        int column = part + PLAIN_TILE * i;
        if (column < HS) {
            for (int k = 0; k < PLAIN_TILE; k++) {
                sums[i] += weights[k] * rows[k * stride + column];
            }
        }
    }
}

template <typename Number>
static __device__ __forceinline__ void store_row(Number *row, const float (&sums)[PLAIN_COLUMNS], float scale,
                                                 int part, int HS)
{
#pragma unroll
    for (int i = 0; i < PLAIN_COLUMNS; i++) {
        int column = part + PLAIN_TILE * i;
        if (column < HS) {
            value_store(row + column, sums[i] * scale);
        }
    }
}

/* Softmax of one query while tiles of keys go by; all threads of the row keep the same. */
struct RunningSoftmax {
    float maximum, sum;
};

/* Scores of a row become weights relative to the new maximum, with dropout's factors. Returns the factor that
 * brings what was summed before to the new maximum. */
static __device__ __forceinline__ float softmax_step(RunningSoftmax &running, float (&weights)[PLAIN_TILE],
                                                     const float *scores, const float *kept)
{
    float maximum = running.maximum;
    for (int k = 0; k < PLAIN_TILE; k++) {
        maximum = fmaxf(maximum, scores[k]);
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < PLAIN_TILE; k++) {
        float weight = expf(scores[k] - maximum);
        sum += weight;
        weights[k] = weight * kept[k];
    }
    float factor = expf(running.maximum - maximum);
    running.sum = running.sum * factor + sum;
    running.maximum = maximum;
    return factor;
}

/* grid: (tiles of queries, heads) */
template <typename Number>
static __global__ void __launch_bounds__(PLAIN_THREADS, 1)
    attention_forward_plain(AttentionForwardArgs<Number> args)
{
    const CudaAttention &shape = args.shape;
    AttentionHead head = attention_head(shape, (int)blockIdx.x);
    PlainTiles tiles = plain_tiles(shape.HS);
    float *q = tiles.rows[0], *k = tiles.rows[1], *v = tiles.rows[2];
    float *scores = tiles.scores[0], *kept = tiles.scores[1];
    int row = (int)threadIdx.x / PLAIN_TILE, part = (int)threadIdx.x % PLAIN_TILE;
    int first = (int)blockIdx.y * PLAIN_TILE;
    int query = first + row;
    float scale = args.scale.natural;
    float sums[PLAIN_COLUMNS] = {};
    RunningSoftmax running = {-INFINITY, 0};
    load_rows(q, args.qkv + head.q, head.qkv_row, first, shape);
    for (int first_key = 0; first_key <= first; first_key += PLAIN_TILE) {
        int key = first_key + part;
        __syncthreads(); /* the tile before is done with */
        load_rows(k, args.qkv + head.k, head.qkv_row, first_key, shape);
        load_rows(v, args.qkv + head.v, head.qkv_row, first_key, shape);
        __syncthreads();
        float score = scale * dot(q + row * tiles.stride, k + part * tiles.stride, shape.HS);
        scores[row * PLAIN_STRIDE + part] = key <= query ? score : -INFINITY;
        kept[row * PLAIN_STRIDE + part] =
            dropout_factor(args.dropout, (uint64_t)(head.first_element + (int64_t)query * shape.T + key));
        __syncthreads();
        float weights[PLAIN_TILE];
        float factor = softmax_step(running, weights, scores + row * PLAIN_STRIDE, kept + row * PLAIN_STRIDE);
        for (int i = 0; i < PLAIN_COLUMNS; i++) {
            sums[i] *= factor;
        }
        weigh_rows(sums, weights, v, tiles.stride, part, shape.HS);
    }
    if (query < shape.T) {
        store_row(args.out + head.out + query * (head.qkv_row / 3), sums, 1.0f / running.sum, part, shape.HS);
        if (part == 0) {
            args.lse[head.lse + query] = running.maximum + logf(running.sum);
        }
    }
}

/* The weight of one key in one query's result, with dropout, and the gradient of its score. */
struct ScoreGradient {
    float weight, d_score;
};

template <typename Number>
static __device__ __forceinline__ ScoreGradient score_gradient(const AttentionBackwardArgs<Number> &args,
                                                               const AttentionHead &head, int query, int key,
                                                               float score, float d_weight)
{
    ScoreGradient result = {0, 0};
    if (key <= query && query < args.shape.T) {
        float kept = dropout_factor(args.dropout,
                                    (uint64_t)(head.first_element + (int64_t)query * args.shape.T + key));
        const float *rows = args.rows + head.rows + query;
        float weight = exp2f(score * LOG2_E - rows[0]);
        result.weight = weight * kept;
        result.d_score = weight * (d_weight * kept - rows[attention_padded_T(args.shape.T)]);
    }
    return result;
}

/* Gradient of the queries: as forward, with the gradients of the scores as weights of the keys. */
template <typename Number>
static __global__ void __launch_bounds__(PLAIN_THREADS, 1)
    attention_d_queries_plain(AttentionBackwardArgs<Number> args)
{
    const CudaAttention &shape = args.shape;
    AttentionHead head = attention_head(shape, (int)blockIdx.x);
    PlainTiles tiles = plain_tiles(shape.HS);
    float *q = tiles.rows[0], *d_out = tiles.rows[1], *k = tiles.rows[2], *v = tiles.rows[3];
    float *d_scores = tiles.scores[0];
    int row = (int)threadIdx.x / PLAIN_TILE, part = (int)threadIdx.x % PLAIN_TILE;
    int first = (int)blockIdx.y * PLAIN_TILE;
    float scale = args.scale.natural;
    float sums[PLAIN_COLUMNS] = {};
    load_rows(q, args.qkv + head.q, head.qkv_row, first, shape);
    load_rows(d_out, args.d_out + head.out, head.qkv_row / 3, first, shape);
    for (int first_key = 0; first_key <= first; first_key += PLAIN_TILE) {
        __syncthreads(); /* the tile before is done with */
        load_rows(k, args.qkv + head.k, head.qkv_row, first_key, shape);
        load_rows(v, args.qkv + head.v, head.qkv_row, first_key, shape);
        __syncthreads();
        float score = scale * dot(q + row * tiles.stride, k + part * tiles.stride, shape.HS);
        float d_weight = dot(d_out + row * tiles.stride, v + part * tiles.stride, shape.HS);
        d_scores[row * PLAIN_STRIDE + part] =
            score_gradient(args, head, first + row, first_key + part, score, d_weight).d_score;
        __syncthreads();
        weigh_rows(sums, d_scores + row * PLAIN_STRIDE, k, tiles.stride, part, shape.HS);
    }
    if (first + row < shape.T) {
        store_row(args.d_qkv + head.q + (first + row) * head.qkv_row, sums, scale, part, shape.HS);
    }
}

/* Gradients of keys and values: a row of threads owns a key and meets the queries from it on. */
template <typename Number>
static __global__ void __launch_bounds__(PLAIN_THREADS, 1)
    attention_d_keys_plain(AttentionBackwardArgs<Number> args)
{
    const CudaAttention &shape = args.shape;
    AttentionHead head = attention_head(shape, (int)blockIdx.x);
    PlainTiles tiles = plain_tiles(shape.HS);
    float *k = tiles.rows[0], *v = tiles.rows[1], *q = tiles.rows[2], *d_out = tiles.rows[3];
    float *weights = tiles.scores[0], *d_scores = tiles.scores[1];
    int row = (int)threadIdx.x / PLAIN_TILE, part = (int)threadIdx.x % PLAIN_TILE;
    int first = (int)blockIdx.y * PLAIN_TILE;
    float scale = args.scale.natural;
    float d_k[PLAIN_COLUMNS] = {}, d_v[PLAIN_COLUMNS] = {};
    load_rows(k, args.qkv + head.k, head.qkv_row, first, shape);
    load_rows(v, args.qkv + head.v, head.qkv_row, first, shape);
    for (int first_query = first; first_query < shape.T; first_query += PLAIN_TILE) {
        __syncthreads(); /* the tile before is done with */
        load_rows(q, args.qkv + head.q, head.qkv_row, first_query, shape);
        load_rows(d_out, args.d_out + head.out, head.qkv_row / 3, first_query, shape);
        __syncthreads();
        float score = scale * dot(q + part * tiles.stride, k + row * tiles.stride, shape.HS);
        float d_weight = dot(d_out + part * tiles.stride, v + row * tiles.stride, shape.HS);
        ScoreGradient gradient = score_gradient(args, head, first_query + part, first + row, score, d_weight);
        weights[row * PLAIN_STRIDE + part] = gradient.weight;
        d_scores[row * PLAIN_STRIDE + part] = gradient.d_score;
        __syncthreads();
        weigh_rows(d_v, weights + row * PLAIN_STRIDE, d_out, tiles.stride, part, shape.HS);
        weigh_rows(d_k, d_scores + row * PLAIN_STRIDE, q, tiles.stride, part, shape.HS);
    }
    if (first + row < shape.T) {
        store_row(args.d_qkv + head.k + (first + row) * head.qkv_row, d_k, scale, part, shape.HS);
        store_row(args.d_qkv + head.v + (first + row) * head.qkv_row, d_v, 1.0f, part, shape.HS);
    }
}

/* args.rows, which the plain kernels read; those on the tensor cores make them on the way. */
template <typename Number>
static __global__ void __launch_bounds__(ROWS_THREADS)
    attention_row_values(AttentionBackwardArgs<Number> args)
{
    const CudaAttention &shape = args.shape;
    int padded_T = attention_padded_T(shape.T);
    int64_t item = ((int64_t)blockIdx.x * ROWS_THREADS + threadIdx.x) / ROWS_LANES; /* of (B,NH,padded T) */
    int lane = (int)threadIdx.x % ROWS_LANES;
    int64_t head_item = item / padded_T;
    int t = (int)(item % padded_T);
    bool is_valid = t < shape.T && head_item < (int64_t)shape.B * shape.NH;
    float sum = 0;
    if (is_valid) {
        AttentionHead head = attention_head(shape, (int)head_item);
        int64_t first = head.out + t * (int64_t)(head.qkv_row / 3);
        for (int i = lane; i < shape.HS; i += ROWS_LANES) {
            sum += value_load(args.d_out + first + i) * value_load(args.out + first + i);
        }
    }
    for (int other = ROWS_LANES / 2; other > 0; other /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, other);
    }
    if (lane == 0 && head_item < (int64_t)shape.B * shape.NH) {
        float *own = args.rows + head_item * 2 * padded_T + t;
        own[0] = is_valid ? args.lse[head_item * shape.T + t] * LOG2_E : INFINITY;
        own[padded_T] = sum;
    }
}

/* ---- launches ------------------------------------------------------------------------------------------ */

static dim3 plain_grid(const CudaAttention &shape)
{
    return dim3((unsigned)(shape.B * shape.NH), (unsigned)div_up(shape.T, PLAIN_TILE));
}

template <typename Number>
static void prepare_plain(void)
{
    size_t shared_bytes = (size_t)plain_shared_bytes(ATTENTION_HEAD_SIZE_MAX);
    allow_shared_bytes(attention_forward_plain<Number>, shared_bytes);
    allow_shared_bytes(attention_d_queries_plain<Number>, shared_bytes);
    allow_shared_bytes(attention_d_keys_plain<Number>, shared_bytes);
}

template <typename Number>
static void forward_plain(void *out, float *lse, const void *qkv, const CudaAttention &shape,
                          const Dropout &dropout, cudaStream_t stream)
{
    AttentionForwardArgs<Number> args = {(Number *)out,          lse,    (const Number *)qkv, shape,
                                         attention_scale(shape), dropout};
    launch(attention_forward_plain<Number>, plain_grid(shape), PLAIN_THREADS,
           (size_t)plain_shared_bytes(shape.HS), stream, args);
}

template <typename Number>
static AttentionBackwardArgs<Number> backward_args(const CudaAttentionBackward &args,
                                                   const CudaAttention &shape)
{
    return {(Number *)args.d_qkv,
            (const Number *)args.d_out,
            (const Number *)args.qkv,
            (const Number *)args.out,
            args.lse,
            (float *)args.scratch,
            args.partial,
            shape,
            attention_scale(shape),
            *args.dropout};
}

template <typename Number>
static void backward_plain(const CudaAttentionBackward &args, const CudaAttention &shape, cudaStream_t stream)
{
    AttentionBackwardArgs<Number> plain = backward_args<Number>(args, shape);
    size_t shared_bytes = (size_t)plain_shared_bytes(shape.HS);
    int64_t threads = (int64_t)shape.B * shape.NH * attention_padded_T(shape.T) * ROWS_LANES;
    launch(attention_row_values<Number>, (unsigned)div_up(threads, ROWS_THREADS), ROWS_THREADS, 0, stream,
           plain);
    launch(attention_d_queries_plain<Number>, plain_grid(shape), PLAIN_THREADS, shared_bytes, stream, plain);
    launch(attention_d_keys_plain<Number>, plain_grid(shape), PLAIN_THREADS, shared_bytes, stream, plain);
    column_sums(args.d_bias, Tensor{args.d_qkv, shape.dtype}, (int64_t)shape.B * shape.T,
                3 * shape.NH * shape.HS, args.accumulates, args.partial, stream);
}

static void backward_tensor(const CudaAttentionBackward &args, const CudaAttention &shape,
                            cudaStream_t stream)
{
    TensorBackwardArgs tensor = backward_args<bf16>(args, shape);
    attention_d_queries_tensor(tensor, stream); /* which makes the rows that the next reads */
    attention_d_keys_tensor(tensor, stream);
    int columns = 3 * shape.NH * shape.HS;
    int parts = shape.B * attention_tensor_tiles(shape, tensor.dropout.probability > 0);
    ColumnParts sums = {args.partial, parts, columns, columns, args.accumulates, {args.d_bias}};
    column_parts_sum(&sums, stream);
}

void attention_prepare(void)
{
    prepare_plain<float>();
    prepare_plain<__nv_bfloat16>();
    attention_forward_tensor_prepare();
    attention_d_keys_tensor_prepare();
    attention_d_queries_tensor_prepare();
}

bool attention_is_on_tensor_cores(const CudaAttention *shape)
{
    return attention_has_tensor_path(*shape);
}

void attention_forward_cuda(void *out, float *lse, const void *qkv, const CudaAttention *shape,
                            const Dropout *dropout, cudaStream_t stream)
{
    if (attention_has_tensor_path(*shape)) {
        TensorForwardArgs args = {(bf16 *)out, lse, (const bf16 *)qkv, *shape, attention_scale(*shape),
                                  *dropout};
        attention_forward_tensor(args, stream);
    } else {
        WITH_TYPE(shape->dtype, forward_plain<T>(out, lse, qkv, *shape, *dropout, stream));
    }
}

int64_t attention_scratch_bytes(const CudaAttention *shape)
{
    return (int64_t)shape->B * shape->NH * 2 * attention_padded_T(shape->T) * (int64_t)sizeof(float);
}

int64_t attention_partial_count(const CudaAttention *shape)
{
    int columns = 3 * shape->NH * shape->HS;
    return attention_has_tensor_path(*shape)
               ? (int64_t)shape->B * attention_tensor_tiles(*shape, true) * columns
               : column_partial_count((int64_t)shape->B * shape->T, columns);
}

void attention_backward_cuda(const CudaAttentionBackward *args, const CudaAttention *shape,
                             cudaStream_t stream)
{
    if (attention_has_tensor_path(*shape)) {
        backward_tensor(*args, *shape, stream);
    } else {
        WITH_TYPE(shape->dtype, backward_plain<T>(*args, *shape, stream));
    }
}
