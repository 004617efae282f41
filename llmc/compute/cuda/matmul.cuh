/* Matrix products by cuBLASLt. How a product is computed is chosen by GPU model, library version, shape and
 * alignment alone, and remembered as long as the model lives. The first of these that has something to say
 * decides: plans that were given or timed, the table of measured choices that the program brings
 * (tuned_plans.cu), the library's first heuristic that sums in a fixed order.
 */
#ifndef LLMC_COMPUTE_CUDA_MATMUL_CUH
#define LLMC_COMPUTE_CUDA_MATMUL_CUH

#include "llmc/compute/cuda/values.cuh"

/* out (M,N) = or += a (M,K) b (K,N), row by row in memory; a transposed input is stored the other way
 * round. */
typedef enum MatmulEpilogue {
    MATMUL_PLAIN,
    MATMUL_BIAS,               /* + bias (N), in out's type */
    MATMUL_BIAS_GELU,          /* gelu(before), where before (M,N) = the product + bias is written too */
    MATMUL_GELU_BACKWARD,      /* * gelu'(before) */
    MATMUL_GELU_BACKWARD_BIAS, /* the same, and its sums over rows, the gradient of the bias before GELU */
    MATMUL_EPILOGUES
} MatmulEpilogue;

typedef struct Matmul {
    Tensor out;
    Tensor a, b; /* of one type; products are summed in fp32, never in TF32 */
    int M, N, K;
    int is_a_transposed, is_b_transposed;
    int accumulates;
    MatmulEpilogue epilogue;
    const void *bias;
    void *before;        /* in out's type */
    float *d_bias;       /* (N) fp32 = or += sums over rows of out, before it is rounded or after */
    int adds_d_bias;     /* += */
    float *bias_partial; /* matmul_bias_partial_count(M, N) of scratch, for sums of rows */
} Matmul;

int64_t matmul_bias_partial_count(int64_t M, int N);

/* Owned by the model: matmuls_create, matmuls_free. */
typedef struct Matmuls Matmuls;
Matmuls *matmuls_create(void);
void matmuls_free(Matmuls *matmuls);

/* Choices made by another process (model/plans.h), for products from now on. Those that do not fit (another
 * GPU or library, an algorithm that the library refuses) are not used: matmuls_notice tells. */
void matmuls_use_plans(Matmuls *matmuls, const char *text);

/* Plans that were given but are for other shapes are not used either: not one of them is for inputs of this
 * type and has `rows` as M or K, as a model of so many rows has in each of its blocks. */
void matmuls_drop_other_shapes(Matmuls *matmuls, int64_t rows, DType type);

/* Another table than the program's: texts, of which the last is NULL. Borrowed. */
void matmuls_use_table(Matmuls *matmuls, const char *const *table);

/* Time the algorithms that the library proposes for the products made so far, the most expensive product
 * first, and use the quickest of each from now on. What is not timed by clock_ms() = deadline_ms keeps the
 * first proposed. Overwrites the operands of those products, which must still be there. */
void matmuls_tune(Matmuls *matmuls, double deadline_ms, cudaStream_t stream);

/* The plans given or timed that are in use, NULL where there are none. Owned by matmuls. */
const char *matmuls_plans(const Matmuls *matmuls);
/* Why plans that were given are not used, or not all; NULL if they are. */
const char *matmuls_notice(const Matmuls *matmuls);

/* The GPU and the library, as plans name them. */
const char *matmuls_device(const Matmuls *matmuls);

/* Asynchronous. An epilogue for which the library has no algorithm on this device, and GELU in fp32, is done
 * by kernels of our own. Sums over rows are fp32, in a fixed order. */
void matmul(Matmuls *matmuls, const Matmul *product, cudaStream_t stream);

/* Bytes of device memory that matmuls_create takes. */
size_t matmuls_bytes(void);

#endif
