/* cuBLASLt's products, by plain loops: fp32 sums in the order of k, whatever the number of threads; or, by the
 * second algorithm, sums of the two halves of k, added last. */
#include "cublasLt.h"
#include "cuda_bf16.h"
#include "runtime.h"

#include <chrono>
#include <thread>

struct cublasLtContext {
    int unused;
};

struct HostMatmulDesc {
    cublasComputeType_t compute;
    int64_t attributes[32];
    bool is_set[32];
};

struct HostMatrixLayout {
    cudaDataType type;
    int64_t rows, columns, ld;
};

struct HostMatmulPreference {
    int64_t attributes[16];
};

/* ---- descriptions ------------------------------------------------------------------------------------- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *library)
{
    *library = new cublasLtContext();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t library)
{
    delete library;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return (size_t)setting("HOST_CUDA_CUBLASLT", 130000);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS            ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_INVALID_VALUE    ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                      : "CUBLAS_STATUS_NOT_SUPPORTED";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F || (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *desc = new HostMatmulDesc();
    (*desc)->compute = compute;
    (*desc)->attributes[CUBLASLT_MATMUL_DESC_EPILOGUE] = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

/* Copy an attribute of `bytes` bytes, all of which the library knows the size of, into 64 bits. */
static cublasStatus_t set(int64_t *attribute, const void *value, size_t bytes, size_t expected)
{
    if (!value || bytes != expected) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *attribute = 0;
    memcpy(attribute, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    bool is_wide = what == CUBLASLT_MATMUL_DESC_BIAS_POINTER ||
                   what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ||
                   what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD;
    desc->is_set[what] = true;
    return set(&desc->attributes[what], value, bytes, is_wide ? 8 : 4);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    if (type != CUDA_R_32F && type != CUDA_R_16BF) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *layout = new HostMatrixLayout{type, (int64_t)rows, (int64_t)columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new HostMatmulPreference();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    return set(&preference->attributes[what], value, bytes,
               what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4);
}

/* ---- algorithms ---------------------------------------------------------------------------------------
 * There is one, which may cut K into parts. Whoever wants another order of sums asks for more parts. */

enum { ALGORITHM = 1, PARTS_MAX = 8, REFUSES_EPILOGUES = 100, REFUSES_ALL = 101 };

static size_t attribute_bytes(cublasLtMatmulAlgoConfigAttributes_t what)
{
    return what >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
}

static uint32_t attribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what)
{
    uint32_t value;
    memcpy(&value, (const char *)algo->data + 4 * what, sizeof value);
    return value;
}

static void set_attribute(cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what,
                          uint32_t value)
{
    memcpy((char *)algo->data + 4 * what, &value, sizeof value);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what, void *value,
                                                    size_t bytes, size_t *written)
{
    uint32_t number = attribute(algo, what);
    if (bytes != attribute_bytes(what)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(value, &number, bytes);
    if (written) {
        *written = bytes;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    const void *value, size_t bytes)
{
    uint32_t number = 0;
    if (bytes != attribute_bytes(what) || what == CUBLASLT_ALGO_CONFIG_ID) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(&number, value, bytes);
    set_attribute(algo, what, number);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType, cudaDataType,
                                      cudaDataType, cudaDataType, cudaDataType, int id,
                                      cublasLtMatmulAlgo_t *algo)
{
    *algo = cublasLtMatmulAlgo_t();
    set_attribute(algo, CUBLASLT_ALGO_CONFIG_ID, (uint32_t)id);
    set_attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1);
    return id == ALGORITHM ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- the product -------------------------------------------------------------------------------------- */

struct Operand {
    HostMatrixLayout layout;
    unsigned char *data;
};

struct Product {
    int64_t m, n, k; /* of D = op(A) op(B): (m,k) (k,n) */
    Operand a, b, c, d, bias, aux;
    bool is_a_transposed, is_b_transposed;
    int epilogue, parts;    /* of k, one after the other, each summed by itself */
    bool rounds_in_between; /* the epilogue is a second pass over D */
    float alpha, beta;
};

static size_t element_bytes(const HostMatrixLayout &layout)
{
    return layout.type == CUDA_R_32F ? 4 : 2;
}

static float get(const Operand &x, int64_t row, int64_t column)
{
    const unsigned char *at = x.data + (row + column * x.layout.ld) * element_bytes(x.layout);
    return x.layout.type == CUDA_R_32F ? *(const float *)at : __bfloat162float(*(const __nv_bfloat16 *)at);
}

static void put(const Operand &x, int64_t row, int64_t column, float value)
{
    unsigned char *at = x.data + (row + column * x.layout.ld) * element_bytes(x.layout);
    if (x.layout.type == CUDA_R_32F) {
        *(float *)at = value;
    } else {
        *(__nv_bfloat16 *)at = __float2bfloat16_rn(value);
    }
}

static float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
}

/* One element of D from its sum. */
static void finish(const Product &p, int64_t row, int64_t column, float sum)
{
    float value = p.alpha * sum + (p.beta != 0 ? p.beta * get(p.c, row, column) : 0.0f);
    if (p.rounds_in_between) {
        put(p.d, row, column, value);
        value = get(p.d, row, column);
    }
    if (p.epilogue & CUBLASLT_EPILOGUE_BIAS) {
        value += get(p.bias, row, 0);
    }
    if (p.epilogue & CUBLASLT_EPILOGUE_GELU) {
        if (p.aux.data) {
            put(p.aux, row, column, value);
        }
        value = gelu(value);
    } else if (p.epilogue & 64) {
        value *= gelu_slope(get(p.aux, row, column));
    }
    put(p.d, row, column, value);
}

enum { TILE_ROWS = 64, TILE_COLUMNS = 4 };

/* Rows first .. first + TILE_ROWS of D. op(A)'s rows lie in `a` as (k, TILE_ROWS), zeros beyond its end. */
static void multiply_rows(const Product &p, int64_t first, const float *a, const float *b)
{
    for (int64_t column = 0; column < p.n; column += TILE_COLUMNS) {
        float totals[TILE_COLUMNS][TILE_ROWS] = {};
        for (int part = 0; part < p.parts; part++) {
            float sums[TILE_COLUMNS][TILE_ROWS] = {};
            for (int64_t k = p.k * part / p.parts; k < p.k * (part + 1) / p.parts; k++) {
                for (int j = 0; j < TILE_COLUMNS; j++) {
                    float factor = b[(column + j) * p.k + k];
                    for (int i = 0; i < TILE_ROWS; i++) {
                        sums[j][i] += a[k * TILE_ROWS + i] * factor;
                    }
                }
            }
            for (int j = 0; j < TILE_COLUMNS; j++) {
                for (int i = 0; i < TILE_ROWS; i++) {
                    totals[j][i] += sums[j][i];
                }
            }
        }
        for (int j = 0; j < TILE_COLUMNS && column + j < p.n; j++) {
            for (int i = 0; i < TILE_ROWS && first + i < p.m; i++) {
                finish(p, first + i, column + j, totals[j][i]);
            }
        }
    }
}

/* Sums along k of an input, or along n of the output; (m) or (n) fp32 or bf16. */
static void bias_gradient(const Product &p)
{
    bool is_b = p.epilogue == CUBLASLT_EPILOGUE_BGRADB, is_a = p.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (int64_t i = 0; i < (is_b ? p.n : p.m); i++) {
        float sum = 0;
        for (int64_t j = 0; j < (is_a || is_b ? p.k : p.n); j++) {
            if (is_a) {
                sum += p.is_a_transposed ? get(p.a, j, i) : get(p.a, i, j);
            } else if (is_b) {
                sum += p.is_b_transposed ? get(p.b, i, j) : get(p.b, j, i);
            } else {
                sum += get(p.d, i, j);
            }
        }
        put(p.bias, i, 0, sum);
    }
}

static void check_operand(const Operand &x, const char *name)
{
    size_t elements = (size_t)((x.layout.columns - 1) * x.layout.ld + x.layout.rows);
    if (x.data && memory_find(x.data, elements * element_bytes(x.layout))->kind == MEMORY_NONE) {
        check_failed(NULL, "cublasLtMatmul: %s, %lld x %lld at %p, is not inside a live allocation", name,
                     (long long)x.layout.rows, (long long)x.layout.columns, (void *)x.data);
    }
}

static void multiply(const Product &p)
{
    check_operand(p.a, "A");
    check_operand(p.b, "B");
    check_operand(p.c, "C");
    check_operand(p.d, "D");
    check_operand(p.bias, "the bias");
    check_operand(p.aux, "the epilogue's auxiliary matrix");
    std::vector<float> b((size_t)((p.n + TILE_COLUMNS) * p.k)); /* op(B), column by column */
#pragma omp parallel
    {
#pragma omp for
        for (int64_t j = 0; j < p.n; j++) {
            for (int64_t k = 0; k < p.k; k++) {
                b[(size_t)(j * p.k + k)] = p.is_b_transposed ? get(p.b, j, k) : get(p.b, k, j);
            }
        }
        std::vector<float> a((size_t)(TILE_ROWS * p.k));
#pragma omp for
        for (int64_t first = 0; first < p.m; first += TILE_ROWS) {
            for (int64_t k = 0; k < p.k; k++) {
                for (int i = 0; i < TILE_ROWS; i++) {
                    a[(size_t)(k * TILE_ROWS + i)] = first + i >= p.m    ? 0.0f
                                                     : p.is_a_transposed ? get(p.a, k, first + i)
                                                                         : get(p.a, first + i, k);
                }
            }
            multiply_rows(p, first, a.data(), b.data());
        }
    }
    if (p.epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB | 16)) {
        bias_gradient(p);
    }
}

/* Fill *p, without C's and the outputs' data; an error if the sizes or types do not fit together. */
static cublasStatus_t describe(Product *p, const HostMatmulDesc *desc, const HostMatrixLayout *a,
                               const HostMatrixLayout *b, const HostMatrixLayout *c,
                               const HostMatrixLayout *d)
{
    const int64_t *attributes = desc->attributes;
    p->epilogue = (int)attributes[CUBLASLT_MATMUL_DESC_EPILOGUE];
    p->is_a_transposed = attributes[CUBLASLT_MATMUL_DESC_TRANSA] == CUBLAS_OP_T;
    p->is_b_transposed = attributes[CUBLASLT_MATMUL_DESC_TRANSB] == CUBLAS_OP_T;
    p->m = d->rows;
    p->n = d->columns;
    p->k = p->is_a_transposed ? a->rows : a->columns;
    bool fits = (p->is_a_transposed ? a->columns : a->rows) == p->m &&
                (p->is_b_transposed ? b->rows : b->columns) == p->n &&
                (p->is_b_transposed ? b->columns : b->rows) == p->k && c->rows == p->m &&
                c->columns == p->n && a->ld >= a->rows && b->ld >= b->rows && c->ld >= c->rows &&
                d->ld >= d->rows && p->m > 0 && p->n > 0 && p->k > 0;
    if (!fits) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (a->type != b->type || c->type != d->type || (a->type == CUDA_R_32F && d->type != CUDA_R_32F)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    p->a = Operand{*a, NULL};
    p->b = Operand{*b, NULL};
    p->c = Operand{*c, NULL};
    p->d = Operand{*d, NULL};
    auto type = [&](cublasLtMatmulDescAttributes_t what) {
        return desc->is_set[what] ? (cudaDataType)attributes[what] : d->type;
    };
    int64_t bias_count = p->epilogue == CUBLASLT_EPILOGUE_BGRADB ? p->n : p->m;
    bool has_bias =
        p->epilogue & (CUBLASLT_EPILOGUE_BIAS | 16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB);
    p->bias = Operand{{type(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), bias_count, 1, bias_count},
                      has_bias ? (unsigned char *)attributes[CUBLASLT_MATMUL_DESC_BIAS_POINTER] : NULL};
    p->aux = Operand{
        {type(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE), p->m, p->n,
         attributes[CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD]},
        p->epilogue & 128 ? (unsigned char *)attributes[CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER] : NULL};
    bool is_missing =
        (has_bias && !p->bias.data) || (p->epilogue & 128 && (!p->aux.data || p->aux.layout.ld < p->m));
    return is_missing ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

/* The sums of parts are exchanged in fp32, through the workspace. */
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    Product product;
    uint32_t parts = attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    uint32_t scheme = attribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    *result = cublasLtMatmulHeuristicResult_t();
    result->algo = *algo;
    result->state = describe(&product, desc, a, b, c, d);
    if (result->state != CUBLAS_STATUS_SUCCESS) {
        return result->state;
    }
    bool is_known =
        attribute(algo, CUBLASLT_ALGO_CONFIG_ID) == ALGORITHM && parts >= 1 && parts <= PARTS_MAX &&
        parts <= product.k &&
        scheme == (parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE);
    bool is_left_out =
        (product.epilogue != CUBLASLT_EPILOGUE_DEFAULT && setting("HOST_CUDA_EPILOGUES", 1) == 0) ||
        ((product.epilogue & 16) && setting("HOST_CUDA_BGRAD", 1) == 0);
    if (!is_known || is_left_out || setting("HOST_CUDA_PRODUCTS", 1) == 0) {
        result->state = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    result->workspaceSize = parts > 1 ? (size_t)(product.m * product.n * parts) * sizeof(float) : 0;
    result->wavesCount = 1;
    return result->state;
}

/* Whether a product with GELU has so many rows (columns, as the library counts) that no algorithm is proposed
 * that computes it at once. */
static bool is_computed_twice(const HostMatmulDesc *desc, const HostMatrixLayout *d)
{
    return (desc->attributes[CUBLASLT_MATMUL_DESC_EPILOGUE] & 128) &&
           d->columns > setting("HOST_CUDA_GELU_ROWS", INT64_MAX);
}

/* First K as one, then in two parts. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t library, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    *found = 0;
    if (requested < 1) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (uint32_t parts = 1; parts <= 2 && *found < requested; parts++) {
        cublasLtMatmulHeuristicResult_t *result = &results[*found];
        cublasLtMatmulAlgo_t algo = cublasLtMatmulAlgo_t();
        uint32_t scheme = parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0;
        set_attribute(&algo, CUBLASLT_ALGO_CONFIG_ID, ALGORITHM);
        set_attribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, parts);
        set_attribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme);
        set_attribute(&algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, is_computed_twice(desc, d));
        cublasStatus_t status = cublasLtMatmulAlgoCheck(library, desc, a, b, c, d, &algo, result);
        if (status != CUBLAS_STATUS_SUCCESS) {
            return *found ? CUBLAS_STATUS_SUCCESS : status;
        }
        int64_t schemes = preference ? preference->attributes[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] : 0;
        int64_t space = preference ? preference->attributes[CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES] : 0;
        *found += (scheme & ~schemes) == 0 && (int64_t)result->workspaceSize <= space;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Products by other algorithms than the one of HOST_CUDA_PREFERS parts, and those whose epilogue is a second
 * pass, take ten times as long and more, so that what times them finds it the quickest also where the machine
 * is busy. */
static void multiply_at_leisure(const Product &product)
{
    long long preferred = setting("HOST_CUDA_PREFERS", 0);
    auto begin = std::chrono::steady_clock::now();
    multiply(product);
    if ((preferred > 0 && product.parts != preferred) || product.rounds_in_between) {
        auto took = std::chrono::steady_clock::now() - begin;
        std::this_thread::sleep_for(9 * took + std::chrono::milliseconds(product.rounds_in_between ? 20 : 2));
    }
}

/* Although AlgoCheck takes it. */
static bool is_refused(const HostMatmulDesc *desc, const cublasLtMatmulAlgo_t *algo)
{
    long long refused = setting("HOST_CUDA_REFUSES", 0);
    bool has_epilogue = desc->attributes[CUBLASLT_MATMUL_DESC_EPILOGUE] != CUBLASLT_EPILOGUE_DEFAULT;
    return refused == REFUSES_ALL || (refused == REFUSES_EPILOGUES && has_epilogue) ||
           refused == attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t library, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    Product product;
    cublasLtMatmulHeuristicResult_t checked;
    if (!library || !algo) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    cublasStatus_t status = cublasLtMatmulAlgoCheck(library, desc, a, b, c, d, algo, &checked);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (checked.workspaceSize > (workspace ? workspace_bytes : 0)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (is_refused(desc, algo)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    describe(&product, desc, a, b, c, d);
    product.parts = (int)attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    product.rounds_in_between = attribute(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION) == 1;
    product.alpha = *(const float *)alpha;
    product.beta = *(const float *)beta;
    product.a.data = (unsigned char *)A;
    product.b.data = (unsigned char *)B;
    product.c.data = product.beta != 0 ? (unsigned char *)C : NULL;
    product.d.data = (unsigned char *)D;
    return stream_enqueue(stream, [product] { multiply_at_leisure(product); })
               ? CUBLAS_STATUS_EXECUTION_FAILED
               : CUBLAS_STATUS_SUCCESS;
}
