/* GELU in its tanh form, as GPT-2 has it, where cuBLASLt's epilogue does not do it.
 * Elements are taken in fours: counts that are no multiple of four are refused, and tensors begin at whole
 * fours. Source: arXiv:1606.08415 */
#ifndef LLMC_COMPUTE_CUDA_GELU_CUH
#define LLMC_COMPUTE_CUDA_GELU_CUH

#include "llmc/compute/cuda/values.cuh"

/* out (count) = gelu(inp (count)). Bound by memory. */
void gelu_forward(Tensor out, Tensor inp, int64_t count, cudaStream_t stream);

/* d (count) *= gelu'(inp (count)), in place. Bound by memory. */
void gelu_backward(Tensor d, Tensor inp, int64_t count, cudaStream_t stream);

#endif
