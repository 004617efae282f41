/* GELU in its tanh form, as GPT-2 has it, where cuBLASLt's epilogue does not do it.
 * Elements are taken in fours: counts that are no multiple of four are refused, and tensors begin at whole
 * fours. Source: arXiv:1606.08415 */
#ifndef LLMC_COMPUTE_CUDA_GELU_CUH
#define LLMC_COMPUTE_CUDA_GELU_CUH

#include "llmc/compute/cuda/columns.cuh"

/* out (count) = gelu(inp (count)). Bound by memory. */
void gelu_forward(Tensor out, Tensor inp, int64_t count, cudaStream_t stream);

/* d (count) *= gelu'(inp (count)), in place. Bound by memory. */
void gelu_backward(Tensor d, Tensor inp, int64_t count, cudaStream_t stream);

/* The same bits for d (rows,columns), and d_bias (columns) fp32 = or += its sums over rows, before they are
 * rounded, in a fixed order.
 *   partial   column_partial_count(rows, columns) fp32 of scratch
 * Bound by memory: no more of it is moved than by gelu_backward. */
void gelu_backward_bias(float *d_bias, Tensor d, Tensor inp, int64_t rows, int columns, int accumulates,
                        float *partial, cudaStream_t stream);

#endif
