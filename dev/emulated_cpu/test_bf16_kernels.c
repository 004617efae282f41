/* The kernels for AVX512_BF16 and AMX at all small sizes. Compiled twice: with the instructions of the CPU,
 * and with those of this folder, which any machine runs. Both give the same bits.
 */
#include "dev/emulated_cpu/available.h"
#include "dev/ops/test_ops.h"
#include "llmc/base/hash.h"
#include "llmc/compute/cpu/matmul.h"
#include "llmc/compute/cpu/x86/bf16_kernels.h"

enum { SIZE_MAX_TRIED = 70, GAP = 5, ROW = SIZE_MAX_TRIED + GAP };

static bf16 a_values[SIZE_MAX_TRIED * ROW], b_values[SIZE_MAX_TRIED * ROW];

/* Values of both signs and many magnitudes, denormal ones and zeros among them. */
static void draw(bf16 *values, int count, uint32_t slot)
{
    float *normal = test_values(count, 1.0f, slot);
    for (int i = 0; i < count; i++) {
        values[i] = bf16_from_float(i % 97 == 0 ? normal[i] * 0x1p-130f : i % 101 == 0 ? 0.0f : normal[i]);
    }
    memory_free(normal);
}

static float value_of(const bf16 *values, int stride, int is_transposed, int row, int column)
{
    return bf16_to_float(values[is_transposed ? column * stride + row : row * stride + column]);
}

/* Rounding of K products and sums, each of 2^-24 of the magnitudes; what is flushed adds less than 2^-100. */
static void check(const Matmul *product, const float *before, int row, int column)
{
    double sum = product->accumulates ? before[row * ROW + column] : 0, magnitude = fabs(sum);
    for (int k = 0; k < product->K; k++) {
        double a = value_of(product->a, (int)product->a_stride, product->is_a_transposed, row, k);
        double b = value_of(product->b, (int)product->b_stride, product->is_b_transposed, k, column);
        sum += a * b;
        magnitude += fabs(a * b);
    }
    double bound = (product->K + 2) * 0x1p-24 * magnitude + 0x1p-100;
    assert_close(product->out[row * ROW + column], sum, bound, "product", row * ROW + column);
}

/* One product; returns the hash of its bits. Rows of out have a gap that nobody may write to. */
static uint64_t try_sizes(const MatmulKernel *kernel, int M, int N, int K, int layout, uint64_t hash)
{
    static float before[SIZE_MAX_TRIED * ROW], out[SIZE_MAX_TRIED * ROW];
    int gap = 1 + (M + N + K) % GAP;
    Matmul product = {.a = a_values,
                      .b = b_values,
                      .in_type = DTYPE_BF16,
                      .is_a_transposed = layout & 1,
                      .is_b_transposed = layout >> 1 & 1,
                      .M = M,
                      .N = N,
                      .K = K,
                      .out = out,
                      .out_stride = ROW,
                      .accumulates = layout >> 2};
    product.a_stride = (product.is_a_transposed ? M : K) + gap;
    product.b_stride = (product.is_b_transposed ? K : N) + gap;
    for (int i = 0; i < SIZE_MAX_TRIED * ROW; i++) {
        before[i] = out[i] = (float)(i % 23 - 11);
    }
    matmul_with(kernel, &product);
    for (int row = 0; row < SIZE_MAX_TRIED; row++) {
        for (int column = 0; column < ROW; column++) {
            if (row >= M || column >= N) {
                assert_true(out[row * ROW + column] == before[row * ROW + column]);
            } else if ((row * 7 + column * 3 + K) % 16 == 0) {
                check(&product, before, row, column);
            }
        }
        if (row < M) {
            hash = hash_bytes(out + row * ROW, (size_t)N * sizeof(float), hash);
        }
    }
    return hash;
}

static void check_kernel(const MatmulKernel *kernel, uint64_t expected)
{
    if (!kernel_is_available(kernel)) {
        print_message("# %s: not on this machine\n", kernel->name);
        return;
    }
    draw(a_values, SIZE_MAX_TRIED * ROW, 1);
    draw(b_values, SIZE_MAX_TRIED * ROW, 2);
    uint64_t hash = 0;
    for (int M = 1; M <= SIZE_MAX_TRIED; M++) {
        for (int K = 1; K <= SIZE_MAX_TRIED; K++) {
            int N = 1 + (M * 29 + K * 43) % SIZE_MAX_TRIED;
            hash = try_sizes(kernel, M, N, K, (M + K) % 8, hash);
        }
    }
    if (hash != expected) {
        fail_msg("%s: bits %016llx, expected %016llx", kernel->name, (unsigned long long)hash,
                 (unsigned long long)expected);
    }
    assert_true(matmul_kernel_is_right(kernel));
}

static void test_avx512_bf16(void **state)
{
    (void)state;
    check_kernel(&matmul_avx512_bf16, 0x4a11614cd42f77a7);
}

static void test_amx(void **state)
{
    (void)state;
    check_kernel(&matmul_amx, 0xf70a788a49274e2f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_avx512_bf16), cmocka_unit_test(test_amx)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
