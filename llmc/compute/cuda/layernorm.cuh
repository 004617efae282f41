/* Layer normalisation over the last dimension, eps 1e-5, with the residual stream's sum before it done in the
 * same visit.  Source: arXiv:1607.06450 */
#ifndef LLMC_COMPUTE_CUDA_LAYERNORM_CUH
#define LLMC_COMPUTE_CUDA_LAYERNORM_CUH

#include "llmc/compute/cuda/values.cuh"
#include "llmc/compute/dropout.h"

typedef struct LayernormForward {
    Tensor out;          /* (rows,C) = normalised, scaled and shifted */
    float *mean, *rstd;  /* (rows) = */
    Tensor stream;       /* (rows,C) = residual + dropout(branch); unused without a branch */
    Tensor residual;     /* (rows,C) of stream's type: fp32, or bf16 if out is too */
    Tensor branch;       /* (rows,C), or data NULL: residual itself is normalised */
    Dropout dropout;     /* of the branch */
    const float *weight; /* (C) */
    const float *bias;   /* (C) */
    int64_t rows;
    int C;
} LayernormForward;

/* What is normalised is the stream as it is kept. Asynchronous. Bound by memory: with a branch 4 + 4 + 2 + 2
 * bytes an element in bf16, and 2 + 2 + 2 + 2 if the stream is bf16 too. */
void layernorm_forward(const LayernormForward *args, cudaStream_t stream);

typedef struct LayernormBackward {
    Tensor d_stream; /* (rows,C) = or +=: the gradient of the stream that was normalised */
    Tensor d_branch; /* (rows,C) = dropout(d_stream) after that, the input of the branch below; data NULL:
                               not needed */
    Dropout dropout; /* of that branch */
    float *d_weight; /* (C) = or += */
    float *d_bias;   /* (C) = or += */
    float *d_branch_bias; /* (C) = or += the sum over rows of d_branch before it is rounded, which is the
                             gradient of the bias that the branch below ends with; NULL: not yet */
    Tensor d_out;         /* (rows,C) */
    Tensor inp;          /* (rows,C) what was normalised, of d_stream's type: fp32, or bf16 if d_out is too */
    const float *mean;   /* (rows) */
    const float *rstd;   /* (rows) */
    const float *weight; /* (C) */
    float *partial;      /* layernorm_partial_count(rows, C) scratch */
    int64_t rows;
    int C;
    int is_first;    /* d_stream = instead of += */
    int accumulates; /* d_weight and d_bias: += */
} LayernormBackward;

/* Asynchronous; C is at most 6,144. Bound by memory: 4 + 4 + 4 + 2 + 2 bytes an element in bf16, each read or
 * written once; 2 each if the stream is bf16 too. Blocks take 64 rows, or what makes 512 blocks: 12,288 rows
 * are 192 blocks. */
void layernorm_backward(const LayernormBackward *args, cudaStream_t stream);
/* d_branch_bias (C) = or += the sum that layernorm_backward() left in partial. */
void layernorm_branch_bias(float *d_branch_bias, const float *partial, int64_t rows, int C, int accumulates,
                           cudaStream_t stream);
int64_t layernorm_partial_count(int64_t rows, int C);

#endif
