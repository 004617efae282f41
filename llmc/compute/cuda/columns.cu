#include "llmc/compute/cuda/columns.cuh"

/* A block takes so many columns, or four times as many, and COLUMN_ROWS rows. */
enum { THREADS = 64 };

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

__global__ void __launch_bounds__(THREADS)
    column_parts_kernel(float *out, ColumnParts parts, int first, int columns)
{
    int column = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (column >= columns) {
        return;
    }
    float sum = 0;
#pragma unroll 16
    for (int i = 0; i < parts.count; i++) { /* few threads: each has many loads under way */
        sum += parts.parts[(int64_t)i * parts.stride + first + column];
    }
    out[column] = parts.accumulates ? out[column] + sum : sum;
}

void column_parts_sum(float *out, const ColumnParts *parts, int first, int columns, cudaStream_t stream)
{
    launch(column_parts_kernel, dim3((unsigned)div_up(columns, THREADS)), dim3(THREADS), 0, stream, out,
           *parts, first, columns);
}

void column_sums(float *out, Tensor inp, int64_t rows, int columns, int accumulates, float *partial,
                 cudaStream_t stream)
{
    int blocks = (int)div_up(rows, COLUMN_ROWS);
    int width = columns % 4 ? 1 : 4;
    dim3 grid((unsigned)div_up(columns, width * THREADS), (unsigned)blocks);
    WITH_TYPE(inp.type, launch(width == 1 ? column_blocks_kernel<T, 1> : column_blocks_kernel<T, 4>, grid,
                               dim3(THREADS), 0, stream, partial, (const T *)inp.data, rows, columns));
    ColumnParts parts = {partial, blocks, columns, accumulates};
    column_parts_sum(out, &parts, 0, columns, stream);
}
