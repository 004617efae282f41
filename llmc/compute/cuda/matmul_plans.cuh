/* What the sources of matrix products share: a product's plan, and how one is made. For matmul*.cu only. */
#ifndef LLMC_COMPUTE_CUDA_MATMUL_PLANS_CUH
#define LLMC_COMPUTE_CUDA_MATMUL_PLANS_CUH

#include "llmc/compute/cuda/matmul.cuh"
#include "llmc/model/plans.h"

enum {
    KEPT_PLANS_MAX = 256, /* a model needs about forty, decoding as many again */
    CANDIDATES_MAX = 8
};
static const size_t WORKSPACE_BYTES = 32u << 20;

typedef struct Plan {
    ProductKey key;
    int is_found; /* 0: the library has no algorithm for it */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
    Matmul example; /* the product that it was made for; its operands may be gone */
    int64_t uses;
} Plan;

struct Matmuls {
    cublasLtHandle_t library;
    void *workspace;
    char device[PLAN_DEVICE_BYTES]; /* GPU and library, as plans name them */
    Plan plans[KEPT_PLANS_MAX];
    int count; /* how many were made: from KEPT_PLANS_MAX on, the oldest makes room */

    Plans chosen;             /* given or timed; none: count 0 */
    char *text;               /* the same as text, or NULL */
    const char *const *table; /* borrowed */
    Error notice;
};

static inline int matmuls_kept(const Matmuls *matmuls)
{
    return matmuls->count < KEPT_PLANS_MAX ? matmuls->count : KEPT_PLANS_MAX;
}

/* An algorithm, and what makes it again in another process. */
typedef struct Candidate {
    cublasLtMatmulAlgo_t algorithm;
    uint32_t settings[PLAN_SETTINGS];
} Candidate;

/* ---- matmul_plans.cu */
/* The product's plan, made if it is new. */
Plan *matmuls_plan_of(Matmuls *matmuls, const Matmul *product);
void matmuls_release_plan(Plan *plan);

/* Point the operation at the product's bias and auxiliary matrix. */
void matmuls_set_pointers(Plan *plan, const Matmul *product);

/* What the library proposes for a plan, best first, without what cannot be made again. Returns how many. */
int matmuls_candidates(Candidate candidates[CANDIDATES_MAX], Matmuls *matmuls, Plan *plan);

/* ---- matmul.cu */
/* Asynchronous. An error if the library refuses the operands after all. */
cublasStatus_t matmuls_run(Matmuls *matmuls, Plan *plan, const Matmul *product, cudaStream_t stream);

#endif
