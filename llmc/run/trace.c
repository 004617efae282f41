#define _GNU_SOURCE
#include "llmc/run/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/base/memory.h"

enum {
    SPANS_PER_SLOT = 2, /* load, slot */
    SPANS_PER_STEP = 4, /* reduce, update, evaluate, snapshot */
    SPANS_MAX = 1 << 22 /* later ones are left out */
};

void trace_init(Trace *trace, int64_t first_step, int64_t steps, int slot_count)
{
    memset(trace, 0, sizeof(*trace));
    trace->end_step = first_step + steps;
    trace->capacity = steps * (SPANS_PER_SLOT * (int64_t)slot_count + SPANS_PER_STEP);
    trace->capacity = trace->capacity < SPANS_MAX ? trace->capacity : SPANS_MAX;
    trace->zero_ms = clock_ms();
    if (steps > 0) {
        trace->spans = memory_alloc((size_t)trace->capacity, sizeof(*trace->spans), "trace");
    }
}

void trace_release(Trace *trace)
{
    memory_free(trace->spans);
    memset(trace, 0, sizeof(*trace));
}

void trace_add(Trace *trace, const char *name, int64_t step, double begin_ms)
{
    if (step >= trace->end_step || trace->count == trace->capacity) {
        return;
    }
    trace->spans[trace->count++] =
        (TraceSpan){.name = name, .step = step, .begin_ms = begin_ms, .end_ms = clock_ms()};
}

int trace_write(const Trace *trace, const char *out_dir, int rank, Error *error)
{
    if (trace->count == 0) {
        return 0;
    }
    char name[64], path[PATH_BYTES_MAX];
    snprintf(name, sizeof(name), rank == 0 ? "trace.json" : "trace-%d.json", rank);
    if (path_join(path, out_dir, name, error) != 0) {
        return -1;
    }
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    CHECK(memory, "out of memory");
    for (int64_t i = 0; i < trace->count; i++) {
        const TraceSpan *span = &trace->spans[i];
        fprintf(memory,
                "%s{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
                "\"iter\":%" PRId64 "}}",
                i == 0 ? "{\"traceEvents\":[\n" : ",\n", span->name, rank,
                (span->begin_ms - trace->zero_ms) * 1e3, (span->end_ms - span->begin_ms) * 1e3, span->step);
    }
    fputs("\n]}\n", memory);
    CHECK(fclose(memory) == 0, "out of memory");
    AtomicFile file;
    int status = atomic_file_init(&file, path, error);
    if (status == 0) {
        status = atomic_file_write(&file, text, bytes, error);
        status = status == 0 ? atomic_file_commit(&file, error) : -1;
        atomic_file_discard(&file);
    }
    memory_free(text);
    return status;
}
