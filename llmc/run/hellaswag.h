/* HellaSwag: how often the right one of four endings is the likeliest. An ending's score is the mean loss of
 * its tokens after the context, so that long ones are not at a disadvantage; the lowest is chosen, the first
 * of equal ones (acc_norm of EleutherAI's harness; llm.c and nanoGPT score alike).
 *
 * The model sees at most block_size tokens. Where context and ending have more, the beginning of the context
 * is left out; an ending that is too long by itself is scored by its last block_size tokens.
 *
 * Which items share a batch, and where they lie in it, does not depend on the number of ranks; nor do the
 * results.
 */
#ifndef LLMC_RUN_HELLASWAG_H
#define LLMC_RUN_HELLASWAG_H

#include "llmc/run/hellaswag_file.h"
#include "llmc/run/run_model.h"

typedef struct HellaSwagArgs {
    RunModel *model;
    const HellaSwagSet *set; /* of tokens that the model knows */
    int batch_size;          /* B, as the model was created */
    int sequence_tokens;     /* T */
    int rank, rank_count;
    double *losses; /* (items,4) the scores, of the items that this rank has; or NULL */
} HellaSwagArgs;

typedef struct HellaSwagResult {
    int64_t correct, items;
    double loss;     /* of the right endings: the mean of their scores; NAN where one is not finite */
    int is_complete; /* 0: a signal asked for the end meanwhile, and there is no result */
} HellaSwagResult;

/* Called by all ranks. An ending whose score is no number is not chosen. */
void hellaswag_score(HellaSwagResult *result, const HellaSwagArgs *args);

/* How many items have an ending that does not fit behind the whole context. */
int64_t hellaswag_cut_items(const HellaSwagSet *set, int sequence_tokens);

#endif
