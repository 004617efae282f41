/* What is allowed but probably not meant: lines that begin with `notice: `, before the first update. */
#ifndef LLMC_RUN_NOTICES_H
#define LLMC_RUN_NOTICES_H

#include <stdint.h>
#include <stdio.h>

#include "llmc/run/options.h"

/* What the options alone tell: names of nanoGPT's that mean nothing here, a schedule that does not fit the
 * run, sums that are not exact. */
void notices_print(const Options *options, FILE *out);

/* eval_iters batches that are more than the windows of a split, which are 0 where it is not evaluated. */
void notices_print_evaluation(const Options *options, int64_t train_windows, int64_t val_windows, FILE *out);

#endif
