/* A Chrome trace of the first updates of a run (--trace=K): where the time of a step goes. Perfetto and
 * chrome://tracing open the file.
 */
#ifndef LLMC_RUN_TRACE_H
#define LLMC_RUN_TRACE_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/run/run_model.h"

enum { TRACE_NAME_BYTES = 32 };

/* The device's mark number `index` of a step: steps take turns (compute/backend.h). */
static inline int trace_mark(int index, int64_t step)
{
    return 2 * index + (int)(step % 2);
}

/* The rows of a rank. The loader's waits have one of their own: a device may be busy meanwhile. */
typedef enum TraceThread { TRACE_TRAINING, TRACE_COMMUNICATION, TRACE_DATA, TRACE_THREADS } TraceThread;

typedef struct TraceSpan {
    char name[TRACE_NAME_BYTES];
    int64_t step;
    TraceThread thread;
    double begin_ms, end_ms;
    int begin_mark, end_mark; /* marks of the device, to be read instead; both 0: there are none */
    int64_t bytes;            /* sent; 0: not said */
} TraceSpan;

/* Owned by the caller: trace_init, trace_release. A trace of 0 updates does nothing. */
typedef struct Trace {
    TraceSpan *spans;
    int64_t count, capacity;
    int64_t read_count; /* spans whose marks are read, or that have none */
    int64_t end_step;   /* spans of this step and later ones are not kept */
    double zero_ms;
} Trace;

/* Room for `steps` updates from first_step on, with spans_per_step spans each. Collective when there are
 * steps: the clocks of all ranks begin together. */
void trace_init(Trace *trace, int64_t first_step, int64_t steps, int64_t spans_per_step);
void trace_release(Trace *trace);

static inline int trace_is_on(const Trace *trace, int64_t step)
{
    return step < trace->end_step;
}

/* Keep one span. */
void trace_add_span(Trace *trace, const TraceSpan *span);
/* One which ends now. */
void trace_add(Trace *trace, TraceThread thread, const char *name, int64_t step, double begin_ms);
/* The training thread's, between two marks. */
void trace_add_marked(Trace *trace, const char *name, int64_t step, int begin_mark, int end_mark);
/* Read the marks of this step's spans, whose update is over. */
void trace_read_marks(Trace *trace, const RunModel *model);

/* Collective: write what all ranks kept, each as a process, to out_dir/trace.json on rank 0. Nothing if there
 * is nothing. -1 with *error. */
int trace_write(const Trace *trace, const char *out_dir, Error *error);

#endif
