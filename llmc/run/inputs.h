/* The data sets of a run: dataset, train_data, val_data. */
#ifndef LLMC_RUN_INPUTS_H
#define LLMC_RUN_INPUTS_H

#include "llmc/data/dataset.h"
#include "llmc/run/options.h"

/* Open what the options name; val only if it is needed (else *val is NULL). With eval_only, val_data needs no
 * training data beside it, nor does a dataset without them: *train is NULL then. And hellaswag alone needs no
 * data at all: both are. -1 with *error that says which command makes missing data. The caller frees both. */
int inputs_open(DataSet **train, DataSet **val, const Options *options, int needs_val, Error *error);

#endif
