/* Causal multi-head attention in tiles: no (T,T) matrix exists, only one tile of it for each thread.
 *
 * Queries are taken ATTENTION_TILE rows at a time and meet the keys tile by tile; the softmax is carried
 * along as a running maximum and sum (online softmax). Backward makes the probabilities again from the saved
 * log-sum-exp. One thread does a whole head, in a fixed order, so sums do not depend on the number of
 * threads.  Source: arXiv:2205.14135
 */
#ifndef LLMC_COMPUTE_CPU_ATTENTION_H
#define LLMC_COMPUTE_CPU_ATTENTION_H

#include "llmc/compute/cpu/dropout.h"
#include "llmc/compute/cpu/vector.h"

enum { ATTENTION_TILE = 64 };

typedef struct AttentionShape {
    int B, T, NH, HS; /* C = NH * HS */
    int threads;      /* scratch was made for so many */
} AttentionShape;

/* Floats of scratch that one thread needs, forward or backward. */
int64_t attention_scratch_count(int T, int HS);

/*   out (B,T,C) dtype     =  qkv (B,T,3C) dtype: queries, keys, values side by side
 *   lse (B,NH,T) fp32     =  log of the sum of exp of each query's scaled scores
 * Bound by arithmetic: 2*B*NH*T*T*HS operations (causal half). */
void attention_forward(Tensor out, float *lse, Tensor qkv, const AttentionShape *shape,
                       const Dropout *dropout, float *scratch);

typedef struct AttentionBackward {
    Tensor d_qkv; /* (B,T,3C) = */
    Tensor d_out; /* (B,T,C) */
    Tensor qkv;   /* (B,T,3C) */
    Tensor out;   /* (B,T,C) of forward */
    const float *lse;
    const Dropout *dropout; /* the same as forward's */
    float *scratch;
} AttentionBackward;

/* Bound by arithmetic: 5*B*NH*T*T*HS operations. */
void attention_backward(const AttentionBackward *args, const AttentionShape *shape);

#endif
