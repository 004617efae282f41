/* The learning rate of each update. */
#ifndef LLMC_RUN_SCHEDULE_H
#define LLMC_RUN_SCHEDULE_H

#include <stdint.h>

#include "llmc/run/options.h"

/* Rate of update `iter`, counted from 0.
 *   warm-up   learning_rate * (iter + 1) / (warmup_iters + 1) while iter < warmup_iters; all schedules
 *   cosine    half a cosine from learning_rate at warmup_iters to min_lr at lr_decay_iters
 *   linear    a straight line between the same points
 *   constant  learning_rate
 *   wsd       learning_rate, and in the last fifth of lr_decay_iters down to min_lr by 1 - sqrt
 * From lr_decay_iters on all but constant stay at min_lr.
 * Source: nanoGPT's train.py for warm-up and cosine; arXiv:2405.18392 for wsd. */
double schedule_learning_rate(const Options *options, int64_t iter);

#endif
