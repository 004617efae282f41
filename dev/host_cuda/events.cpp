/* Events: what streams wait for, and what programs ask. */
#include <set>

#include "streams.h"

static std::set<cudaEvent_t> &live_events = *new std::set<cudaEvent_t>();
static uint64_t waits_count;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    ApiCall call;
    bool has_time = !(flags & cudaEventDisableTiming);
    *event = call.error ? NULL : new CUevent_st{NULL, has_time, device_current()};
    live_events.insert(*event);
    return call.error;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

void event_record(cudaEvent_t event, const std::shared_ptr<Record> &record, const char *function)
{
    if (!live_events.count(event)) {
        check_failed(NULL, "%s: an event that it records was destroyed", function);
    }
    event->record = record;
    event->capture = NULL;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    ApiCall call;
    bool is_captured = stream && stream->capture;
    if (call.error) {
        return call.error;
    }
    if (stream && event->device != stream->device) {
        return call.end(cudaErrorInvalidResourceHandle);
    }
    if (flags == cudaEventRecordExternal) {
        return call.end(is_captured ? capture_add(stream, Work(), event) : cudaErrorInvalidValue);
    }
    if (is_captured) {
        return call.end(capture_record(event, stream));
    }
    Work work;
    work.records = std::make_shared<Record>();
    event_record(event, work.records, "cudaEventRecord");
    return stream_push(&call, stream, work);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    ApiCall call;
    Work work;
    if (call.error || ++waits_count == (uint64_t)setting("HOST_CUDA_DROP_WAIT", 0)) {
        return call.error;
    }
    if (event->capture || (stream && stream->capture)) {
        return call.end(capture_wait(stream, event));
    }
    if (!event->record) {
        return cudaSuccess;
    }
    work.waits_for.push_back(event->record);
    return stream_push(&call, stream, work);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ApiCall call;
    std::shared_ptr<Record> record = event->record;
    cudaError_t error = capture_forbids_event(event);
    if (error) {
        return call.end(error);
    }
    while (record && !record->is_done && stream_progress(&call, true)) {
    }
    return call.end(device_error());
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ApiCall call;
    std::shared_ptr<Record> record = event->record;
    cudaError_t error = capture_forbids_event(event);
    return error ? call.end(error) : stream_ask(&call, [=] { return !record || record->is_done; });
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ApiCall call;
    if (start->capture || end->capture) {
        return call.end(cudaErrorCapturedEvent);
    }
    if (!start->has_time || !end->has_time || !start->record || !end->record) {
        return call.end(cudaErrorInvalidResourceHandle);
    }
    if (!start->record->is_done || !end->record->is_done) {
        return cudaErrorNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(end->record->time - start->record->time).count();
    return call.error;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ApiCall call;
    live_events.erase(event);
    delete event;
    return call.error;
}
