#define _GNU_SOURCE
#include "llmc/run/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"

enum { SPANS_MAX = 1 << 22 /* later ones are left out */ };

void trace_init(Trace *trace, int64_t first_step, int64_t steps, int64_t spans_per_step)
{
    memset(trace, 0, sizeof(*trace));
    if (steps == 0) {
        return;
    }
    trace->end_step = first_step + steps;
    trace->capacity = steps < SPANS_MAX / spans_per_step ? steps * spans_per_step : SPANS_MAX;
    trace->spans = memory_alloc((size_t)trace->capacity, sizeof(*trace->spans), "trace");
    comm_barrier();
    trace->zero_ms = clock_ms();
}

void trace_release(Trace *trace)
{
    memory_free(trace->spans);
    memset(trace, 0, sizeof(*trace));
}

void trace_add_span(Trace *trace, const TraceSpan *span)
{
    if (trace_is_on(trace, span->step) && trace->count < trace->capacity) {
        trace->spans[trace->count++] = *span;
    }
}

void trace_add(Trace *trace, TraceThread thread, const char *name, int64_t step, double begin_ms)
{
    TraceSpan span = {.step = step, .thread = thread, .begin_ms = begin_ms, .end_ms = clock_ms()};
    snprintf(span.name, sizeof(span.name), "%s", name);
    trace_add_span(trace, &span);
}

void trace_add_marked(Trace *trace, const char *name, int64_t step, int begin_mark, int end_mark)
{
    TraceSpan span = {.step = step, .begin_mark = begin_mark, .end_mark = end_mark};
    snprintf(span.name, sizeof(span.name), "%s", name);
    trace_add_span(trace, &span);
}

void trace_read_marks(Trace *trace, const RunModel *model)
{
    for (; trace->read_count < trace->count; trace->read_count++) {
        TraceSpan *span = &trace->spans[trace->read_count];
        if (span->end_mark > 0) {
            span->begin_ms = model->backend->mark_ms(model->model, span->begin_mark);
            span->end_ms = model->backend->mark_ms(model->model, span->end_mark);
        }
    }
}

/* This rank's events, each followed by a comma; the caller frees. */
static char *print_events(const Trace *trace, size_t *bytes)
{
    static const char *const threads[] = {
        [TRACE_TRAINING] = "training", [TRACE_COMMUNICATION] = "communication", [TRACE_DATA] = "data"};
    int rank = comm_rank();
    char *text = NULL;
    FILE *memory = open_memstream(&text, bytes);
    CHECK(memory, "out of memory");
    fprintf(memory, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}},\n",
            rank, rank);
    for (int thread = 0; thread < TRACE_THREADS; thread++) {
        fprintf(memory,
                "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n",
                rank, thread, threads[thread]);
    }
    for (int64_t i = 0; i < trace->count; i++) {
        const TraceSpan *span = &trace->spans[i];
        fprintf(memory,
                "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
                "\"iter\":%" PRId64 ",\"bytes\":%" PRId64 "}},\n",
                span->name, rank, (int)span->thread, (span->begin_ms - trace->zero_ms) * 1e3,
                (span->end_ms - span->begin_ms) * 1e3, span->step, span->bytes);
    }
    CHECK(fclose(memory) == 0, "out of memory");
    return text;
}

/* Write the events of all ranks: every rank in turn sends its text, rank 0 keeps it unless its status is bad
 * already. */
static int write_events(AtomicFile *file, int status, const char *own, size_t own_bytes, Error *error)
{
    static const char head[] = "{\"traceEvents\":[\n",
                      foot[] = "{\"name\":\"end\",\"ph\":\"M\",\"pid\":0}]}\n";
    int count = comm_rank_count();
    uint64_t *bytes = memory_alloc((size_t)count, sizeof(*bytes), "trace sizes");
    comm_gather_uint64(own_bytes, bytes);
    int is_writer = comm_rank() == 0;
    if (is_writer && status == 0) {
        status = atomic_file_write(file, head, sizeof(head) - 1, error);
    }
    for (int rank = 0; rank < count; rank++) {
        char *text = memory_alloc(bytes[rank], 1, "trace");
        if (rank == comm_rank()) {
            memcpy(text, own, own_bytes);
        }
        comm_broadcast(text, (int64_t)bytes[rank], rank);
        if (is_writer && status == 0) {
            status = atomic_file_write(file, text, bytes[rank], error);
        }
        memory_free(text);
    }
    memory_free(bytes);
    return is_writer && status == 0 ? atomic_file_write(file, foot, sizeof(foot) - 1, error) : status;
}

int trace_write(const Trace *trace, const char *out_dir, Error *error)
{
    if (!trace->spans) {
        return 0;
    }
    char path[PATH_BYTES_MAX];
    AtomicFile file = {.descriptor = -1};
    int is_writer = comm_rank() == 0;
    int status = 0;
    if (is_writer &&
        (path_join(path, out_dir, "trace.json", error) != 0 || atomic_file_init(&file, path, error) != 0)) {
        status = -1; /* the others send their events all the same */
    }
    size_t bytes = 0;
    char *text = print_events(trace, &bytes);
    status = write_events(&file, status, text, bytes, error);
    if (is_writer && status == 0) {
        status = atomic_file_commit(&file, error);
    }
    atomic_file_discard(&file);
    free(text);
    return status;
}
