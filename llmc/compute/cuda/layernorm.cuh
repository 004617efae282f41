/* Layer normalisation over the last dimension, eps 1e-5, with the residual stream's sum before it done in the
 * same visit.  Source: arXiv:1607.06450 */
#ifndef LLMC_COMPUTE_CUDA_LAYERNORM_CUH
#define LLMC_COMPUTE_CUDA_LAYERNORM_CUH

#include "llmc/compute/cuda/values.cuh"
#include "llmc/compute/dropout.h"

typedef struct LayernormForward {
    Tensor out;            /* (rows,C) = normalised, scaled and shifted */
    float *mean, *rstd;    /* (rows) = */
    float *stream;         /* (rows,C) = residual + dropout(branch); unused without a branch */
    const float *residual; /* (rows,C) */
    Tensor branch;         /* (rows,C), or data NULL: residual itself is normalised */
    Dropout dropout;       /* of the branch */
    const float *weight;   /* (C) */
    const float *bias;     /* (C) */
    int64_t rows;
    int C;
} LayernormForward;

/* Asynchronous. Bound by memory: with a branch 4 + 4 + 2 + 2 bytes an element in bf16. */
void layernorm_forward(const LayernormForward *args, cudaStream_t stream);

typedef struct LayernormBackward {
    float *d_stream;     /* (rows,C) = or +=: the gradient of the stream that was normalised */
    Tensor d_branch;     /* (rows,C) = dropout(d_stream) after that, the input of the branch below; data NULL:
                               not needed */
    Dropout dropout;     /* of that branch */
    float *d_weight;     /* (C) = or += */
    float *d_bias;       /* (C) = or += */
    Tensor d_out;        /* (rows,C) */
    const float *inp;    /* (rows,C) what was normalised */
    const float *mean;   /* (rows) */
    const float *rstd;   /* (rows) */
    const float *weight; /* (C) */
    float *partial;      /* layernorm_partial_count(rows, C) scratch */
    int64_t rows;
    int C;
    int is_first;    /* d_stream = instead of += */
    int accumulates; /* d_weight and d_bias: += */
} LayernormBackward;

/* Before the first backward, whose kernels take more shared memory than one gets unasked. */
void layernorm_prepare(void);

/* Asynchronous; C is at most 6,144. Bound by memory: 4 + 4 + 4 + 2 + 2 bytes an element in bf16. What limits
 * how many warps work at once is shared memory, 8*C bytes a warp and 53 KB a block of up to 8: at C = 768,
 * 1,600 and 6,144 a multiprocessor of an H100 has room for 32, 16 and 4 warps, of an A100 for 24, 12 and 3.
 * Blocks take 8 rows a warp, or what makes 512 blocks: 12,288 rows are 192, 384 and 512 blocks. */
void layernorm_backward(const LayernormBackward *args, cudaStream_t stream);
int64_t layernorm_partial_count(int64_t rows, int C);

#endif
