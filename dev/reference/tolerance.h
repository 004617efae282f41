/* How far a correct program may be off, element by element: measured on the model itself, by exact passes
 * with imitated rounding (exact_ops.h). No number here is tuned to a program under test, which is never
 * asked. */
#ifndef LLMC_REFERENCE_TOLERANCE_H
#define LLMC_REFERENCE_TOLERANCE_H

#include <stdint.h>

#include "dev/reference/reference.h"
#include "llmc/model/dtype.h"

/* A tensor's part of the picture. Rows are what shares a scale: rows of a matrix, the logits of one token,
 * the q, k and v parts of a bias. Owned by the caller. */
typedef struct Tolerance {
    int64_t rows, columns;
    int passes;           /* that the squares are a mean of */
    const float *squares; /* (rows,columns) mean squared deviation of each element; borrowed */
    double *row_means, *column_means;
    double mean;
    double floor; /* of number formats on the way */
} Tolerance;

void tolerance_init(Tolerance *tolerance, const float *squares, int64_t rows, int64_t columns, int passes,
                    double floor);
void tolerance_release(Tolerance *tolerance);
double tolerance_at(const Tolerance *tolerance, int64_t row, int64_t column);

/* Exact values, and what rounding in one precision does to them. Owned by the caller. */
typedef struct ExactResult {
    double *logits;       /* (B,T,V) */
    double *token_losses; /* (B,T) */
    double *gradients;    /* arena */
    double loss;
    int passes;                              /* with imitated rounding */
    float *logit_squares, *gradient_squares; /* mean squared deviations in them */
    double loss_tolerance;
} ExactResult;

/* The exact values alone; then, for each precision in turn, what it does. */
void exact_result_init(ExactResult *result, const Reference *reference);
void exact_result_measure(ExactResult *result, const Reference *reference, DType dtype);
void exact_result_release(ExactResult *result);

#endif
