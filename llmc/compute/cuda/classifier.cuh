/* Softmax and cross entropy over a chunk of rows of logits, and the logits' gradient in their place.
 *   losses (rows) fp32     =  log(sum of exp(logits)) - logits[target]
 *   logits (rows,Vp) dtype =  scale * (softmax - onehot(target)), if has_gradient; columns V .. Vp-1 are
 *                             padding: they get no probability and a zero gradient
 * Rows are aligned to 16 bytes. Asynchronous. Bound by memory: one read of logits and, with a gradient, one
 * write; where a row does not fit into shared memory a second read. The path changes no bit. */
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
    int64_t shared_bytes_max; /* what classifier_prepare() was given; 0: rows stay where they are */
} Classifier;

/* Once for each GPU that a process uses, with what a block may have there. */
void classifier_prepare(int64_t shared_bytes_max);

void classifier_rows(const Classifier *args, cudaStream_t stream);

#endif
