/* Layer normalisation over the last dimension, eps 1e-5.  Source: arXiv:1607.06450 */
#ifndef LLMC_COMPUTE_CPU_LAYERNORM_H
#define LLMC_COMPUTE_CPU_LAYERNORM_H

#include "llmc/compute/cpu/vector.h"

/* Normalise each row of C values, then scale and shift.
 *   out (rows,C) dtype         =  inp (rows,C) fp32
 *   mean, rstd (rows) fp32     =  weight, bias (C) fp32
 * Bound by memory. */
void layernorm_forward(Tensor out, float *mean, float *rstd, const float *inp, const float *weight,
                       const float *bias, int64_t rows, int64_t C);

typedef struct LayernormBackward {
    float *d_inp;        /* (rows,C) += : the residual stream's gradient goes on through it */
    float *d_weight;     /* (C) = or += */
    float *d_bias;       /* (C) = or += */
    const float *d_out;  /* (rows,C) */
    const float *inp;    /* (rows,C) */
    const float *mean;   /* (rows) */
    const float *rstd;   /* (rows) */
    const float *weight; /* (C) */
    float *partial;      /* (2 * column_blocks(rows), C) scratch */
    int64_t rows, C;
    int accumulates; /* d_weight and d_bias: += */
} LayernormBackward;

void layernorm_backward(const LayernormBackward *args);

#endif
