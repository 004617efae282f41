/* The products of a transformer block, each with what follows it done tile by tile while the tile is in
 * cache. Weights are [out,in]; rows is the number of tokens.
 */
#ifndef LLMC_COMPUTE_CPU_LINEAR_H
#define LLMC_COMPUTE_CPU_LINEAR_H

#include "llmc/compute/cpu/dropout.h"
#include "llmc/compute/cpu/vector.h"

typedef struct Linear {
    Tensor inp;        /* (rows,inputs) */
    Tensor weight;     /* (outputs,inputs) */
    const float *bias; /* (outputs) fp32, or NULL */
    int64_t rows;
    int inputs, outputs;
} Linear;

/* out (rows,outputs) dtype = inp weight^T + bias */
void linear_forward(Tensor out, const Linear *linear);

/* before (rows,outputs) = inp weight^T + bias; after = gelu(before) */
void linear_gelu_forward(Tensor before, Tensor after, const Linear *linear);

/* out (rows,outputs) fp32 = residual + dropout(inp weight^T + bias); out may be residual */
void linear_residual_forward(float *out, const float *residual, const Dropout *dropout, const Linear *linear);

/* d_inp (rows,inputs) fp32 = d_out (rows,outputs) weight */
void linear_backward_input(float *d_inp, Tensor d_out, Tensor weight, int64_t rows, int inputs, int outputs);

/* The same, stored in d_inp's dtype. */
void linear_backward_input_as(Tensor d_inp, Tensor d_out, Tensor weight, int64_t rows, int inputs,
                              int outputs);

/* d_before (rows,inputs) = (d_out weight) * gelu'(before) */
void linear_backward_gelu(Tensor d_before, Tensor before, Tensor d_out, Tensor weight, int64_t rows,
                          int inputs, int outputs);

/* d_weight (outputs,inputs) fp32 = or += d_out^T inp */
void linear_backward_weight(float *d_weight, Tensor d_out, Tensor inp, int64_t rows, int inputs, int outputs,
                            int accumulates);

#endif
