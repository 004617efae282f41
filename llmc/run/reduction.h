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
    const ReducerKind *kind;
    Reducer *reducer; /* NULL for one rank */
    int64_t step;     /* being traced */
    int begin_mark;   /* at which the present range began */
    int next_index;   /* of marks, not yet used in this step */
    int is_first_range;
} Reduction;

/* Collective. -1 with *error. */
int reduction_init(Reduction *reduction, RunModel *model, const Options *options, int rank_count,
                   Trace *trace, Error *error);
void reduction_release(Reduction *reduction);

/* Put the callback into the context of a step's last slot, which begins at begin_mark; for the trace it sets
 * marks from next_index on. */
void reduction_attach(Reduction *reduction, SlotContext *context, int begin_mark, int next_index);

/* What the model does from here on finds everything summed over all ranks. */
void reduction_wait(Reduction *reduction);

/* After the step's update: when everything was. All zero for one rank. */
void reduction_read_times(Reduction *reduction, ReducerTimes *times);

#endif
