#include "llmc/compute/cuda/matmul_plans.cuh"

#include <string.h>

#include "llmc/base/memory.h"

static_assert((int)MATMUL_EPILOGUES == (int)PLAN_EPILOGUES, "plans name every epilogue");

enum { ALIGNMENT_MAX = 256 };

/* ---- descriptions -----------------------------------------------------------------------------------------
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

static ProductKey key_of(const Matmul *product)
{
    ProductKey key;
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

static int is_gelu(const ProductKey *key)
{
    return key->epilogue >= MATMUL_BIAS_GELU;
}

static void set_epilogue(Plan *plan)
{
    static const cublasLtEpilogue_t epilogues[MATMUL_EPILOGUES] = {
        CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD};
    int epilogue = plan->key.epilogue;
    set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogues[epilogue]);
    if (epilogue == MATMUL_BIAS || epilogue == MATMUL_BIAS_GELU) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(plan->key.out_type));
    } else if (epilogue == MATMUL_GELU_BACKWARD_BIAS) { /* as the gradients of all parameters */
        set_operation(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    }
    if (is_gelu(&plan->key)) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)plan->key.N);
        set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(plan->key.out_type));
    }
}

/* The pointers matter to the heuristic only by their alignment. */
void matmuls_set_pointers(Plan *plan, const Matmul *product)
{
    if (product->epilogue == MATMUL_BIAS || product->epilogue == MATMUL_BIAS_GELU) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product->bias);
    } else if (product->epilogue == MATMUL_GELU_BACKWARD_BIAS) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, (void *)product->bias_partial);
    }
    if (is_gelu(&plan->key)) {
        set_operation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product->before);
    }
}

/* Everything but the algorithm. */
static void describe(Plan *plan, const ProductKey *key, const Matmul *product)
{
    plan->key = *key;
    plan->example = *product;
    plan->is_found = 0;
    plan->tried = 0;
    plan->uses = 0;
    CUBLASLT_CHECK(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set_operation(plan, CUBLASLT_MATMUL_DESC_TRANSA, key->is_b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_operation(plan, CUBLASLT_MATMUL_DESC_TRANSB, key->is_a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_epilogue(plan);
    matmuls_set_pointers(plan, product);
    plan->a = key->is_b_transposed ? layout_of(key->in_type, key->N, key->K)
                                   : layout_of(key->in_type, key->K, key->N);
    plan->b = key->is_a_transposed ? layout_of(key->in_type, key->K, key->M)
                                   : layout_of(key->in_type, key->M, key->K);
    plan->out = layout_of(key->out_type, key->M, key->N);
}

void matmuls_release_plan(Plan *plan)
{
    CUBLASLT_CHECK(cublasLtMatmulDescDestroy(plan->operation));
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(plan->a));
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(plan->b));
    CUBLASLT_CHECK(cublasLtMatrixLayoutDestroy(plan->out));
}

/* ---- what the library proposes ------------------------------------------------------------------------- */

/* Parts of K may only be summed in a fixed order, from the workspace, and in fp32. */
static uint32_t allowed_schemes(const ProductKey *key)
{
    return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
           (key->out_type == DTYPE_FP32 ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE
                                        : CUBLASLT_REDUCTION_SCHEME_NONE);
}

template <typename T>
static void set_preference(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
                           T value)
{
    CUBLASLT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)));
}

/* The algorithms that the library proposes, best first. Returns how many there are. */
static int ask_library(cublasLtMatmulAlgo_t algorithms[PROPOSALS_MAX], Matmuls *matmuls, const Plan *plan)
{
    const ProductKey *key = &plan->key;
    cublasLtMatmulPreference_t preference;
    CUBLASLT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (size_t)WORKSPACE_BYTES);
    set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, allowed_schemes(key));
    set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->b_alignment);
    set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->a_alignment);
    set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->out_alignment);
    set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->out_alignment);
    cublasLtMatmulHeuristicResult_t results[PROPOSALS_MAX];
    int count = 0, good = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(matmuls->library, plan->operation, plan->a, plan->b, plan->out,
                                       plan->out, preference, PROPOSALS_MAX, results, &count);
    CUBLASLT_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS) {
            algorithms[good++] = results[i].algo;
        }
    }
    return good;
}

/* ---- an algorithm's settings ------------------------------------------------------------------------------
 * Attributes of its configuration, which make it again in another process, where its bytes may not. */

static const struct {
    cublasLtMatmulAlgoConfigAttributes_t attribute;
    size_t bytes;
} settings_of_algorithm[PLAN_SETTINGS] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};
enum { SETTING_ID = 0, SETTING_SCHEME = 3 };

/* Numbers of two bytes fill the lower half: every machine with such a GPU stores it first. */
static int read_setting(uint32_t *value, const cublasLtMatmulAlgo_t *algorithm, int i)
{
    size_t written = 0;
    *value = 0;
    return cublasLtMatmulAlgoConfigGetAttribute(algorithm, settings_of_algorithm[i].attribute, value,
                                                settings_of_algorithm[i].bytes,
                                                &written) == CUBLAS_STATUS_SUCCESS;
}

/* 0 where the library refuses such an algorithm for the plan, or it would not sum in a fixed order. */
static int make_algorithm(cublasLtMatmulAlgo_t *algorithm, Matmuls *matmuls, const Plan *plan,
                          const uint32_t settings[PLAN_SETTINGS])
{
    cudaDataType_t in = type_of(plan->key.in_type), out = type_of(plan->key.out_type);
    if ((settings[SETTING_SCHEME] & ~allowed_schemes(&plan->key)) != 0 ||
        settings[SETTING_ID] > (uint32_t)INT32_MAX ||
        cublasLtMatmulAlgoInit(matmuls->library, CUBLAS_COMPUTE_32F, CUDA_R_32F, in, in, out, out,
                               (int)settings[SETTING_ID], algorithm) != CUBLAS_STATUS_SUCCESS) {
        return 0;
    }
    for (int i = SETTING_ID + 1; i < PLAN_SETTINGS; i++) {
        uint32_t standard;
        if (settings[i] >> 8 * (settings_of_algorithm[i].bytes - 1) > 0xff ||
            !read_setting(&standard, algorithm, i) ||
            (standard != settings[i] &&
             cublasLtMatmulAlgoConfigSetAttribute(algorithm, settings_of_algorithm[i].attribute, &settings[i],
                                                  settings_of_algorithm[i].bytes) != CUBLAS_STATUS_SUCCESS)) {
            return 0;
        }
    }
    cublasLtMatmulHeuristicResult_t result;
    return cublasLtMatmulAlgoCheck(matmuls->library, plan->operation, plan->a, plan->b, plan->out, plan->out,
                                   algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= WORKSPACE_BYTES;
}

/* ---- candidates ---------------------------------------------------------------------------------------- */

static int have_settings(const Candidate *candidates, int count, const uint32_t settings[PLAN_SETTINGS])
{
    for (int i = 0; i < count; i++) {
        if (memcmp(candidates[i].settings, settings, sizeof(candidates[i].settings)) == 0) {
            return 1;
        }
    }
    return 0;
}

/* The settings of an algorithm, and the same made again for the plan. 0 where that cannot be. */
static int make_candidate(Candidate *candidate, Matmuls *matmuls, const Plan *plan,
                          const cublasLtMatmulAlgo_t *algorithm)
{
    candidate->is_in_parts = 0;
    for (int i = 0; i < PLAN_SETTINGS; i++) {
        if (!read_setting(&candidate->settings[i], algorithm, i)) {
            return 0;
        }
    }
    return make_algorithm(&candidate->algorithm, matmuls, plan, candidate->settings);
}

/* Add what the library proposes for `asked` and takes for `plan`, at most so many. Returns the new count. */
static int add_proposals(Candidate *candidates, int count, int most, Matmuls *matmuls, const Plan *plan,
                         const Plan *asked)
{
    cublasLtMatmulAlgo_t algorithms[PROPOSALS_MAX];
    int proposals = ask_library(algorithms, matmuls, asked);
    for (int i = 0; i < proposals && most > 0; i++) {
        Candidate *candidate = &candidates[count];
        if (make_candidate(candidate, matmuls, plan, &algorithms[i]) &&
            !have_settings(candidates, count, candidate->settings)) {
            count++;
            most--;
        }
    }
    return count;
}

/* The same for another number of rows. */
static int add_proposals_for(Candidate *candidates, int count, int most, Matmuls *matmuls, const Plan *plan,
                             int rows)
{
    Plan asked = {};
    ProductKey key = plan->key;
    key.M = rows;
    describe(&asked, &key, &plan->example);
    count = add_proposals(candidates, count, most, matmuls, plan, &asked);
    matmuls_release_plan(&asked);
    return count;
}

/* For some numbers of rows the library proposes algorithms that compute GELU as they store the product, for
 * others only such whose epilogue is a second kernel, which reads the product again; yet it takes the first
 * there too (AlgoCheck). So what it proposes for these numbers of rows are candidates for all. */
static const int other_rows[] = {32768, 16384, 8192, 4096};
enum { OTHER_ROWS = sizeof(other_rows) / sizeof(other_rows[0]), PROPOSALS_FOR_OTHER_ROWS = 2 };
static_assert(2 + PROPOSALS_MAX + OTHER_ROWS * PROPOSALS_FOR_OTHER_ROWS <= CANDIDATES_MAX, "all fit");

static int add_proposals_for_other_rows(Candidate *candidates, int count, Matmuls *matmuls, const Plan *plan)
{
    for (int i = 0; i < OTHER_ROWS; i++) {
        if (other_rows[i] != plan->key.M) {
            count =
                add_proposals_for(candidates, count, PROPOSALS_FOR_OTHER_ROWS, matmuls, plan, other_rows[i]);
        }
    }
    return count;
}

static int add_in_parts(Candidate *candidates, int count)
{
    Candidate *candidate = &candidates[count];
    memset(candidate, 0, sizeof(*candidate));
    candidate->is_in_parts = 1;
    candidate->settings[SETTING_ID] = PLAN_IN_PARTS;
    return count + 1;
}

int matmuls_candidates(Candidate candidates[CANDIDATES_MAX], Matmuls *matmuls, const Plan *plan)
{
    int count = 0;
    if (!plan->is_found) {
        count = add_in_parts(candidates, 0);
    } else if (make_candidate(&candidates[0], matmuls, plan, &plan->algorithm)) {
        count = 1;
    }
    int own = count;
    count = add_proposals(candidates, count, PROPOSALS_MAX, matmuls, plan, plan);
    if (is_gelu(&plan->key)) {
        count = add_proposals_for_other_rows(candidates, count, matmuls, plan);
        if (plan->is_found) {
            count = add_in_parts(candidates, count);
        }
    }
    return !plan->is_found && count == own ? 0 : count;
}

void matmuls_take(Plan *plan, const Candidate *candidate)
{
    plan->is_found = !candidate->is_in_parts;
    plan->algorithm = candidate->algorithm;
}

/* ---- plans --------------------------------------------------------------------------------------------- */

/* A recorded choice. 0 where the library refuses it. */
static int take_recorded(Plan *plan, Matmuls *matmuls, const uint32_t settings[PLAN_SETTINGS])
{
    int is_in_parts = settings[SETTING_ID] == PLAN_IN_PARTS && is_gelu(&plan->key);
    plan->is_found = !is_in_parts && make_algorithm(&plan->algorithm, matmuls, plan, settings);
    return is_in_parts || plan->is_found;
}

/* Without timing: the first that the library proposes. GELU has two rules of its own, whose reasons are in
 * dev/notes/cuda.md: GPUs before sm_90 take kernels of our own; products of many rows what is proposed for
 * fewer, if the library accepts it. */
enum { GELU_CAPABILITY_MIN = 90, GELU_ROWS_MAX = 32768 };

static void take_by_rule(Plan *plan, Matmuls *matmuls)
{
    cublasLtMatmulAlgo_t algorithms[PROPOSALS_MAX];
    Candidate candidate;
    if (is_gelu(&plan->key) && matmuls->capability < GELU_CAPABILITY_MIN) {
        plan->is_found = 0;
    } else if (is_gelu(&plan->key) && plan->key.M > GELU_ROWS_MAX &&
               add_proposals_for(&candidate, 0, 1, matmuls, plan, GELU_ROWS_MAX) == 1) {
        matmuls_take(plan, &candidate);
    } else if (ask_library(algorithms, matmuls, plan) > 0) {
        plan->is_found = 1;
        plan->algorithm = algorithms[0];
        plan->tried = 1;
    }
}

static void choose(Plan *plan, Matmuls *matmuls)
{
    const ProductPlan *chosen = plans_find(&matmuls->chosen, &plan->key);
    ProductPlan shipped;
    int is_chosen = (chosen && take_recorded(plan, matmuls, chosen->settings)) ||
                    (plans_look_up(&shipped, matmuls->table, matmuls->device, &plan->key) &&
                     take_recorded(plan, matmuls, shipped.settings));
    if (!is_chosen) {
        take_by_rule(plan, matmuls);
    }
}

void matmuls_take_next(Matmuls *matmuls, Plan *plan)
{
    cublasLtMatmulAlgo_t algorithms[PROPOSALS_MAX];
    const ProductKey *key = &plan->key;
    plan->is_found = plan->tried < ask_library(algorithms, matmuls, plan);
    if (plan->is_found) {
        plan->algorithm = algorithms[plan->tried++];
    }
    if (!matmuls->has_refused) {
        error_set(
            &matmuls->notice,
            "cuBLASLt refuses a product of %d x %d x %d by the algorithm that was chosen for it (%s): the "
            "next that it proposes is used, or kernels of our own",
            key->M, key->N, key->K, matmuls->refusal);
        matmuls->has_refused = 1;
    }
}

Plan *matmuls_plan_of(Matmuls *matmuls, const Matmul *product)
{
    ProductKey key = key_of(product);
    for (int i = 0; i < matmuls_kept(matmuls); i++) {
        if (memcmp(&matmuls->plans[i].key, &key, sizeof(key)) == 0) {
            return &matmuls->plans[i];
        }
    }
    Plan *plan = &matmuls->plans[matmuls->count % KEPT_PLANS_MAX];
    if (matmuls->count++ >= KEPT_PLANS_MAX) { /* prompts of many lengths */
        matmuls_release_plan(plan);
    }
    describe(plan, &key, product);
    choose(plan, matmuls);
    return plan;
}

/* Whether the library takes a plan as it was recorded. */
static int is_accepted(Matmuls *matmuls, const ProductPlan *recorded)
{
    Plan plan = {};
    Matmul product = {}; /* pointers count by their alignment only */
    product.epilogue = (MatmulEpilogue)recorded->key.epilogue;
    product.bias = matmuls->workspace;
    product.before = matmuls->workspace;
    product.bias_partial = (float *)matmuls->workspace;
    describe(&plan, &recorded->key, &product);
    int is_taken = take_recorded(&plan, matmuls, recorded->settings);
    matmuls_release_plan(&plan);
    return is_taken;
}

void matmuls_use_plans(Matmuls *matmuls, const char *text)
{
    Error error;
    Plans *chosen = &matmuls->chosen;
    memory_free(matmuls->text);
    matmuls->text = NULL;
    matmuls->notice.text[0] = '\0';
    if (plans_parse(chosen, text, &error) != 0) {
        error_set(&matmuls->notice, "plans of matrix products: %s; they are not used", error.text);
        chosen->count = 0;
        return;
    }
    if (strcmp(chosen->device, matmuls->device) != 0) {
        error_set(&matmuls->notice, "plans of matrix products are for %s, this is %s: they are not used",
                  chosen->device, matmuls->device);
        chosen->count = 0;
        return;
    }
    int refused = 0;
    for (int i = 0; i < chosen->count; i++) {
        refused += !is_accepted(matmuls, &chosen->plans[i]);
    }
    if (refused > 0) {
        error_set(&matmuls->notice,
                  "cuBLASLt refuses %d of %d recorded plans of matrix products: its own choice is used there",
                  refused, chosen->count);
    }
    matmuls->text = plans_to_text(chosen);
}

void matmuls_drop_other_shapes(Matmuls *matmuls, int64_t rows, DType type)
{
    Plans *chosen = &matmuls->chosen;
    int fitting = 0;
    for (int i = 0; i < chosen->count; i++) {
        const ProductKey *key = &chosen->plans[i].key;
        fitting += key->in_type == (int)type && (key->M == rows || key->K == rows);
    }
    if (matmuls->text && fitting == 0) {
        error_set(&matmuls->notice,
                  "plans of matrix products are for another batch_size, block_size or dtype: "
                  "they are not used");
        chosen->count = 0;
        memory_free(matmuls->text);
        matmuls->text = NULL;
    }
}

const char *matmuls_plans(const Matmuls *matmuls)
{
    return matmuls->text;
}

const char *matmuls_notice(const Matmuls *matmuls)
{
    return matmuls->notice.text[0] ? matmuls->notice.text : NULL;
}

const char *matmuls_device(const Matmuls *matmuls)
{
    return matmuls->device;
}
