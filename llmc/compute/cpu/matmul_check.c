/* Tries a kernel on this machine before anything depends on it. */
#include <omp.h>
#include <string.h>

#include "llmc/compute/cpu/matmul.h"

/* Odd sizes, more than one slice of any kernel, more than one panel both ways. */
enum { M = 35, N = 101, K = 775 };

/* a * b + c rounded once, without the instruction for it: as in lanes/soft/lanes.h. */
static float fused(float a, float b, float c)
{
    double product = (double)a * b, sum = product + c;
    double seen = sum - product, error = (product - (sum - seen)) + (c - seen);
    int64_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    if (error != 0 && (bits & 1) == 0) {
        bits += (error > 0) == (sum > 0) ? 1 : -1;
    }
    memcpy(&sum, &bits, sizeof(sum));
    return (float)sum;
}

/* Small whole numbers for bf16, whose sums are exact in any order; for fp32 values that need rounding. */
static float value_at(int i, DType type)
{
    int whole = (int)((uint32_t)i * 2654435761u >> 28) - 8;
    return type == DTYPE_BF16 ? (float)whole : (float)whole + (float)(i % 1021) * 0x1.9p-9f;
}

static int is_product_right(const Matmul *product, int slice_depth)
{
    for (int row = 0; row < M; row++) {
        for (int column = 0; column < N; column++) {
            float expected = 0, chain = 0;
            for (int k = 0; k < K; k++) {
                int a = product->is_a_transposed ? k * M + row : row * K + k;
                int b = product->is_b_transposed ? column * K + k : k * N + column;
                chain = fused(value_at(a, product->in_type), value_at(b, product->in_type), chain);
                if ((k + 1) % slice_depth == 0 || k + 1 == K) {
                    expected = k < slice_depth ? chain : expected + chain;
                    chain = 0;
                }
            }
            if (memcmp(&product->out[row * N + column], &expected, sizeof(expected)) != 0) {
                return 0;
            }
        }
    }
    return 1;
}

static int computes_right(const MatmulKernel *kernel)
{
    static float a[M * K], b[K * N], out[M * N];
    static bf16 a_low[M * K], b_low[K * N];
    DType type = kernel == &matmul_fp32 ? DTYPE_FP32 : DTYPE_BF16;
    for (int i = 0; i < M * K; i++) {
        a[i] = value_at(i, type);
        a_low[i] = bf16_from_float(a[i]);
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = value_at(i, type);
        b_low[i] = bf16_from_float(b[i]);
    }
    for (int layout = 0; layout < 4; layout++) {
        Matmul product = {.a = type == DTYPE_FP32 ? (const void *)a : a_low,
                          .b = type == DTYPE_FP32 ? (const void *)b : b_low,
                          .in_type = type,
                          .is_a_transposed = layout >> 1,
                          .is_b_transposed = layout & 1,
                          .a_stride = layout >> 1 ? M : K,
                          .b_stride = layout & 1 ? K : N,
                          .M = M,
                          .N = N,
                          .K = K,
                          .out = out,
                          .out_stride = N};
        matmul_with(kernel, &product);
        if (!is_product_right(&product, kernel->depth_max)) {
            return 0;
        }
    }
    return 1;
}

int matmul_kernel_is_right(const MatmulKernel *kernel)
{
    int threads = omp_get_max_threads();
    omp_set_num_threads(1); /* an instruction that is missing must be missed by the calling thread */
    int is_right = computes_right(kernel);
    omp_set_num_threads(threads);
    return is_right;
}
