/* Softmax and cross entropy over a chunk of rows of logits, and the logits' gradient in their place.
 *   losses (rows) fp32     =  log(sum of exp(logits)) - logits[target]
 *   logits (rows,Vp) dtype =  scale * (softmax - onehot(target)), if has_gradient; columns V .. Vp-1 are
 * padding:
 *                             they get no probability and a zero gradient
 * Asynchronous. Bound by memory: one read of logits and, with a gradient, a second one from cache and one
 * write. */
#ifndef LLMC_COMPUTE_CUDA_CLASSIFIER_CUH
#define LLMC_COMPUTE_CUDA_CLASSIFIER_CUH

#include "llmc/compute/cuda/values.cuh"

typedef struct Classifier {
    float *losses;
    Tensor logits;
    const int32_t *targets;
    int64_t rows;
    int V, Vp;
    float scale;
    int has_gradient;
} Classifier;

void classifier_rows(const Classifier *args, cudaStream_t stream);

#endif
