#include "llmc/compute/cuda/embedding.cuh"

#include "llmc/compute/cuda/dropout.cuh"
#include "llmc/compute/cuda/exact.cuh"

enum { THREADS = EMBEDDING_ROWS * 32, TOKEN_THREADS = 128, COLUMNS = 6 };

/* One warp a row: blocks stand side by side over the batch, so that those that run together read the same
 * rows of wpe. */
template <typename R, int W>
__global__ void __launch_bounds__(THREADS) embedding_forward_kernel(EmbeddingForward a)
{
    int position = (int)blockIdx.y * EMBEDDING_ROWS + (int)threadIdx.x / WARP;
    if (position >= a.T) {
        return;
    }
    int64_t row = (int64_t)blockIdx.x * a.T + position, offset = row * a.C;
    const float *token_row = a.wte + (int64_t)a.tokens[row] * a.C;
    const float *position_row = a.wpe + (int64_t)(a.first_position + position) * a.C;
#pragma unroll 4
    for (int i = W * ((int)threadIdx.x % WARP); i < a.C; i += W * WARP) {
        float values[W], added[W];
        values_load(values, token_row + i);
        values_load(added, position_row + i);
        for (int k = 0; k < W; k++) {
            values[k] += added[k];
        }
        drop(values, a.dropout, offset + i);
        values_store((R *)a.out.data + offset + i, values);
    }
}

void embedding_forward(const EmbeddingForward *args, cudaStream_t stream)
{
    dim3 grid((unsigned)(args->rows / args->T), (unsigned)div_up(args->T, EMBEDDING_ROWS));
    WITH_TYPE(args->out.type,
              (launch(args->C % 4 ? embedding_forward_kernel<T, 1> : embedding_forward_kernel<T, 4>, grid,
                      dim3(THREADS), 0, stream, *args)));
}

template <typename R>
__global__ void __launch_bounds__(THREADS) dropout_backward_kernel(R *d, int64_t count, Dropout dropout)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        value_store(d + i, value_load(d + i) * dropout_factor(dropout, (uint64_t)i));
    }
}

void dropout_backward(Tensor d, int64_t count, const Dropout *dropout, cudaStream_t stream)
{
    if (dropout->probability > 0) {
        dim3 grid((unsigned)div_up(count, THREADS));
        WITH_TYPE(d.type, launch(dropout_backward_kernel<T>, grid, dim3(THREADS), 0, stream, (T *)d.data,
                                 count, *dropout));
    }
}

template <typename R>
__global__ void __launch_bounds__(THREADS)
    positions_kernel(float *d_wpe, const R *d_out, int B, int64_t count, int accumulates)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    float sum = accumulates ? d_wpe[i] : 0.0f;
    for (int b = 0; b < B; b++) {
        sum += value_load(d_out + b * count + i);
    }
    d_wpe[i] = sum;
}

void embedding_backward_positions(float *d_wpe, Tensor d_out, int B, int T, int C, int accumulates,
                                  cudaStream_t stream)
{
    int64_t count = (int64_t)T * C;
    dim3 grid((unsigned)div_up(count, THREADS));
    WITH_TYPE(d_out.type, launch(positions_kernel<T>, grid, dim3(THREADS), 0, stream, d_wpe,
                                 (const T *)d_out.data, B, count, accumulates));
}

static __device__ __forceinline__ void add_token_gradient(const TokenGradients &out, int64_t element,
                                                          float sum)
{
    if (!out.sums) {
        out.gradients[element] += sum;
    } else if (fabsf(sum) <= out.limit) { /* false for a NaN */
        out.sums[element] += exact_from_float(sum);
    } else {
        count_bad(out.bad, out.not_finite, sum);
    }
}

/* One block a bin, and those beyond the last bin have nothing to do. Each thread has up to COLUMNS columns at
 * once, so that many loads are under way. A token's part of a row goes to partial (split_count,C). */
template <typename R>
__global__ void __launch_bounds__(TOKEN_THREADS)
    tokens_kernel(TokenGradients out, TokenBins bins, const R *d_out, int C, float *partial)
{
    int bin = (int)blockIdx.x;
    if (bin >= bins.device_counts[0]) {
        return;
    }
    bool is_part = bin < bins.device_counts[1];
    int64_t row = (int64_t)bins.tokens[bin] * C;
    int first = bins.starts[bin], end = bins.starts[bin + 1];
    for (int base = (int)threadIdx.x; base < C; base += COLUMNS * TOKEN_THREADS) {
        float sums[COLUMNS] = {};
#pragma unroll 4
        for (int i = first; i < end; i++) {
            const R *d_row = d_out + (int64_t)bins.positions[i] * C;
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                int column = base + k * TOKEN_THREADS;
                sums[k] += value_load(d_row +
                                      (column < C ? column : base)); /* loads without branches between them */
            }
        }
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            int column = base + k * TOKEN_THREADS;
            if (column < C && is_part) {
                partial[(int64_t)bin * C + column] = sums[k];
            } else if (column < C) {
                add_token_gradient(out, row + column, sums[k]);
            }
        }
    }
}

/* How many bins from this one on belong to its token; for every thread of the block. */
static __device__ int count_parts(const TokenBins &bins, int bin, int split_count)
{
    int count = 0, found;
    do {
        int other = bin + count + (int)threadIdx.x;
        found = __syncthreads_count(other < split_count && bins.tokens[other] == bins.tokens[bin]);
        count += found;
    } while (found == TOKEN_THREADS);
    return count;
}

/* The parts of a token's row, added by the block (of some columns) of its first bin; others do nothing. */
__global__ void __launch_bounds__(TOKEN_THREADS)
    token_parts_kernel(TokenGradients out, TokenBins bins, const float *partial, int C)
{
    int bin = (int)blockIdx.x, column = (int)(blockIdx.y * TOKEN_THREADS + threadIdx.x);
    int split_count = bins.device_counts[1];
    if (bin >= split_count || (bin > 0 && bins.tokens[bin - 1] == bins.tokens[bin])) {
        return;
    }
    int count = count_parts(bins, bin, split_count);
    if (column >= C) {
        return;
    }
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < count; i++) {
        sum += partial[(int64_t)(bin + i) * C + column];
    }
    add_token_gradient(out, (int64_t)bins.tokens[bin] * C + column, sum);
}

int64_t embedding_partial_count(int64_t rows, int C)
{
    return token_bins_split_max(rows, EMBEDDING_BIN_MAX) * C;
}

void embedding_backward_tokens(const TokenGradients *out, const TokenBins *bins, Tensor d_out, int C,
                               float *partial, cudaStream_t stream)
{
    WITH_TYPE(d_out.type, launch(tokens_kernel<T>, dim3((unsigned)bins->count_max), dim3(TOKEN_THREADS), 0,
                                 stream, *out, *bins, (const T *)d_out.data, C, partial));
    if (bins->split_max > 0) {
        dim3 grid((unsigned)bins->split_max, (unsigned)div_up(C, TOKEN_THREADS));
        launch(token_parts_kernel, grid, dim3(TOKEN_THREADS), 0, stream, *out, *bins, (const float *)partial,
               C);
    }
}
