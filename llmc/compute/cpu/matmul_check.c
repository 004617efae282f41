/* Tries a kernel on this machine before anything depends on it. */
#include <omp.h>
#include <string.h>

/* The multiply-add in plain arithmetic, at every level: the instruction is what is tried. */
#include "llmc/compute/cpu/lanes/soft/fma.h"
#include "llmc/compute/cpu/matmul.h"

/* Odd sizes, more than one slice of any kernel, more than one panel both ways. */
enum { M = 35, N = 101, K = 775 };

/* Element i of A or B, whichever way they are stored. Small whole numbers for bf16, whose sums are exact in
 * any order; for fp32 values that need rounding. */
static float value_at(int i, DType type)
{
    int whole = (int)((uint32_t)i * 2654435761u >> 28) - 8;
    return type == DTYPE_BF16 ? (float)whole : (float)whole + (float)(i % 1021) * 0x1.9p-9f;
}

/* expected (M,N): slices of K, each one chain, added up in order. */
static void multiply_plainly(float *expected, const float *a, const float *b, int slice_depth)
{
    for (int row = 0; row < M; row++) {
        for (int column = 0; column < N; column++) {
            float sum = 0;
            for (int first = 0; first < K; first += slice_depth) {
                float chain = 0;
                for (int k = first; k < K && k < first + slice_depth; k++) {
                    chain = fma_of(a[row * K + k], b[k * N + column], chain);
                }
                sum = first == 0 ? chain : sum + chain;
            }
            expected[row * N + column] = sum;
        }
    }
}

/* out, of DTYPE_FP32 or DTYPE_BF16 = in (rows,columns), or its transpose. */
static void store(void *out, const float *in, int rows, int columns, int is_transposed, DType type)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            int to = is_transposed ? j * rows + i : i * columns + j;
            if (type == DTYPE_FP32) {
                ((float *)out)[to] = in[i * columns + j];
            } else {
                ((bf16 *)out)[to] = bf16_from_float(in[i * columns + j]);
            }
        }
    }
}

static int computes_right(const MatmulKernel *kernel)
{
    static float a[M * K], b[K * N], stored_a[M * K], stored_b[K * N], expected[M * N], out[M * N];
    DType type = kernel->in_type;
    for (int i = 0; i < M * K; i++) {
        a[i] = value_at(i, type);
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = value_at(i + M * K, type);
    }
    multiply_plainly(expected, a, b, kernel->depth_max);
    for (int layout = 0; layout < 4; layout++) {
        int is_a_transposed = layout >> 1, is_b_transposed = layout & 1;
        store(stored_a, a, M, K, is_a_transposed, type);
        store(stored_b, b, K, N, is_b_transposed, type);
        Matmul product = {.a = stored_a,
                          .b = stored_b,
                          .in_type = type,
                          .is_a_transposed = is_a_transposed,
                          .is_b_transposed = is_b_transposed,
                          .a_stride = is_a_transposed ? M : K,
                          .b_stride = is_b_transposed ? K : N,
                          .M = M,
                          .N = N,
                          .K = K,
                          .out = out,
                          .out_stride = N};
        matmul_with(kernel, &product);
        if (memcmp(out, expected, sizeof(out)) != 0) {
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
