/* A Chrome trace of the first updates of a run (--trace=K): where the time of a step goes. Perfetto and
 * chrome://tracing open the file.
 */
#ifndef LLMC_RUN_TRACE_H
#define LLMC_RUN_TRACE_H

#include <stdint.h>

#include "llmc/base/error.h"

typedef struct TraceSpan {
    const char *name; /* static text */
    int64_t step;
    double begin_ms, end_ms;
} TraceSpan;

/* Owned by the caller: trace_init, trace_release. A trace of 0 updates does nothing. */
typedef struct Trace {
    TraceSpan *spans;
    int64_t count, capacity;
    int64_t end_step; /* spans of this step and later ones are not kept */
    double zero_ms;
} Trace;

/* Room for `steps` updates from first_step on with slot_count slots each. */
void trace_init(Trace *trace, int64_t first_step, int64_t steps, int slot_count);
void trace_release(Trace *trace);

/* Keep one span, which ends now. */
void trace_add(Trace *trace, const char *name, int64_t step, double begin_ms);

/* Write what was kept, with the rank as the process, to out_dir/trace.json (rank 0) or trace-RANK.json.
 * Nothing if there is nothing. -1 with *error. */
int trace_write(const Trace *trace, const char *out_dir, int rank, Error *error);

#endif
