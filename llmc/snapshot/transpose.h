/* Matrices that others store the other way round (transformers' Conv1D). */
#ifndef LLMC_SNAPSHOT_TRANSPOSE_H
#define LLMC_SNAPSHOT_TRANSPOSE_H

#include <stdint.h>

/* out[c * out_stride + r] = in[r * in_stride + c], for all r < rows and c < columns. Bound by memory: each
 * line of the cache is read once and written once. */
void transpose_floats(float *out, int64_t out_stride, const float *in, int64_t in_stride, int64_t rows,
                      int64_t columns);

#endif
