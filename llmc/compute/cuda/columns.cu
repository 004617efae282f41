#include "llmc/compute/cuda/columns.cuh"

/* A block takes so many columns, or four times as many, and COLUMN_ROWS rows. */
enum { THREADS = 64 };

/* A block adds up the parts of as many columns as a warp has lanes: each warp some of them, then one all. */
enum { PART_WARPS = 16, PART_THREADS = PART_WARPS * 32 };

int64_t column_partial_count(int64_t rows, int columns)
{
    return div_up(rows, COLUMN_ROWS) * columns;
}

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    column_blocks_kernel(float *partial, const T *inp, int64_t rows, int columns)
{
    int column = W * (int)(blockIdx.x * THREADS + threadIdx.x);
    if (column >= columns) {
        return;
    }
    int64_t first = (int64_t)blockIdx.y * COLUMN_ROWS;
    int64_t end = first + COLUMN_ROWS < rows ? first + COLUMN_ROWS : rows;
    float sums[W] = {};
#pragma unroll 8
    for (int64_t row = first; row < end; row++) {
        float values[W];
        values_load(values, inp + row * columns + column);
        for (int k = 0; k < W; k++) {
            sums[k] += values[k];
        }
    }
    values_store(partial + (int64_t)blockIdx.y * columns + column, sums);
}

/* Warp w adds parts w, w + PART_WARPS, ..; the first adds what they found, in the order of the warps. */
__global__ void __launch_bounds__(PART_THREADS) column_parts_kernel(ColumnParts parts)
{
    float *sums = (float *)dynamic_shared(); /* (PART_WARPS, WARP) */
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int column = (int)blockIdx.x * WARP + lane, piece = (int)blockIdx.y;
    float *out = parts.out[piece];
    if (!out) {
        return;
    }
    float sum = 0;
    if (column < parts.columns) {
        const float *from = parts.parts + piece * parts.columns + column;
#pragma unroll 8
        for (int i = warp; i < parts.count; i += PART_WARPS) {
            sum += from[(int64_t)i * parts.stride];
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp > 0 || column >= parts.columns) {
        return;
    }
    sum = parts.accumulates ? out[column] : 0.0f;
    for (int w = 0; w < PART_WARPS; w++) {
        sum += sums[w * WARP + lane];
    }
    out[column] = sum;
}

void column_parts_sum(const ColumnParts *parts, cudaStream_t stream)
{
    int pieces = COLUMN_OUTS;
    while (pieces > 1 && !parts->out[pieces - 1]) {
        pieces--;
    }
    dim3 grid((unsigned)div_up(parts->columns, WARP), (unsigned)pieces);
    launch(column_parts_kernel, grid, dim3(PART_THREADS), PART_THREADS * sizeof(float), stream, *parts);
}

void column_sums(float *out, Tensor inp, int64_t rows, int columns, int accumulates, float *partial,
                 cudaStream_t stream)
{
    int blocks = (int)div_up(rows, COLUMN_ROWS);
    int width = columns % 4 ? 1 : 4;
    dim3 grid((unsigned)div_up(columns, width * THREADS), (unsigned)blocks);
    WITH_TYPE(inp.type, launch(width == 1 ? column_blocks_kernel<T, 1> : column_blocks_kernel<T, 4>, grid,
                               dim3(THREADS), 0, stream, partial, (const T *)inp.data, rows, columns));
    ColumnParts parts = {partial, blocks, columns, columns, accumulates, {out}};
    column_parts_sum(&parts, stream);
}
