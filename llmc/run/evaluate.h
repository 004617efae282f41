/* Evaluation: the mean loss of windows of each split, the same number at any number of ranks. */
#ifndef LLMC_RUN_EVALUATE_H
#define LLMC_RUN_EVALUATE_H

#include "llmc/data/dataset.h"
#include "llmc/run/run_model.h"

typedef struct EvaluateArgs {
    RunModel *model;
    int batch_size;                     /* B, as the model was created */
    int sequence_tokens;                /* T */
    int64_t iters;                      /* eval_iters: batches of each split; 0: the whole of val */
    const DataSet *train_set, *val_set; /* train_set NULL: there is none */
    int rank, rank_count;
} EvaluateArgs;

typedef struct EvaluateResult {
    double train_loss, val_loss; /* NAN where a batch's loss is not finite, or there is no set */
    int is_complete;             /* 0: a signal asked for the end meanwhile, and there are no losses */
} EvaluateResult;

/* val: windows in file order. train: as many windows of a fixed sample, the same in every run on these data.
 * Windows are counted once; a split with fewer is evaluated whole. Called by all ranks. -1 with *error when a
 * token is out of the vocabulary. */
int evaluate(EvaluateResult *result, const EvaluateArgs *args, Error *error);

#endif
