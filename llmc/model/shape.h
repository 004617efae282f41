/* The shape of a GPT-2: five numbers, the sizes that follow from them, and its work in floating-point
 * operations. */
#ifndef LLMC_MODEL_SHAPE_H
#define LLMC_MODEL_SHAPE_H

#include <stdint.h>

#include "llmc/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { VOCAB_MULTIPLE = 128, MODEL_LAYERS_MAX = 1000 };

typedef struct ModelShape {
    int block_size; /* T at most: rows of wpe */
    int vocab_size; /* V */
    int n_layer;    /* L */
    int n_head;     /* NH */
    int n_embd;     /* C */
} ModelShape;

/* 0 if the numbers make a model that this program can hold, else -1 with *error naming the option and its
 * range. */
int model_shape_check(const ModelShape *shape, Error *error);

/* V rounded up to VOCAB_MULTIPLE: rows of wte in memory. */
int model_shape_padded_vocab(const ModelShape *shape);

/* Parameters as a file counts them: without vocabulary padding, the tied lm_head once. */
int64_t model_shape_parameters(const ModelShape *shape);

/* Operations per token of forward and backward for rows of T tokens: 6 * (parameters without wpe) + 12 * L *
 * C * T. nanoGPT's and PaLM's estimate (arXiv:2204.02311, appendix B), which mfu uses. */
double model_shape_flops_per_token(const ModelShape *shape, int T);

#ifdef __cplusplus
}
#endif
#endif
