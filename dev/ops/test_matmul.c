/* Matrix products against sums in double precision, and the promise that threads do not change a bit. */
#define _GNU_SOURCE
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/compute/cpu/matmul.h"

/* A product with its own inputs. Rows are stored with a gap that holds NaN, so that reading one shows. */
typedef struct Case {
    Matmul product;
    float *a, *b;          /* values, fp32, with stored layout and stride */
    bf16 *a_half, *b_half; /* the same in bf16 */
    float *before;         /* what accumulation adds to (M,N) */
    int gap;
} Case;

enum { GUARD = 16 };

static float *draw(int64_t rows, int64_t columns, int64_t stride, uint32_t slot, bf16 *half)
{
    float *values = memory_alloc((size_t)(rows * stride + GUARD), sizeof(float), "test input");
    RandomKey key = {.seed = 7, .purpose = RANDOM_TEST, .slot = slot};
    for (int64_t i = 0; i < rows * stride + GUARD; i++) {
        values[i] = NAN;
    }
    for (int64_t i = 0; i < rows; i++) {
        random_normal(values + i * stride, columns, 1.0f, &key, (uint64_t)(i * columns));
    }
    for (int64_t i = 0; i < rows * stride + GUARD; i++) {
        half[i] = bf16_from_float(values[i]);
        values[i] = bf16_to_float(half[i]);
    }
    return values;
}

static void case_init(Case *c, DType type, int a_transposed, int b_transposed, int M, int N, int K, int gap)
{
    memset(c, 0, sizeof(*c));
    int64_t a_rows = a_transposed ? K : M, a_columns = a_transposed ? M : K;
    int64_t b_rows = b_transposed ? N : K, b_columns = b_transposed ? K : N;
    c->gap = gap;
    c->product = (Matmul){.in_type = type,
                          .a_stride = a_columns + gap,
                          .b_stride = b_columns + gap,
                          .is_a_transposed = a_transposed,
                          .is_b_transposed = b_transposed,
                          .M = M,
                          .N = N,
                          .K = K,
                          .out_stride = N + gap};
    c->a_half = memory_alloc((size_t)(a_rows * c->product.a_stride + GUARD), sizeof(bf16), "test input");
    c->b_half = memory_alloc((size_t)(b_rows * c->product.b_stride + GUARD), sizeof(bf16), "test input");
    c->a = draw(a_rows, a_columns, c->product.a_stride, 1, c->a_half);
    c->b = draw(b_rows, b_columns, c->product.b_stride, 2, c->b_half);
    c->before = memory_alloc((size_t)M * (size_t)N, sizeof(float), "test input");
    RandomKey key = {.seed = 7, .purpose = RANDOM_TEST, .slot = 3};
    random_normal(c->before, (int64_t)M * N, 10.0f, &key, 0);
    c->product.a = type == DTYPE_FP32 ? (const void *)c->a : c->a_half;
    c->product.b = type == DTYPE_FP32 ? (const void *)c->b : c->b_half;
}

static void case_release(Case *c)
{
    memory_free(c->a);
    memory_free(c->b);
    memory_free(c->a_half);
    memory_free(c->b_half);
    memory_free(c->before);
}

static const char *case_name(const Case *c, const char *what)
{
    static char name[200];
    const Matmul *p = &c->product;
    snprintf(name, sizeof(name), "%s %s %c%c M %d N %d K %d gap %d", what,
             p->in_type == DTYPE_FP32 ? "fp32" : "bf16", p->is_a_transposed ? 'T' : 'N',
             p->is_b_transposed ? 'T' : 'N', p->M, p->N, p->K, c->gap);
    return name;
}

/* An element of the product in double precision, and the sum of magnitudes that bounds rounding. */
static double reference(const Case *c, int row, int column, double *magnitude)
{
    const Matmul *p = &c->product;
    double sum = 0;
    *magnitude = 0;
    for (int64_t k = 0; k < p->K; k++) {
        double a = c->a[p->is_a_transposed ? k * p->a_stride + row : row * p->a_stride + k];
        double b = c->b[p->is_b_transposed ? column * p->b_stride + k : k * p->b_stride + column];
        sum += a * b;
        *magnitude += fabs(a * b);
    }
    return sum;
}

/* Each of the K roundings of a sum errs by at most eps/2 = 2^-24 of it, with either sign: together less than
 * 6 sqrt(K) of them but for odds of 1 in 10^7 (Higham and Mary, doi:10.1137/18M1226312), and these inputs are
 * fixed. Every element of small products and a spread of the others is looked at. */
static void check_values(const Case *c, const float *out, int64_t stride, int accumulates, const char *what)
{
    int M = c->product.M, N = c->product.N;
    int64_t step = 1 + (int64_t)M * N * c->product.K / 20000000;
    for (int64_t i = 0; i < (int64_t)M * N; i += step) {
        int row = (int)(i / N), column = (int)(i % N);
        double magnitude, expected = reference(c, row, column, &magnitude);
        if (accumulates) {
            expected += c->before[i];
            magnitude += fabs(c->before[i]);
        }
        double found = out[row * stride + column];
        double bound = (6 * sqrt(c->product.K) + 2) * 0x1p-24 * magnitude;
        if (!(fabs(found - expected) <= bound)) {
            fail_msg("%s: (%d,%d) is %.9g, expected %.9g +- %.3g", case_name(c, what), row, column, found,
                     expected, bound);
        }
    }
}

static float *outputs(const Case *c)
{
    int64_t stride = c->product.out_stride;
    float *out = memory_alloc((size_t)(c->product.M * stride), sizeof(float), "test output");
    for (int row = 0; row < c->product.M; row++) {
        for (int64_t column = 0; column < stride; column++) {
            int is_gap = column >= c->product.N;
            out[row * stride + column] = is_gap ? -7.0f : c->before[(int64_t)row * c->product.N + column];
        }
    }
    return out;
}

static void check_gap(const Case *c, const float *out, const char *what)
{
    int64_t stride = c->product.out_stride;
    for (int row = 0; row < c->product.M; row++) {
        for (int64_t column = c->product.N; column < stride; column++) {
            if (out[row * stride + column] != -7.0f) {
                fail_msg("%s: wrote between rows, at row %d", case_name(c, what), row);
            }
        }
    }
}

/* An epilogue that copies the tile to `copy` and counts how often each element comes. */
typedef struct Collect {
    float *copy;
    int *visits;
    int N;
    const float *out; /* where tiles must lie, or NULL */
    int64_t out_stride;
    int misplaced;
} Collect;

static void collect(float *tile, int64_t stride, int row, int rows, int column, int columns, void *context)
{
    Collect *to = context;
    if (to->out != NULL && tile != to->out + row * to->out_stride + column) {
#pragma omp atomic
        to->misplaced++;
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) {
            int64_t element = (int64_t)(row + i) * to->N + column + j;
            to->copy[element] = tile[i * stride + j];
#pragma omp atomic
            to->visits[element]++;
        }
    }
}

static void check_case(Case *c, int accumulates)
{
    int64_t count = (int64_t)c->product.M * c->product.N;
    Matmul product = c->product;
    product.out = outputs(c);
    product.accumulates = accumulates;
    matmul(&product);
    check_values(c, product.out, product.out_stride, accumulates, accumulates ? "+=" : "=");
    check_gap(c, product.out, "=");

    Collect to = {.copy = memory_alloc((size_t)count, sizeof(float), "test"),
                  .visits = memory_alloc_zeroed((size_t)count, sizeof(int), "test"),
                  .N = c->product.N};
    Matmul handed_over = c->product;
    handed_over.epilogue = collect;
    handed_over.context = &to;
    for (int has_out = accumulates; has_out < 2; has_out++) {
        float *out = has_out ? outputs(c) : NULL;
        handed_over.out = out;
        handed_over.accumulates = accumulates;
        to.out = out;
        to.out_stride = handed_over.out_stride;
        memset(to.visits, 0, (size_t)count * sizeof(int));
        matmul(&handed_over);
        assert_int_equal(to.misplaced, 0);
        for (int64_t i = 0; i < count; i++) {
            if (to.visits[i] != 1) {
                fail_msg("%s: element %lld seen %d times", case_name(c, "epilogue"), (long long)i,
                         to.visits[i]);
            }
        }
        check_values(c, to.copy, c->product.N, accumulates, has_out ? "epilogue" : "scratch");
        memory_free(out);
    }
    memory_free(to.copy);
    memory_free(to.visits);
    memory_free(product.out);
}

/* The level without fused multiply-adds computes them slowly: there the larger products are left to the
 * others, whose bits are the same. */
static int is_too_slow(const int shape[3])
{
    return strcmp(CPU_LEVEL_NAME, "x86-64-v2") == 0 && (double)shape[0] * shape[1] * shape[2] > 8e6;
}

static void check_shapes(DType type, const int shapes[][3], int count)
{
    for (int i = 0; i < count; i++) {
        for (int layout = 0; layout < 4 && !is_too_slow(shapes[i]); layout++) {
            for (int gap = 0; gap <= 5; gap += 5) {
                Case c;
                case_init(&c, type, layout >> 1, layout & 1, shapes[i][0], shapes[i][1], shapes[i][2], gap);
                check_case(&c, 0);
                check_case(&c, 1);
                case_release(&c);
            }
        }
    }
}

#define SHAPES(...)                                                                                          \
    static const int shapes[][3] = {__VA_ARGS__};                                                            \
    check_shapes(DTYPE_FP32, shapes, (int)(sizeof(shapes) / sizeof(shapes[0])));                             \
    check_shapes(DTYPE_BF16, shapes, (int)(sizeof(shapes) / sizeof(shapes[0])))

static void test_smallest_products(void **state)
{
    (void)state;
    SHAPES({1, 1, 1}, {1, 1, 2}, {2, 1, 1}, {1, 3, 1}, {3, 5, 7}, {16, 16, 16}, {17, 15, 33}, {4, 60, 20},
           {20, 20, 20}, {5, 64, 48});
}

static void test_one_row_or_column(void **state)
{
    (void)state;
    SHAPES({1, 768, 768}, {1, 2305, 769}, {2, 770, 64}, {3, 1001, 127}, {4, 3072, 48}, {768, 1, 64},
           {999, 1, 513}, {600, 3, 31}, {900, 700, 1});
}

static void test_many_tiles(void **state)
{
    (void)state;
    SHAPES({256, 768, 768}, {257, 385, 300}, {384, 769, 1025}, {100, 1601, 48}, {1030, 66, 65},
           {64, 192, 3072});
}

static void test_deep_product(void **state)
{
    (void)state;
    SHAPES({40, 48, 50304}, {130, 70, 5001});
}

/* All of out, with this many threads, from inputs shifted by some bytes. */
static float *run_with(Case *c, int threads)
{
    float *out = outputs(c);
    Matmul product = c->product;
    product.out = out;
    product.accumulates = 1;
    omp_set_num_threads(threads);
    matmul(&product);
    assert_int_equal(omp_get_max_threads(), threads);
    return out;
}

static void test_same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    static const int shapes[][3] = {{256, 768, 768}, {257, 389, 1000}, {64, 48, 4096}, {1, 2304, 768},
                                    {3, 50304, 64},  {70, 70, 50304},  {1000, 48, 48}, {9, 9, 9},
                                    {30, 60, 50304}, {300, 2, 2000}};
    int threads_before = omp_get_max_threads();
    for (int i = 0; i < (int)(sizeof(shapes) / sizeof(shapes[0])) * 8; i++) {
        const int *shape = shapes[i / 8];
        if (is_too_slow(shape)) {
            continue;
        }
        Case c;
        case_init(&c, i & 4 ? DTYPE_BF16 : DTYPE_FP32, (i >> 1) & 1, i & 1, shape[0], shape[1], shape[2], 3);
        size_t bytes = (size_t)(c.product.M * c.product.out_stride) * sizeof(float);
        float *one = run_with(&c, 1);
        static const int threads[] = {1, 2, 3, 5, 2};
        for (int j = 0; j < (int)(sizeof(threads) / sizeof(threads[0])); j++) {
            float *many = run_with(&c, threads[j]);
            if (memcmp(one, many, bytes) != 0) {
                fail_msg("%s: other bits with %d threads", case_name(&c, "threads"), threads[j]);
            }
            memory_free(many);
        }
        memory_free(one);
        case_release(&c);
    }
    omp_set_num_threads(threads_before);
}

/* Each thread of a parallel region makes a product of its own. */
static void test_inside_a_parallel_region(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        Case c;
        case_init(&c, type ? DTYPE_BF16 : DTYPE_FP32, 0, 1, 150, 200, 300, 0);
        float *expected = run_with(&c, 2), *outs[4];
        size_t bytes = (size_t)(c.product.M * c.product.out_stride) * sizeof(float);
#pragma omp parallel for num_threads(4)
        for (int i = 0; i < 4; i++) {
            Matmul product = c.product;
            product.accumulates = 1;
            product.out = outs[i] = outputs(&c);
            matmul(&product);
        }
        for (int i = 0; i < 4; i++) {
            assert_memory_equal(outs[i], expected, bytes);
            memory_free(outs[i]);
        }
        memory_free(expected);
        case_release(&c);
    }
}

/* Where a row starts in memory must not matter, nor the row that a value lies in. */
static void test_same_bits_at_any_address(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        Case c;
        case_init(&c, type ? DTYPE_BF16 : DTYPE_FP32, 0, 1, 130, 200, 300, 0);
        float *expected = run_with(&c, 2);
        size_t bytes = (size_t)(c.product.M * c.product.out_stride) * sizeof(float);
        size_t element = (size_t)dtype_bytes(c.product.in_type);
        for (size_t shift = element; shift < 64; shift += 3 * element) {
            char *a = memory_alloc((130 * 300 + 64) * element, 1, "test"),
                 *b = memory_alloc((200 * 300 + 64) * element, 1, "test");
            memcpy(a + shift, c.product.a, 130 * 300 * element);
            memcpy(b + shift, c.product.b, 200 * 300 * element);
            Case moved = c;
            moved.product.a = a + shift;
            moved.product.b = b + shift;
            float *found = run_with(&moved, 2);
            assert_memory_equal(found, expected, bytes);
            memory_free(found);
            memory_free(a);
            memory_free(b);
        }
        memory_free(expected);
        case_release(&c);
    }
}

/* A kernel that is off by one in the last place of one sum of each tile, as on a CPU that fails. */
static void multiply_wrongly(const MatmulTile *tile)
{
    matmul_widened.multiply(tile);
    tile->out[0] = nextafterf(tile->out[0], INFINITY);
}

/* One row alone takes another way than the same row among others, to the same bits. */
static void test_one_row_has_the_bits_of_many(void **state)
{
    (void)state;
    static const int sizes[][2] = {{48, 128}, {1, 1}, {17, 127}, {33, 129}, {50, 391}, {100, 770}}; /* N, K */
    for (int i = 0; i < (int)(sizeof(sizes) / sizeof(sizes[0])) * 4; i++) {
        const MatmulKernel *kernel = i & 1 ? &matmul_widened : &matmul_fp32;
        Case c;
        case_init(&c, kernel->in_type, 0, 1, 3, sizes[i / 4][0], sizes[i / 4][1], 5);
        c.product.accumulates = (i >> 1) & 1;
        size_t bytes = (size_t)c.product.out_stride * sizeof(float);
        float *many = outputs(&c), *one = outputs(&c);
        Matmul product = c.product;
        product.out = many;
        matmul_with(kernel, &product);
        product.out = one;
        product.M = 1;
        matmul_with(kernel, &product);
        if (memcmp(one, many, bytes) != 0) {
            fail_msg("%s: other bits than among three rows", case_name(&c, "one row"));
        }
        memory_free(one);
        memory_free(many);
        case_release(&c);
    }
}

static void test_wrong_kernel_is_noticed(void **state)
{
    (void)state;
    assert_true(matmul_kernel_is_right(&matmul_fp32));
    assert_true(matmul_kernel_is_right(&matmul_widened));
    MatmulKernel wrong = matmul_widened;
    wrong.multiply = multiply_wrongly;
    assert_false(matmul_kernel_is_right(&wrong));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smallest_products),
        cmocka_unit_test(test_one_row_or_column),
        cmocka_unit_test(test_many_tiles),
        cmocka_unit_test(test_deep_product),
        cmocka_unit_test(test_same_bits_for_any_number_of_threads),
        cmocka_unit_test(test_inside_a_parallel_region),
        cmocka_unit_test(test_same_bits_at_any_address),
        cmocka_unit_test(test_one_row_has_the_bits_of_many),
        cmocka_unit_test(test_wrong_kernel_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
