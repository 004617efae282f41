#include "llmc/compute/cuda/matmul.cuh"

#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/compute/cuda/gelu.cuh"

enum {
    PLANS_MAX = 256, /* a model needs about forty, decoding as many again */
    ALIGNMENT_MAX = 256,
    CANDIDATES = 8
};
static const size_t WORKSPACE_BYTES = 32u << 20;

/* What decides how a product is computed; compared as bytes. */
typedef struct PlanKey {
    int M, N, K;
    int is_a_transposed, is_b_transposed, accumulates;
    int in_type, out_type, epilogue;
    int out_alignment, a_alignment, b_alignment;
} PlanKey;

typedef struct Plan {
    PlanKey key;
    int is_found; /* 0: the library has no algorithm for it */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
} Plan;

struct Matmuls {
    cublasLtHandle_t library;
    void *workspace;
    Plan plans[PLANS_MAX];
    int count; /* how many were made: from PLANS_MAX on, the oldest makes room */
};

size_t matmuls_bytes(void)
{
    return WORKSPACE_BYTES;
}

Matmuls *matmuls_create(void)
{
    Matmuls *matmuls = (Matmuls *)memory_alloc_zeroed(1, sizeof(Matmuls), "matrix product plans");
    CUBLASLT_CHECK(cublasLtCreate(&matmuls->library));
    CUDA_CHECK(cudaMalloc(&matmuls->workspace, WORKSPACE_BYTES));
    return matmuls;
}

static int kept_plans(const Matmuls *matmuls)
{
    return matmuls->count < PLANS_MAX ? matmuls->count : PLANS_MAX;
}

static void release_plan(Plan *plan)
{
    CUBLASLT_CHECK(cublasLtMatmulDescDestroy(plan->operation));
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(plan->a));
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(plan->b));
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(plan->out));
}

void matmuls_free(Matmuls *matmuls)
{
    if (matmuls == NULL) {
        return;
    }
    for (int i = 0; i < kept_plans(matmuls); i++) {
        release_plan(&matmuls->plans[i]);
    }
    CUDA_CHECK(cudaFree(matmuls->workspace));
    CUBLASLT_CHECK(cublasLtDestroy(matmuls->library));
    memory_free(matmuls);
}

/* ---- plans ------------------------------------------------------------------------------------------------
 * The library counts columns first: what is (M,N) here is (N,M) there. So its first input is our b, its
 * second our a, and its output is ours. */

static int alignment_of(const void *data)
{
    uintptr_t address = (uintptr_t)data;
    int alignment = ALIGNMENT_MAX;
    while (address % (uintptr_t)alignment) {
        alignment /= 2;
    }
    return alignment;
}

static PlanKey key_of(const Matmul *product)
{
    PlanKey key;
    memset(&key, 0, sizeof(key));
    key.M = product->M;
    key.N = product->N;
    key.K = product->K;
    key.is_a_transposed = product->is_a_transposed;
    key.is_b_transposed = product->is_b_transposed;
    key.accumulates = product->accumulates;
    key.in_type = product->a.type;
    key.out_type = product->out.type;
    key.epilogue = product->epilogue;
    key.out_alignment = alignment_of(product->out.data);
    key.a_alignment = alignment_of(product->a.data);
    key.b_alignment = alignment_of(product->b.data);
    return key;
}

static cudaDataType_t type_of(int type)
{
    return type == DTYPE_FP32 ? CUDA_R_32F : CUDA_R_16BF;
}

static cublasLtMatrixLayout_t layout_of(int type, int rows, int columns)
{
    cublasLtMatrixLayout_t layout;
    CUBLASLT_CHECK(
        cublasLtMatrixLayoutCreate(&layout, type_of(type), (uint64_t)columns, (uint64_t)rows, columns));
    return layout;
}

template <typename T>
static void set_operation(Plan *plan, cublasLtMatmulDescAttributes_t what, T value)
{
    CUBLASLT_CHECK(cublasLtMatmulDescSetAttribute(plan->operation, what, &value, sizeof(value)));
}

static void set_epilogue(Plan *plan)
{
    static const cublasLtEpilogue_t epilogues[MATMUL_EPILOGUES] = {
        CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU};
    int epilogue = plan->key.epilogue;
    set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[epilogue]);
    if (epilogue == MATMUL_BIAS || epilogue == MATMUL_BIAS_GELU) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(plan->key.out_type));
    }
    if (epilogue == MATMUL_BIAS_GELU || epilogue == MATMUL_GELU_BACKWARD) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)plan->key.N);
        set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(plan->key.out_type));
    }
}

/* The pointers matter to the heuristic only by their alignment. */
static void set_pointers(Plan *plan, const Matmul *product)
{
    if (product->epilogue == MATMUL_BIAS || product->epilogue == MATMUL_BIAS_GELU) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product->bias);
    }
    if (product->epilogue == MATMUL_BIAS_GELU || product->epilogue == MATMUL_GELU_BACKWARD) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product->before);
    }
}

template <typename T>
static void set_preference(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
                           T value)
{
    CUBLASLT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)));
}

/* The library wants rows of whole eights for GELU's auxiliary matrix. How exact its GELU is, it does not say:
 * fp32 has our own. */
static int library_has_epilogue(const Matmul *product)
{
    return product->epilogue < MATMUL_BIAS_GELU ||
           (product->out.type == DTYPE_BF16 && product->N % 8 == 0 && alignment_of(product->before) >= 16);
}

/* The first algorithm that the library proposes. It may split K only if it sums the parts in a fixed order,
 * from the workspace, and in fp32. */
static int find_algorithm(Matmuls *matmuls, Plan *plan)
{
    const PlanKey *key = &plan->key;
    cublasLtMatmulPreference_t preference;
    cublasLtReductionScheme_t own_type =
        key->out_type == DTYPE_FP32 ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    CUBLASLT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (size_t)WORKSPACE_BYTES);
    set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   (uint32_t)(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | own_type));
    set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->b_alignment);
    set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->a_alignment);
    set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->out_alignment);
    set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->out_alignment);
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int count = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(matmuls->library, plan->operation, plan->a, plan->b, plan->out,
                                       plan->out, preference, CANDIDATES, results, &count);
    CUBLASLT_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS) {
            plan->algorithm = results[i].algo;
            return 1;
        }
    }
    return 0;
}

static Plan *make_plan(Matmuls *matmuls, const PlanKey *key, const Matmul *product)
{
    Plan *plan = &matmuls->plans[matmuls->count % PLANS_MAX];
    if (matmuls->count++ >= PLANS_MAX) { /* prompts of many lengths */
        release_plan(plan);
    }
    plan->key = *key;
    CUBLASLT_CHECK(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set_operation(plan, CUBLASLT_MATMUL_DESC_TRANSA, key->is_b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_operation(plan, CUBLASLT_MATMUL_DESC_TRANSB, key->is_a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_epilogue(plan);
    set_pointers(plan, product);
    plan->a = key->is_b_transposed ? layout_of(key->in_type, key->N, key->K)
                                   : layout_of(key->in_type, key->K, key->N);
    plan->b = key->is_a_transposed ? layout_of(key->in_type, key->K, key->M)
                                   : layout_of(key->in_type, key->M, key->K);
    plan->out = layout_of(key->out_type, key->M, key->N);
    plan->is_found = find_algorithm(matmuls, plan);
    return plan;
}

static Plan *plan_of(Matmuls *matmuls, const Matmul *product)
{
    PlanKey key = key_of(product);
    for (int i = 0; i < kept_plans(matmuls); i++) {
        if (memcmp(&matmuls->plans[i].key, &key, sizeof(key)) == 0) {
            return &matmuls->plans[i];
        }
    }
    return make_plan(matmuls, &key, product);
}

/* ---- the product
 * ------------------------------------------------------------------------------------------ */

static void run_plan(Matmuls *matmuls, Plan *plan, const Matmul *product, cudaStream_t stream)
{
    const float one = 1.0f, beta = product->accumulates ? 1.0f : 0.0f;
    set_pointers(plan, product);
    CUBLASLT_CHECK(cublasLtMatmul(matmuls->library, plan->operation, &one, product->b.data, plan->a,
                                  product->a.data, plan->b, &beta, product->out.data, plan->out,
                                  product->out.data, plan->out, &plan->algorithm, matmuls->workspace,
                                  WORKSPACE_BYTES, stream));
}

enum { THREADS = 256 };

template <typename T>
__global__ void __launch_bounds__(THREADS) bias_kernel(T *out, const T *bias, int64_t count, int columns)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        value_store(out + i, value_load(out + i) + value_load(bias + i % columns));
    }
}

/* The epilogue by a kernel of our own, after a product with a simpler one. */
static void matmul_in_parts(Matmuls *matmuls, const Matmul *product, cudaStream_t stream)
{
    Matmul simpler = *product;
    int64_t count = (int64_t)product->M * product->N;
    Tensor before = {product->before, product->out.type};
    dim3 grid((unsigned)div_up(count, THREADS));
    simpler.epilogue = product->epilogue == MATMUL_BIAS_GELU ? MATMUL_BIAS : MATMUL_PLAIN;
    if (product->epilogue == MATMUL_BIAS_GELU) {
        simpler.out = before;
    }
    matmul(matmuls, &simpler, stream);
    if (product->epilogue == MATMUL_BIAS) {
        WITH_TYPE(product->out.type,
                  launch(bias_kernel<T>, grid, dim3(THREADS), 0, stream, (T *)product->out.data,
                         (const T *)product->bias, count, product->N));
    } else if (product->epilogue == MATMUL_BIAS_GELU) {
        gelu_forward(product->out, before, count, stream);
    } else {
        gelu_backward(product->out, before, count, stream);
    }
}

void matmul(Matmuls *matmuls, const Matmul *product, cudaStream_t stream)
{
    if (library_has_epilogue(product)) {
        Plan *plan = plan_of(matmuls, product);
        if (plan->is_found) {
            run_plan(matmuls, plan, product, stream);
            return;
        }
    }
    CHECK(product->epilogue != MATMUL_PLAIN, "cuBLASLt has no algorithm for a product of %d x %d x %d",
          product->M, product->N, product->K);
    matmul_in_parts(matmuls, product, stream);
}
