/* Softmax and cross entropy over a chunk of rows of logits, and the logits' gradient in the same visit.
 *   losses (rows) fp32       =  log(sum of exp(logits)) - logits[target]
 *   d_logits (rows,Vp) dtype =  scale * (softmax - onehot(target)); may be logits itself when fp32; data
 * NULL: loss only. logits (rows,Vp) fp32: columns V .. Vp-1 are padding: they get no probability and a zero
 * gradient. Bound by arithmetic of exp; a row stays in the second cache. */
#ifndef LLMC_COMPUTE_CPU_CLASSIFIER_H
#define LLMC_COMPUTE_CPU_CLASSIFIER_H

#include "llmc/compute/cpu/vector.h"

typedef struct Classifier {
    float *losses;
    Tensor d_logits;
    float *logits; /* overwritten */
    const int32_t *targets;
    int64_t rows;
    int V, Vp;
    float scale;
} Classifier;

void classifier_rows(const Classifier *args);

#endif
