/* cublasLtMatmul against plain loops in double: transpositions, types, epilogues, leading dimensions. */
#include <math.h>

#include "test.h"

enum { M = 67, N = 9, K = 21, LD = 70 };

typedef struct Case {
    int is_a_transposed, is_b_transposed, epilogue;
    cudaDataType in, out;
    float alpha, beta;
} Case;

typedef struct Matrix {
    int rows, columns;
    cudaDataType type;
    float values[LD * LD]; /* column by column, LD apart, as rounded to type */
    void *device;
} Matrix;

static void upload(Matrix *matrix)
{
    static __nv_bfloat16 rounded[LD * LD];
    if (matrix->type == CUDA_R_32F) {
        matrix->device = on_device(matrix->values, LD * LD);
        return;
    }
    for (int i = 0; i < LD * LD; i++) {
        rounded[i] = __float2bfloat16_rn(matrix->values[i]);
        matrix->values[i] = __bfloat162float(rounded[i]);
    }
    matrix->device = on_device(rounded, LD * LD);
}

static void download(Matrix *matrix)
{
    static __nv_bfloat16 rounded[LD * LD];
    if (matrix->type == CUDA_R_32F) {
        from_device(matrix->values, (float *)matrix->device, LD * LD);
        return;
    }
    from_device(rounded, (__nv_bfloat16 *)matrix->device, LD * LD);
    for (int i = 0; i < LD * LD; i++) {
        matrix->values[i] = __bfloat162float(rounded[i]);
    }
}

static void fill(Matrix *matrix, int rows, int columns, cudaDataType type, unsigned int *state)
{
    matrix->rows = rows;
    matrix->columns = columns;
    matrix->type = type;
    for (int i = 0; i < LD * LD; i++) {
        matrix->values[i] = random_float(state);
    }
    upload(matrix);
}

static cublasLtMatrixLayout_t layout_of(const Matrix *matrix)
{
    cublasLtMatrixLayout_t layout;
    CUBLASLT_CHECK(cublasLtMatrixLayoutCreate(&layout, matrix->type, (uint64_t)matrix->rows,
                                              (uint64_t)matrix->columns, LD));
    return layout;
}

template <typename T>
static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, T value)
{
    CUBLASLT_CHECK(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof value));
}

/* *d = the product, by the first algorithm that the library proposes. */
static void multiply(const Case *c, const Matrix *a, const Matrix *b, Matrix *d, Matrix *bias, Matrix *aux)
{
    cublasLtHandle_t library;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    uint32_t split, scheme;
    size_t written;
    int count;
    CUBLASLT_CHECK(cublasLtCreate(&library));
    CUBLASLT_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, c->is_a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, c->is_b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, (cublasLtEpilogue_t)c->epilogue);
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias->device);
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias->type);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux->device);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)LD);
    CUBLASLT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    cublasLtMatrixLayout_t a_layout = layout_of(a), b_layout = layout_of(b), d_layout = layout_of(d);
    CUBLASLT_CHECK(cublasLtMatmulAlgoGetHeuristic(library, desc, a_layout, b_layout, d_layout, d_layout,
                                                  preference, 1, &result, &count));
    EXPECT(count == 1, "%d algorithms", count);
    CUBLASLT_CHECK(cublasLtMatmulAlgoConfigGetAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                                        sizeof split, &written));
    CUBLASLT_CHECK(cublasLtMatmulAlgoConfigGetAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                        &scheme, sizeof scheme, &written));
    EXPECT(split == 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE, "split %u, scheme %u", split, scheme);
    CUBLASLT_CHECK(cublasLtMatmul(library, desc, &c->alpha, a->device, a_layout, b->device, b_layout,
                                  &c->beta, d->device, d_layout, d->device, d_layout, &result.algo, NULL, 0,
                                  0));
    CUDA_CHECK(cudaDeviceSynchronize());
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(a_layout));
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(b_layout));
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(d_layout));
    CUBLASLT_CHECK(cublasLtMatmulDescDestroy(desc));
    CUBLASLT_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    CUBLASLT_CHECK(cublasLtDestroy(library));
}

static double at(const Matrix *matrix, int row, int column, int is_transposed)
{
    return is_transposed ? matrix->values[column + row * LD] : matrix->values[row + column * LD];
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* A wrong element differs by far more than the rounding of K sums, and of the output to its type. */
static void expect_close(const Case *c, const char *what, int row, int column, double found, double expected,
                         cudaDataType type)
{
    double tolerance = 1e-5 + (type == CUDA_R_32F ? 1e-5 : 0x1p-8) * (fabs(expected) + 0.01);
    EXPECT(fabs(found - expected) <= tolerance,
           "%s (%d,%d) is %g, expected %g; transposed %d %d, epilogue %d", what, row, column, found, expected,
           c->is_a_transposed, c->is_b_transposed, c->epilogue);
}

/* Sums along k of an input, or along n of the output. */
static void check_bias_gradient(const Case *c, const Matrix *a, const Matrix *b, const Matrix *d,
                                const Matrix *bias)
{
    int is_a = c->epilogue == CUBLASLT_EPILOGUE_BGRADA, is_b = c->epilogue == CUBLASLT_EPILOGUE_BGRADB;
    for (int i = 0; i < (is_b ? N : M); i++) {
        double sum = 0;
        for (int j = 0; j < (is_a || is_b ? K : N); j++) {
            sum += is_a   ? at(a, i, j, c->is_a_transposed)
                   : is_b ? at(b, j, i, c->is_b_transposed)
                          : at(d, i, j, 0);
        }
        expect_close(c, "bias gradient", i, 0, bias->values[i], sum, bias->type);
    }
}

static void check_case(const Case *c, unsigned int *state)
{
    static Matrix a, b, d, bias, aux, old;
    fill(&a, c->is_a_transposed ? K : M, c->is_a_transposed ? M : K, c->in, state);
    fill(&b, c->is_b_transposed ? N : K, c->is_b_transposed ? K : N, c->in, state);
    fill(&d, M, N, c->out, state);
    fill(&bias, M, 1, CUDA_R_32F, state);
    fill(&aux, M, N, c->out, state);
    old = d;
    Matrix *slopes_of = (Matrix *)malloc(sizeof aux);
    *slopes_of = aux;
    multiply(c, &a, &b, &d, &bias, &aux);
    download(&d);
    download(&aux);
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            double value = 0, step = 1e-4, x = at(slopes_of, i, j, 0);
            for (int k = 0; k < K; k++) {
                value += at(&a, i, k, c->is_a_transposed) * at(&b, k, j, c->is_b_transposed);
            }
            value = c->alpha * value + c->beta * at(&old, i, j, 0);
            value += c->epilogue & CUBLASLT_EPILOGUE_BIAS ? bias.values[i] : 0.0;
            if ((c->epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX) {
                expect_close(c, "aux", i, j, at(&aux, i, j, 0), value, aux.type);
            }
            value = c->epilogue & CUBLASLT_EPILOGUE_GELU ? gelu(value) : value;
            value *= c->epilogue & 64 ? (gelu(x + step) - gelu(x - step)) / (2 * step) : 1.0;
            expect_close(c, "D", i, j, at(&d, i, j, 0), value, d.type);
        }
    }
    for (int i = 0; i < LD * N; i++) {
        EXPECT(i % LD < M || d.values[i] == old.values[i], "wrote between the columns");
    }
    download(&bias);
    if (c->epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB | 16)) {
        check_bias_gradient(c, &a, &b, &d, &bias);
    }
    free(slopes_of);
}

template <int epilogue>
static void check_epilogue(void)
{
    unsigned int state = 1;
    static const cudaDataType types[3][2] = {
        {CUDA_R_32F, CUDA_R_32F}, {CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16BF, CUDA_R_32F}};
    for (auto &type : types) {
        for (int transposed = 0; transposed < 4; transposed++) {
            Case c = {transposed & 1, transposed >> 1, epilogue, type[0], type[1], 1.0f, 0.0f};
            check_case(&c, &state);
            c.alpha = -0.5f;
            c.beta = 1.0f;
            check_case(&c, &state);
        }
    }
}

static void check_refusals(void)
{
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b;
    cublasLtMatmulHeuristicResult_t result;
    int count = 1, wrong_size = 0;
    cublasLtHandle_t library;
    CUBLASLT_CHECK(cublasLtCreate(&library));
    EXPECT(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS,
           "TF32 is no fp32");
    CUBLASLT_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    EXPECT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &wrong_size,
                                          sizeof wrong_size) == CUBLAS_STATUS_INVALID_VALUE,
           "4 bytes for 8");
    CUBLASLT_CHECK(cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 4, 4, 4));
    CUBLASLT_CHECK(cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 5, 4, 5));
    cublasLtMatmulAlgoGetHeuristic(library, desc, a, b, a, a, NULL, 1, &result, &count);
    EXPECT(count == 0, "4 x 4 times 5 x 4");
}

/* The sum of one element's products in fp32, from k first to k end. */
static float sum_of(const Matrix *a, const Matrix *b, int row, int column, int first, int end)
{
    float sum = 0;
    for (int k = first; k < end; k++) {
        sum += (float)at(a, row, k, 0) * (float)at(b, k, column, 0);
    }
    return sum;
}

/* The first sums K as one, the second in halves. Each is made again from its settings. */
static void check_algorithms(void)
{
    static Matrix a, b, d;
    unsigned int state = 1, schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, found_parts;
    size_t space = 1 << 20, written;
    float one = 1, zero = 0;
    int count, is_different = 0;
    cublasLtHandle_t library;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t results[8], checked;
    void *workspace;
    fill(&a, M, K, CUDA_R_32F, &state);
    fill(&b, K, N, CUDA_R_32F, &state);
    fill(&d, M, N, CUDA_R_32F, &state);
    cublasLtMatrixLayout_t a_layout = layout_of(&a), b_layout = layout_of(&b), d_layout = layout_of(&d);
    CUDA_CHECK(cudaMalloc(&workspace, space));
    CUBLASLT_CHECK(cublasLtCreate(&library));
    CUBLASLT_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUBLASLT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CUBLASLT_CHECK(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    CUBLASLT_CHECK(cublasLtMatmulAlgoGetHeuristic(library, desc, a_layout, b_layout, d_layout, d_layout,
                                                  preference, 8, results, &count));
    EXPECT(count == 1, "%d algorithms without a workspace", count);
    CUBLASLT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                        &space, sizeof space));
    CUBLASLT_CHECK(cublasLtMatmulAlgoGetHeuristic(library, desc, a_layout, b_layout, d_layout, d_layout,
                                                  preference, 8, results, &count));
    EXPECT(count == 2, "%d algorithms", count);
    for (int parts = 1; parts <= 2; parts++) {
        cublasLtMatmulAlgo_t algo;
        unsigned int scheme = parts == 1 ? 0 : schemes, none = CUBLASLT_REDUCTION_SCHEME_INPLACE;
        CUBLASLT_CHECK(cublasLtMatmulAlgoConfigGetAttribute(
            &results[parts - 1].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &found_parts, 4, &written));
        CUBLASLT_CHECK(cublasLtMatmulAlgoInit(library, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                                              CUDA_R_32F, CUDA_R_32F, 1, &algo));
        CUBLASLT_CHECK(
            cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, 4));
        CUBLASLT_CHECK(
            cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &none, 4));
        EXPECT(cublasLtMatmulAlgoCheck(library, desc, a_layout, b_layout, d_layout, d_layout, &algo,
                                       &checked) != CUBLAS_STATUS_SUCCESS,
               "%d parts summed in place", parts);
        CUBLASLT_CHECK(
            cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, 4));
        EXPECT((int)found_parts == parts && memcmp(&algo, &results[parts - 1].algo, sizeof algo) == 0,
               "%u parts, expected %d", found_parts, parts);
        CUBLASLT_CHECK(cublasLtMatmul(library, desc, &one, a.device, a_layout, b.device, b_layout, &zero,
                                      d.device, d_layout, d.device, d_layout, &algo, workspace, space, 0));
        download(&d);
        for (int i = 0; i < M * N; i++) {
            int row = i % M, column = i / M, middle = parts == 1 ? K : K / 2;
            float whole = sum_of(&a, &b, row, column, 0, K), found = (float)at(&d, row, column, 0);
            float expected = sum_of(&a, &b, row, column, 0, middle) + sum_of(&a, &b, row, column, middle, K);
            EXPECT(found == expected, "%d parts: (%d,%d) is %.9g, expected %.9g", parts, row, column, found,
                   expected);
            is_different += whole != expected;
        }
    }
    EXPECT(is_different > 0, "the order of sums shows nowhere");
}

static void multiply_freed_memory(void)
{
    static Matrix a, b, d;
    unsigned int state = 1;
    Case c = {0, 0, CUBLASLT_EPILOGUE_DEFAULT, CUDA_R_32F, CUDA_R_32F, 1.0f, 0.0f};
    fill(&a, M, K, CUDA_R_32F, &state);
    fill(&b, K, N, CUDA_R_32F, &state);
    fill(&d, M, N, CUDA_R_32F, &state);
    CUDA_CHECK(cudaFree(b.device));
    multiply(&c, &a, &b, &d, &d, &d);
}

static const Test tests[] = {
    {"product with epilogue DEFAULT", check_epilogue<CUBLASLT_EPILOGUE_DEFAULT>, NULL},
    {"product with epilogue BIAS", check_epilogue<CUBLASLT_EPILOGUE_BIAS>, NULL},
    {"product with epilogue GELU", check_epilogue<CUBLASLT_EPILOGUE_GELU>, NULL},
    {"product with epilogue GELU_BIAS", check_epilogue<CUBLASLT_EPILOGUE_GELU_BIAS>, NULL},
    {"product with epilogue GELU_AUX", check_epilogue<CUBLASLT_EPILOGUE_GELU_AUX>, NULL},
    {"product with epilogue GELU_AUX_BIAS", check_epilogue<CUBLASLT_EPILOGUE_GELU_AUX_BIAS>, NULL},
    {"product with epilogue DGELU", check_epilogue<CUBLASLT_EPILOGUE_DGELU>, NULL},
    {"product with epilogue DGELU_BGRAD", check_epilogue<CUBLASLT_EPILOGUE_DGELU_BGRAD>, NULL},
    {"product with epilogue BGRADA", check_epilogue<CUBLASLT_EPILOGUE_BGRADA>, NULL},
    {"product with epilogue BGRADB", check_epilogue<CUBLASLT_EPILOGUE_BGRADB>, NULL},
    {"products that do not fit are refused", check_refusals, NULL},
    {"two algorithms, made again from their settings", check_algorithms, NULL},
    {"a product of freed memory", multiply_freed_memory, "cublasLtMatmul: B, 21 x 9 at"},
};

int main(void)
{
    return run_tests(tests, sizeof tests / sizeof *tests);
}
