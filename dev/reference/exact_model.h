/* A whole GPT-2 pass in double precision: the scale against which programs in fp32 and bf16 are judged. */
#ifndef LLMC_REFERENCE_EXACT_MODEL_H
#define LLMC_REFERENCE_EXACT_MODEL_H

#include <stdint.h>

#include "dev/reference/exact_ops.h"
#include "llmc/model/params.h"

/* One pass over B rows of T tokens. Borrows everything. */
typedef struct ExactPass {
    const ParamTable *table;
    const float *weights;            /* arena */
    const int32_t *tokens, *targets; /* (B,T) */
    int B, T;
    double *logits;       /* (B,T,V) = */
    double *token_losses; /* (B,T) =; the loss is their mean */
    double *gradients;    /* arena = gradient of the loss */
} ExactPass;

/* What rounding->storage_unit says is the precision of everything that is stored; weights too when it is
 * coarser than fp32. */
void exact_pass(const ExactPass *pass, Rounding *rounding);

#endif
