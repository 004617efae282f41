/* A reference folder: config.json, model.safetensors, and reference.safetensors with what another
 * implementation computed from them in fp32. */
#ifndef LLMC_REFERENCE_REFERENCE_H
#define LLMC_REFERENCE_REFERENCE_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/model/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Owned by the caller: reference_init, reference_release. */
typedef struct Reference {
    ParamTable table;
    int B, T;
    float *weights;            /* arena */
    int32_t *tokens, *targets; /* (B,T) */
    float *logits;             /* (B,T,V) */
    float loss;
    float *gradients; /* arena */
} Reference;

/* Reads and checks everything: every tensor there with its dtype and shape and none unknown, all values
 * finite, tokens and targets in the vocabulary. -1 with *error naming file and tensor. */
int reference_init(Reference *reference, const char *folder, Error *error);
void reference_release(Reference *reference);

#ifdef __cplusplus
}
#endif
#endif
