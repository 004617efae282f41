#include "llmc/run/reduction.h"

#include <stdio.h>
#include <string.h>

int reduction_init(Reduction *reduction, RunModel *model, const Options *options, int rank_count,
                   Trace *trace, Error *error)
{
    memset(reduction, 0, sizeof(*reduction));
    reduction->model = model;
    reduction->trace = trace;
    reduction->kind = model->backend->reducer;
    if (rank_count == 1) {
        return 0;
    }
    GradientArena arena = model->backend->gradients(model->model);
    const ParamSpec *wte = &model->table.specs[params_wte_index()];
    ReducerConfig config = {.elements = arena.elements,
                            .count = arena.count,
                            .type = options->reduce == REDUCE_BF16 ? COMM_BF16 : COMM_FLOAT,
                            .bucket_bytes = (int64_t)(options->bucket_cap_mb * (double)(1 << 20)),
                            .tail = arena.tail,
                            .tail_count = GRADIENT_TAIL,
                            .row_offset = wte->offset,
                            .rows = (int)wte->rows,
                            .row_count = (int)wte->columns,
                            .overlaps = options->overlap,
                            .queue = arena.queue};
    if (arena.is_int64) {
        config.type = COMM_INT64;
    }
    reduction->reducer = reduction->kind->create(&config, error);
    return reduction->reducer ? 0 : -1;
}

void reduction_release(Reduction *reduction)
{
    if (reduction->kind) {
        reduction->kind->free(reduction->reducer);
    }
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

/* The mark comes first: on a device the reducer's own waiting follows the last range. */
static void range_done(void *context, int64_t offset, int64_t count)
{
    Reduction *reduction = context;
    if (trace_is_on(reduction->trace, reduction->step)) {
        RunModel *model = reduction->model;
        char name[TRACE_NAME_BYTES];
        int end_mark = trace_mark(reduction->next_index++, reduction->step);
        name_range(name, sizeof(name), &model->table, offset, reduction->is_first_range);
        model->backend->mark(model->model, end_mark);
        trace_add_marked(reduction->trace, name, reduction->step, reduction->begin_mark, end_mark);
        reduction->begin_mark = end_mark;
        reduction->is_first_range = 0;
    }
    if (reduction->reducer) {
        reduction->kind->range_done(reduction->reducer, offset, count);
    }
}

void reduction_attach(Reduction *reduction, SlotContext *context, int begin_mark, int next_index)
{
    reduction->step = context->step;
    reduction->begin_mark = begin_mark;
    reduction->next_index = next_index;
    reduction->is_first_range = 1;
    context->range_done = range_done;
    context->range_context = reduction;
}

void reduction_wait(Reduction *reduction)
{
    if (reduction->reducer) {
        GradientArena arena = reduction->model->backend->gradients(reduction->model->model);
        ReducerRest rest = {.tokens = arena.late.tokens, .sums = arena.late.sums, .count = arena.late.count};
        reduction->kind->wait(reduction->reducer, &rest);
    }
}

static void trace_times(Reduction *reduction, const ReducerTimes *times)
{
    TraceSpan wait = {.name = "wait",
                      .step = reduction->step,
                      .begin_ms = times->wait_begin_ms,
                      .end_ms = times->wait_end_ms};
    trace_add_span(reduction->trace, &wait);
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

void reduction_read_times(Reduction *reduction, ReducerTimes *times)
{
    memset(times, 0, sizeof(*times));
    if (reduction->reducer) {
        reduction->kind->read_times(reduction->reducer, times);
        trace_times(reduction, times);
    }
}
