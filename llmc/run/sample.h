/* Sampling: text that the model goes on with, printed as it is drawn. */
#ifndef LLMC_RUN_SAMPLE_H
#define LLMC_RUN_SAMPLE_H

#include <stdio.h>

#include "llmc/run/options.h"
#include "llmc/run/prompt.h"
#include "llmc/run/run_model.h"

/* Draw `samples` samples that go on from the prompt, with the options' max_new_tokens, temperature, top_k and
 * seed. Sample i depends on the weights, these options, the prompt and i alone. A signal ends it after the
 * token at hand. -1 with *error when `out` cannot be written. */
int sample(FILE *out, const Options *options, int64_t samples, const Prompt *prompt, RunModel *model,
           Error *error);

/* The draw itself: index of the token that `uniform` (0 to 1) falls on among the top_k likeliest of `count`
 * logits at this temperature. Ties go to the lower id. `scratch` holds count ints. */
int sample_token(const float *logits, int count, double temperature, int64_t top_k, double uniform,
                 int *scratch);

#endif
