#include "llmc/run/step_times.h"

#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/run/trace.h"

double step_times_busy_ms(const StepTimes *times)
{
    return times->data_ms + times->compute_ms + times->update_ms;
}

static double at_ms(const RunModel *model, int index, int64_t step)
{
    return model->backend->mark_ms(model->model, trace_mark(index, step));
}

/* Time in the slots, without what the last one waited for other ranks. */
static double slots_ms(const RunModel *model, int64_t step, int slot_count, const ReducerTimes *reducer)
{
    double sum = 0;
    for (int k = 0; k < slot_count; k++) {
        int index = MARK_SLOTS + 2 * k;
        sum += at_ms(model, index + 1, step) - at_ms(model, index, step);
    }
    double end_ms = at_ms(model, MARK_SLOTS + 2 * slot_count - 1, step);
    int has_waited = reducer->bucket_count > 0 && reducer->wait_begin_ms < end_ms;
    return has_waited ? sum - (end_ms - reducer->wait_begin_ms) : sum;
}

void step_times_read(StepTimes *times, const RunModel *model, int64_t step, int slot_count, double data_ms,
                     double forward_ms, const ReducerTimes *reducer)
{
    *times = (StepTimes){.data_ms = data_ms,
                         .forward_ms = forward_ms,
                         .compute_ms = slots_ms(model, step, slot_count, reducer),
                         .exposed_ms = reducer->wait_end_ms - reducer->wait_begin_ms,
                         .update_ms = at_ms(model, MARK_UPDATE + 1, step) - at_ms(model, MARK_UPDATE, step)};
    for (int i = 0; i < reducer->bucket_count; i++) {
        times->comm_ms += reducer->buckets[i].end_ms - reducer->buckets[i].begin_ms;
    }
}

void stragglers_init(Stragglers *stragglers, int rank, int rank_count)
{
    *stragglers = (Stragglers){.rank = rank, .rank_count = rank_count, .last_iter = -1, .slowest.rank = -1};
    stragglers->told =
        memory_alloc(1 + (size_t)STRAGGLER_FIELDS * (size_t)rank_count, sizeof(int64_t), "times of ranks");
}

void stragglers_release(Stragglers *stragglers)
{
    memory_free(stragglers->told);
    memset(stragglers, 0, sizeof(*stragglers));
}

void stragglers_note(Stragglers *stragglers, int64_t iter, const StepTimes *times)
{
    stragglers->last_iter = iter;
    stragglers->last = *times;
}

/* Whole microseconds: each rank's place is 0 at the others, and what is there is not below 0. */
static int64_t to_us(double ms)
{
    return ms > 0 ? (int64_t)(ms * 1e3) : 0;
}

static void tell_own(const Stragglers *stragglers, int64_t *own)
{
    const StepTimes *last = &stragglers->last;
    const int64_t fields[STRAGGLER_FIELDS] = {stragglers->last_iter + 1, to_us(last->data_ms),
                                              to_us(last->forward_ms), to_us(last->compute_ms),
                                              to_us(last->update_ms)};
    memcpy(own, fields, sizeof(fields));
}

static void find_slowest(Stragglers *stragglers)
{
    stragglers->slowest.rank = -1;
    for (int r = 0; r < stragglers->rank_count; r++) {
        const int64_t *own = stragglers->told + 1 + (int64_t)r * STRAGGLER_FIELDS;
        StepTimes times = {.data_ms = (double)own[1] / 1e3,
                           .forward_ms = (double)own[2] / 1e3,
                           .compute_ms = (double)own[3] / 1e3,
                           .update_ms = (double)own[4] / 1e3};
        if (own[0] > 0 && (stragglers->slowest.rank < 0 ||
                           step_times_busy_ms(&times) > step_times_busy_ms(&stragglers->slowest.times))) {
            stragglers->slowest = (Slowest){.rank = r, .iter = own[0] - 1, .times = times};
        }
    }
}

int64_t stragglers_agree(Stragglers *stragglers, int64_t reason, int tells_times)
{
    int64_t *told = stragglers->told;
    int64_t count = 1 + (tells_times ? (int64_t)STRAGGLER_FIELDS * stragglers->rank_count : 0);
    memset(told, 0, (size_t)count * sizeof(*told));
    told[0] = reason;
    if (tells_times) {
        tell_own(stragglers, told + 1 + (int64_t)stragglers->rank * STRAGGLER_FIELDS);
    }
    comm_max_int64(told, count);
    if (tells_times) {
        find_slowest(stragglers);
    }
    return told[0];
}
