/* Matrix products by cuBLASLt. How a product is computed is chosen by GPU model, library version, shape and
 * alignment alone: the library's first heuristic that sums in a fixed order, remembered as long as the model
 * lives.
 */
#ifndef LLMC_COMPUTE_CUDA_MATMUL_CUH
#define LLMC_COMPUTE_CUDA_MATMUL_CUH

#include "llmc/compute/cuda/values.cuh"

/* out (M,N) = or += a (M,K) b (K,N), row by row in memory; a transposed input is stored the other way
 * round. */
typedef enum MatmulEpilogue {
    MATMUL_PLAIN,
    MATMUL_BIAS,          /* + bias (N), in out's type */
    MATMUL_BIAS_GELU,     /* gelu(before), where before (M,N) = the product + bias is written too */
    MATMUL_GELU_BACKWARD, /* * gelu'(before) */
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
    void *before; /* in out's type */
} Matmul;

/* Owned by the model: matmuls_create, matmuls_free. */
typedef struct Matmuls Matmuls;
Matmuls *matmuls_create(void);
void matmuls_free(Matmuls *matmuls);

/* Asynchronous. An epilogue for which the library has no algorithm on this device, and GELU in fp32, is done
 * by kernels of our own. */
void matmul(Matmuls *matmuls, const Matmul *product, cudaStream_t stream);

/* Bytes of device memory that matmuls_create takes. */
size_t matmuls_bytes(void);

#endif
