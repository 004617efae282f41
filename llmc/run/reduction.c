#include "llmc/run/reduction.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/clock.h"

void reduction_init(Reduction *reduction, RunModel *model, const Options *options, int rank_count,
                    Trace *trace)
{
    memset(reduction, 0, sizeof(*reduction));
    reduction->model = model;
    reduction->trace = trace;
    if (rank_count == 1) {
        return;
    }
    GradientArena arena = model->backend->gradients(model->model);
    const ParamSpec *wte = &model->table.specs[params_wte_index()];
    ReducerConfig config = {.elements = arena.elements,
                            .count = arena.count,
                            .type = options->reduce == REDUCE_BF16 ? COMM_BF16 : COMM_FLOAT,
                            .bucket_bytes = (int64_t)(options->bucket_cap_mb * (double)(1 << 20)),
                            .row_offset = wte->offset,
                            .rows = (int)wte->rows,
                            .row_count = (int)wte->columns,
                            .overlaps = options->overlap};
    if (arena.is_int64) {
        config.type = COMM_INT64;
    }
    reduction->reducer = reducer_create(&config);
}

void reduction_release(Reduction *reduction)
{
    reducer_free(reduction->reducer);
    reduction->reducer = NULL;
}

/* What backward did until this range was final. */
static void name_range(char *name, size_t name_bytes, const ParamTable *table, int64_t offset, int is_first)
{
    int index = 0;
    while (index + 1 < table->count && table->specs[index + 1].offset <= offset) {
        index++;
    }
    if (is_first) {
        snprintf(name, name_bytes, "forward, lm_head");
    } else if (index == params_wte_index()) {
        snprintf(name, name_bytes, "backward tokens");
    } else if (index == params_wpe_index()) {
        snprintf(name, name_bytes, "backward positions");
    } else if (index >= params_lnf_weight_index(table)) {
        snprintf(name, name_bytes, "backward ln_f");
    } else {
        int l = 0;
        while (params_block_index(l + 1, 0) <= index) {
            l++;
        }
        snprintf(name, name_bytes, "backward block %d", l);
    }
}

static void range_done(void *context, int64_t offset, int64_t count)
{
    Reduction *reduction = context;
    if (reduction->reducer) {
        reducer_range_done(reduction->reducer, offset, count);
    }
    if (trace_is_on(reduction->trace, reduction->step)) {
        char name[TRACE_NAME_BYTES];
        int is_first = reduction->is_first_range;
        name_range(name, sizeof(name), &reduction->model->table, offset, is_first);
        trace_add(reduction->trace, name, reduction->step, reduction->range_ms);
        reduction->range_ms = clock_ms();
        reduction->is_first_range = 0;
    }
}

void reduction_attach(Reduction *reduction, SlotContext *context, int64_t step)
{
    reduction->step = step;
    reduction->range_ms = clock_ms();
    reduction->is_first_range = 1;
    context->range_done = range_done;
    context->range_context = reduction;
}

void reduction_wait(Reduction *reduction, ReducerTimes *times)
{
    memset(times, 0, sizeof(*times));
    if (!reduction->reducer) {
        return;
    }
    double begin_ms = clock_ms();
    GradientArena arena = reduction->model->backend->gradients(reduction->model->model);
    ReducerRest rest = {.tokens = arena.late.tokens,
                        .sums = arena.late.sums,
                        .count = arena.late.count,
                        .tail = arena.tail,
                        .tail_count = GRADIENT_TAIL};
    reducer_wait(reduction->reducer, &rest, times);
    trace_add(reduction->trace, "wait", reduction->step, begin_ms);
    for (int i = 0; i < times->bucket_count; i++) {
        const BucketTiming *bucket = &times->buckets[i];
        TraceSpan span = {.step = reduction->step,
                          .thread = TRACE_COMMUNICATION,
                          .begin_ms = bucket->begin_ms,
                          .end_ms = bucket->end_ms,
                          .bytes = bucket->bytes};
        snprintf(span.name, sizeof(span.name), "%s", bucket->what);
        trace_add_span(reduction->trace, &span);
    }
}
