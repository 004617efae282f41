/* What the sources of matrix products share: a product's plan, and how one is made. For matmul*.cu only. */
#ifndef LLMC_COMPUTE_CUDA_MATMUL_PLANS_CUH
#define LLMC_COMPUTE_CUDA_MATMUL_PLANS_CUH

#include "llmc/compute/cuda/matmul.cuh"
#include "llmc/model/plans.h"

enum {
    KEPT_PLANS_MAX = 256, /* a model needs about forty, decoding as many again */
    PROPOSALS_MAX = 8,    /* of the library, for one number of rows */
    CANDIDATES_MAX = 20
};
/* For parts of K in fp32: 14 of a gradient of 3,072 x 768 fit, where 32 MB hold three. */
static const size_t WORKSPACE_BYTES = 128u << 20;

typedef struct Plan {
    ProductKey key;
    int is_found; /* 0: kernels of our own follow a simpler product, by choice or as the library has no
                     algorithm */
    int tried;    /* proposals of the library that were looked at when it refused one */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
    Matmul example; /* the product that it was made for; its operands may be gone */
    int64_t uses;   /* calls of matmul, not those by which another product is computed in parts */
} Plan;

struct Matmuls {
    cublasLtHandle_t library;
    void *workspace;
    char device[PLAN_DEVICE_BYTES]; /* GPU and library, as plans name them */
    int capability;                 /* 90 for sm_90 */
    Plan plans[KEPT_PLANS_MAX];
    int count; /* how many were made: from KEPT_PLANS_MAX on, the oldest makes room */

    Plans chosen;             /* given or timed; none: count 0 */
    char *text;               /* the same as text, or NULL */
    const char *const *table; /* borrowed */
    Error notice;
    int has_refused;  /* the notice has told of it */
    char refusal[64]; /* the status of the last product that the library refused, "" for none */
};

static inline int matmuls_kept(const Matmuls *matmuls)
{
    return matmuls->count < KEPT_PLANS_MAX ? matmuls->count : KEPT_PLANS_MAX;
}

/* An algorithm, and what makes it again in another process; or kernels of our own (PLAN_IN_PARTS). */
typedef struct Candidate {
    int is_in_parts;
    cublasLtMatmulAlgo_t algorithm;
    uint32_t settings[PLAN_SETTINGS];
} Candidate;

/* ---- matmul_plans.cu */
/* The product's plan, made if it is new. */
Plan *matmuls_plan_of(Matmuls *matmuls, const Matmul *product);
void matmuls_release_plan(Plan *plan);

/* Point the operation at the product's bias and auxiliary matrix. */
void matmuls_set_pointers(Plan *plan, const Matmul *product);

/* What may be timed for a plan: what it has now, then what the library proposes, best first, without what
 * cannot be made again, and for GELU kernels of our own. Returns how many; 0 where the library has none. */
int matmuls_candidates(Candidate candidates[CANDIDATES_MAX], Matmuls *matmuls, const Plan *plan);
void matmuls_take(Plan *plan, const Candidate *candidate);

/* The library refused the plan's algorithm: take the next that it proposes, or none. The first time a notice
 * is left. */
void matmuls_take_next(Matmuls *matmuls, Plan *plan);

/* ---- matmul.cu */
/* By the plan's algorithm, all of it. Asynchronous. -1 if the library refuses it: then nothing was queued. */
int matmuls_run(Matmuls *matmuls, Plan *plan, const Matmul *product, cudaStream_t stream);

/* The epilogue by a kernel of our own, after a product with a simpler one: this. Asynchronous. Sums of rows
 * follow a product with GELU's slope if the library computes that; else one kernel does both. */
Matmul matmuls_simpler(const Matmul *product);
void matmuls_sum_rows(const Matmul *product, cudaStream_t stream);
void matmuls_run_in_parts(Matmuls *matmuls, const Matmul *product, cudaStream_t stream);

#endif
