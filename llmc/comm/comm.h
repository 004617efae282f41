/* Ranks: who takes part in the run, and the collectives that training needs. One file of comm_*.c is linked,
 * chosen in the Makefile; every function is called by all ranks in the same order.
 */
#ifndef LLMC_COMM_COMM_H
#define LLMC_COMM_COMM_H

#include <stdint.h>

#include "llmc/base/error.h"

/* Joins the job that the launcher started, or a job of one. */
int comm_init(int *argc, char ***argv, Error *error);
void comm_finish(void);

int comm_rank(void);
int comm_rank_count(void);

/* In place, over all ranks. */
void comm_sum_int64(int64_t *values, int64_t count);
void comm_sum_float(float *values, int64_t count);
void comm_max_int64(int64_t *values, int64_t count);
void comm_barrier(void);

#endif
