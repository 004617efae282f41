/* What the kernels of attention share: where a head lies, and the paths behind the interface. */
#ifndef LLMC_COMPUTE_CUDA_ATTENTION_PARTS_CUH
#define LLMC_COMPUTE_CUDA_ATTENTION_PARTS_CUH

#include <math.h>

#include "llmc/compute/cuda/attention.cuh"
#include "llmc/compute/cuda/dropout.cuh"
#include "llmc/compute/cuda/values.cuh"

static const float LOG2_E = 1.44269504f;

enum { ATTENTION_ROWS_PAD = 128 };

/* T as backward's rows have it: whole tiles of every kernel, and aligned to 16 bytes. */
static __host__ __device__ __forceinline__ int attention_padded_T(int T)
{
    return (T + ATTENTION_ROWS_PAD - 1) / ATTENTION_ROWS_PAD * ATTENTION_ROWS_PAD;
}

/* One head of one batch row: its number b * NH + h, and its first elements. */
struct AttentionHead {
    int qkv_row;     /* elements from token to token in qkv; out's are a third */
    int64_t q, k, v; /* in qkv */
    int64_t out;
    int64_t lse;
    int64_t rows;   /* in backward's rows */
    int64_t column; /* of a token's (C) */
    int b;
    int64_t first_element; /* of its (T,T) probabilities, for dropout */
};

static __device__ __forceinline__ AttentionHead attention_head(const CudaAttention &shape, int item)
{
    int64_t C = (int64_t)shape.NH * shape.HS;
    int64_t b = item / shape.NH;
    int64_t h = item % shape.NH;
    AttentionHead head;
    head.qkv_row = 3 * shape.NH * shape.HS;
    head.q = b * shape.T * 3 * C + h * shape.HS;
    head.k = head.q + C;
    head.v = head.q + 2 * C;
    head.out = b * shape.T * C + h * shape.HS;
    head.lse = (int64_t)item * shape.T;
    head.column = h * shape.HS;
    head.b = (int)b;
    head.rows = (int64_t)item * 2 * attention_padded_T(shape.T);
    head.first_element = head.lse * shape.T;
    return head;
}

/* Of scores. Zeros after a head do not change it. */
struct AttentionScale {
    float natural; /* 1 / sqrt(HS) */
    float log2;    /* for powers of 2 in place of e */
};

static inline AttentionScale attention_scale(const CudaAttention &shape)
{
    return {1.0f / sqrtf((float)shape.HS), LOG2_E / sqrtf((float)shape.HS)};
}

/* What kernels take. Number: bf16 on the tensor cores, what WITH_TYPE says on the plain path. */
template <typename Number>
struct AttentionForwardArgs {
    Number *out;
    float *lse;
    const Number *qkv;
    CudaAttention shape;
    AttentionScale scale;
    Dropout dropout;
};

template <typename Number>
struct AttentionBackwardArgs {
    Number *d_qkv;
    const Number *d_out, *qkv, *out;
    const float *lse;
    /* (B,NH,2,padded T) of each query lse in powers of 2, and delta: the sum over the head of d_out * out,
     * which is what normalising takes from the gradient of each score. From T on infinity, so that weights
     * are 0, and 0. */
    float *rows;
    /* (B, tiles, 3C), tensor cores only: sums over a tile's tokens of d_qkv before it is rounded */
    float *parts;
    CudaAttention shape;
    AttentionScale scale;
    Dropout dropout;
};

/* ---- the tensor cores' path, for shapes of which attention_has_tensor_path() says so ----------------- */

typedef AttentionForwardArgs<bf16> TensorForwardArgs;
typedef AttentionBackwardArgs<bf16> TensorBackwardArgs;

/* Kernels are made for heads of 32, 64, 96 and 128; others of whole 16 bytes are read as if zeros followed.
 * Offsets within a batch row are 32-bit there: they live in registers, which are scarce. */
static inline bool attention_has_tensor_path(const CudaAttention &shape)
{
    int64_t row_elements = (int64_t)shape.T * 3 * shape.NH * shape.HS;
    return shape.dtype == DTYPE_BF16 && shape.HS % 8 == 0 && shape.HS <= 128 && row_elements <= INT32_MAX;
}

/* Of a head's queries in backward, and as many of its keys; most with dropout. */
int attention_tensor_tiles(const CudaAttention &shape, bool has_dropout);

void attention_forward_tensor_prepare(void);
void attention_forward_tensor(const TensorForwardArgs &args, cudaStream_t stream);
void attention_d_keys_tensor_prepare(void);
void attention_d_keys_tensor(const TensorBackwardArgs &args, cudaStream_t stream);
void attention_d_queries_tensor_prepare(void);
void attention_d_queries_tensor(const TensorBackwardArgs &args, cudaStream_t stream);

#endif
