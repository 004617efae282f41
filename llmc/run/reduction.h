/* What stands between the slots of a step and its update: gradients summed over ranks while backward runs.
 * With one rank there is nothing to sum; the trace still learns when backward finished each block.
 */
#ifndef LLMC_RUN_REDUCTION_H
#define LLMC_RUN_REDUCTION_H

#include "llmc/comm/reducer.h"
#include "llmc/run/options.h"
#include "llmc/run/run_model.h"
#include "llmc/run/trace.h"

/* Owned by the caller: reduction_init, reduction_release. */
typedef struct Reduction {
    RunModel *model;
    Trace *trace;
    Reducer *reducer; /* NULL for one rank */
    int64_t step;     /* being traced */
    double range_ms;  /* when the present range began */
    int is_first_range;
} Reduction;

void reduction_init(Reduction *reduction, RunModel *model, const Options *options, int rank_count,
                    Trace *trace);
void reduction_release(Reduction *reduction);

/* Put the callback into the context of a step's last slot. */
void reduction_attach(Reduction *reduction, SlotContext *context, int64_t step);

/* Wait until everything is summed on all ranks. */
void reduction_wait(Reduction *reduction, ReducerTimes *times);

#endif
