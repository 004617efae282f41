/* The operations of GPT-2 in double precision, written as plainly as their formulas, with imitated rounding.
 *
 * Every place where an fp32 (or bf16) program rounds is multiplied by 1 + e, e random and as large as that
 * rounding can be (Monte Carlo arithmetic, Parker 1997). What such a pass differs by from one without
 * rounding is how far a correct program may be off for this very model and batch. The sizes:
 *   a stored value            storage: 2^-24 for fp32, 2^-8 for bf16
 *   a sum                     added term by term in fp32, the long ones in an order of each pass's own: what
 *                             is rounded off terms that are alike does not average out, and partial sums may
 *                             be larger than the sum, so that no formula replaces adding
 *   exp, tanh, reciprocals    4 * sum, sum = 2^-24
 */
#ifndef LLMC_REFERENCE_EXACT_OPS_H
#define LLMC_REFERENCE_EXACT_OPS_H

#include <stdint.h>

/* Zero units: exact. One for each pass; the state is that of its random numbers. */
typedef struct Rounding {
    double storage_unit;
    double sum_unit;
    uint64_t state;
} Rounding;

/* x rounded with this unit. */
double rounded(double x, double unit, Rounding *rounding);
/* As when they are written to memory. */
void round_stored(double *x, int64_t count, Rounding *rounding);
/* sum + term, in fp32 unless exact. */
double added(double sum, double term, const Rounding *rounding);

/* out (M,N) += a (M,K) * b (K,N), a's element (m,k) at a[m * row_stride + k * column_stride]. */
typedef struct Product {
    double *out;
    const double *a;
    int64_t row_stride, column_stride;
    const double *b;
    int64_t M, N, K;
} Product;
void product_add(const Product *product, Rounding *rounding);

/* A linear layer. weight (O,I), bias (O) or NULL. */
typedef struct Linear {
    const double *weight, *bias;
    double *d_weight, *d_bias; /* += */
    int64_t I, O;
} Linear;
/*   out (M,O) = inp (M,I) */
void linear_forward(double *out, const double *inp, const Linear *layer, int64_t M, Rounding *rounding);
/*   d_inp (M,I) += d_out (M,O) */
void linear_backward(double *d_inp, const double *d_out, const double *inp, const Linear *layer, int64_t M,
                     Rounding *rounding);

/* out (M,C) = normalised inp (M,C) * weight (C) + bias (C) */
void norm_forward(double *out, const double *inp, const double *weight, const double *bias, int64_t M,
                  int64_t C, Rounding *rounding);
/* The gradients of one layer norm; d_inp (M,C), d_weight (C), d_bias (C) +=. */
typedef struct NormBackward {
    double *d_inp, *d_weight, *d_bias;
    const double *d_out, *inp, *weight;
    int64_t M, C;
} NormBackward;
void norm_backward(const NormBackward *norm, Rounding *rounding);

/* GPT-2's tanh approximation. out and d_inp (count) = */
void gelu_forward_exact(double *out, const double *inp, int64_t count, Rounding *rounding);
void gelu_backward_exact(double *d_inp, const double *d_out, const double *inp, int64_t count,
                         Rounding *rounding);

/* One head of one row of the batch: causal attention over T positions. Arrays of the row's first position;
 * q, k, v lie C apart in qkv (T,3C), out is (T,C). */
typedef struct Head {
    const double *qkv;
    double *out;
    double *d_qkv; /* = for this head's columns */
    const double *d_out;
    int64_t T, C, HS;
} Head;
void head_forward(const Head *head, Rounding *rounding);
void head_backward(const Head *head, Rounding *rounding);

#endif
