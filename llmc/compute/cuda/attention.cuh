/* Causal multi-head attention on the GPU, the twin of llmc/compute/cpu/attention.h: the same shapes, the
 * same log-sum-exp, the same elements dropped. bf16 with heads of whole eights up to 128 runs on the tensor
 * cores, as heads of 32, 64, 96 or 128 do; fp32 and other heads take a plain path. No (T,T) matrix exists.
 * The same bits every run: each sum is made by one thread or warp in a fixed order, without atomics.
 *
 * Pointers are the GPU's, aligned to 16 bytes. Everything is asynchronous on the stream; nothing allocates.
 */
#ifndef LLMC_COMPUTE_CUDA_ATTENTION_CUH
#define LLMC_COMPUTE_CUDA_ATTENTION_CUH

#include <cuda_runtime.h>

#include "llmc/compute/dropout.h"
#include "llmc/model/dtype.h"

enum { ATTENTION_HEAD_SIZE_MAX = 256 };

typedef struct CudaAttention {
    int B, T, NH, HS; /* C = NH * HS; HS at most ATTENTION_HEAD_SIZE_MAX */
    DType dtype;      /* of qkv, out and their gradients */
} CudaAttention;

/* Whether the tensor cores are used: where not, bf16 takes about ten times as long. */
bool attention_is_on_tensor_cores(const CudaAttention *shape);

/* Once for each GPU that a process uses, before the first call of the others. */
void attention_prepare(void);

/*   out (B,T,C) dtype     =  qkv (B,T,3C) dtype: queries, keys, values side by side
 *   lse (B,NH,T) fp32     =  natural logarithm of the sum of exp of each query's scaled scores
 * Bound by arithmetic: 2*B*NH*T*T*HS operations (causal half).  Source: arXiv:2205.14135, arXiv:2307.08691 */
void attention_forward_cuda(void *out, float *lse, const void *qkv, const CudaAttention *shape,
                            const Dropout *dropout, cudaStream_t stream);

typedef struct CudaAttentionBackward {
    void *d_qkv;            /* (B,T,3C) dtype = */
    const void *d_out;      /* (B,T,C) dtype */
    const void *qkv;        /* (B,T,3C) dtype */
    const void *out;        /* (B,T,C) dtype, of forward */
    const float *lse;       /* (B,NH,T) fp32, of forward */
    void *scratch;          /* attention_scratch_bytes(shape) */
    float *d_bias;          /* (3C) = or += the sum of d_qkv over all tokens */
    float *partial;         /* attention_partial_count(shape) fp32 of scratch */
    int accumulates;        /* d_bias: += */
    const Dropout *dropout; /* the same as forward's */
} CudaAttentionBackward;

int64_t attention_scratch_bytes(const CudaAttention *shape);
int64_t attention_partial_count(const CudaAttention *shape);

/* Bound by arithmetic: 5*B*NH*T*T*HS operations. Does 7: gradients of keys and values come from one kernel,
 * that of queries from another, and both make the probabilities again, so that no sum crosses blocks. */
void attention_backward_cuda(const CudaAttentionBackward *args, const CudaAttention *shape,
                             cudaStream_t stream);

#endif
