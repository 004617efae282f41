/* Streams: queues of work that runs only when somebody waits. Which stream goes on is random, unless events or
 * the NULL stream order them: each has a priority that now and then is drawn anew, so that one may run far
 * ahead of another. */
#include <algorithm>
#include <condition_variable>
#include <map>
#include <stdlib.h>
#include <thread>

#include "streams.h"

enum { QUEUED_MAX = 1024, SOON_MS = 20 };

std::mutex api_mutex;
/* Never freed: other threads may still wait or work when the process ends. */
static std::condition_variable &queues_changed = *new std::condition_variable();
static CUstream_st &legacy = *new CUstream_st{{}, true, false, 0, 0};
static std::vector<CUstream_st *> &streams = *new std::vector<CUstream_st *>{&legacy};
static cudaError_t fault, last_error;
static uint64_t works_count, queued_count, random_state;

/* ---- calls and errors --------------------------------------------------------------------------------- */

static int driver_version(void)
{
    const char *driver = getenv("HOST_CUDA_DRIVER");
    return !driver ? 13000 : strcmp(driver, "old") == 0 ? 11040 : strcmp(driver, "missing") == 0 ? 0 : 13000;
}

cudaError_t device_error(void)
{
    if (driver_version() < 13000) {
        return cudaErrorInsufficientDriver;
    }
    return setting("HOST_CUDA_DEVICES", 1) <= 0 ? cudaErrorNoDevice : fault;
}

ApiCall::ApiCall() : lock(api_mutex), error(device_error())
{
    if (error) {
        last_error = error;
    }
    static bool is_seeded;
    if (!is_seeded) {
        random_state = (uint64_t)setting("HOST_CUDA_SEED", 1);
        is_seeded = true;
    }
}

cudaError_t ApiCall::end(cudaError_t result)
{
    error = result;
    last_error = result ? result : last_error;
    return result;
}

cudaError_t cudaPeekAtLastError(void)
{
    ApiCall call;
    return last_error;
}

cudaError_t cudaGetLastError(void)
{
    ApiCall call;
    cudaError_t error = last_error;
    last_error = fault;
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    static const std::map<cudaError_t, const char *> texts = {
        {cudaSuccess, "no error"},
        {cudaErrorInvalidValue, "invalid argument"},
        {cudaErrorMemoryAllocation, "out of memory"},
        {cudaErrorInvalidConfiguration, "invalid configuration argument"},
        {cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"},
        {cudaErrorNoDevice, "no CUDA-capable device is detected"},
        {cudaErrorInvalidDevice, "invalid device ordinal"},
        {cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"},
        {cudaErrorInvalidResourceHandle, "invalid resource handle"},
        {cudaErrorIllegalState, "the operation cannot be performed in the present state"},
        {cudaErrorNotReady, "device not ready"},
        {cudaErrorLaunchFailure, "unspecified launch failure"},
        {cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"},
        {cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"},
        {cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"},
        {cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"},
        {cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"},
        {cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"},
        {cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing one"},
        {cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"},
        {cudaErrorStreamCaptureWrongThread,
         "attempt to terminate a thread-local capture from another thread"},
    };
    auto found = texts.find(error);
    return found == texts.end() ? "unrecognized error code" : found->second;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

/* ---- running what is queued --------------------------------------------------------------------------- */

/* The NULL stream's work runs after all that was queued before it in blocking streams, and before all that
 * was queued there later. */
static bool may_run(const CUstream_st *stream)
{
    if (stream->queue.empty() || stream->is_busy) {
        return false;
    }
    const Work &work = stream->queue.front();
    for (const std::shared_ptr<Record> &record : work.waits_for) {
        if (!record->is_done) {
            return false;
        }
    }
    if (stream != &legacy) {
        return !stream->is_blocking || legacy.queue.empty() || legacy.queue.front().number > work.number;
    }
    for (const CUstream_st *other : streams) {
        if (other->is_blocking && !other->queue.empty() && other->queue.front().number < work.number) {
            return false;
        }
    }
    return true;
}

/* Work that runs apart goes on, and finds its queue empty. */
static void fail_all(void)
{
    fault = last_error = cudaErrorLaunchFailure;
    for (CUstream_st *stream : streams) {
        for (Work &work : stream->queue) {
            if (work.records) {
                work.records->is_done = true;
            }
        }
        queued_count -= stream->queue.size();
        stream->queue.clear();
    }
    queues_changed.notify_all();
}

/* The first piece of work of the stream, this one, has run. */
static void end_first(CUstream_st *stream, const Work &work)
{
    stream->is_busy = false;
    if (!stream->queue.empty()) { /* a fault may have cleared it meanwhile */
        stream->queue.pop_front();
        queued_count--;
    }
    if (work.records) {
        work.records->is_done = true;
        work.records->time = std::chrono::steady_clock::now();
    }
    queues_changed.notify_all();
}

static void run_apart(CUstream_st *stream, Work work)
{
    work.run();
    std::unique_lock<std::mutex> lock(api_mutex);
    end_first(stream, work);
}

/* It lasts long as the others see it, or it is over before they go on, if it can be over soon: drawn. */
static void start_apart(std::unique_lock<std::mutex> *lock, CUstream_st *stream, Work work)
{
    if (!work.records) {
        work.records = std::make_shared<Record>();
    }
    std::shared_ptr<Record> end = work.records;
    std::thread(run_apart, stream, std::move(work)).detach();
    if (random_next(&random_state) % 2 == 0) {
        queues_changed.wait_for(*lock, std::chrono::milliseconds(SOON_MS), [=] { return end->is_done; });
    }
}

static void run_first(std::unique_lock<std::mutex> *lock, CUstream_st *stream)
{
    Work work = stream->queue.front();
    if (work.fails) {
        fail_all();
        return;
    }
    stream->is_busy = true;
    if (work.place == WORK_APART) {
        start_apart(lock, stream, std::move(work));
        return;
    }
    if (work.place == WORK_UNLOCKED) {
        lock->unlock();
        work.run();
        lock->lock();
    } else if (work.run) {
        work.run();
    }
    end_first(stream, work);
}

bool stream_progress(ApiCall *call, bool may_wait)
{
    CUstream_st *chosen = NULL;
    bool is_any_busy = false;
    if (random_next(&random_state) % 8 == 0) {
        uint64_t number = random_next(&random_state) % streams.size();
        streams[number]->priority = random_next(&random_state);
    }
    for (CUstream_st *stream : streams) {
        is_any_busy = is_any_busy || stream->is_busy;
        if (may_run(stream) && (!chosen || stream->priority > chosen->priority)) {
            chosen = stream;
        }
    }
    if (chosen) {
        run_first(&call->lock, chosen);
    } else if (is_any_busy && may_wait) {
        queues_changed.wait(call->lock);
    }
    return chosen || (is_any_busy && may_wait);
}

void stream_finish(ApiCall *call, cudaStream_t stream)
{
    const CUstream_st *which = stream ? stream : &legacy;
    while (!which->queue.empty() && stream_progress(call, true)) {
    }
}

void ApiCall::drain(void)
{
    while (queued_count > 0 && stream_progress(this, true)) {
    }
    error = device_error();
}

void stream_queue(cudaStream_t stream, Work work)
{
    if (work.bind) {
        work.bind(&work);
    }
    work.number = ++works_count;
    queued_count++;
    (stream ? stream : &legacy)->queue.push_back(std::move(work));
    queues_changed.notify_all();
}

cudaError_t stream_limit(ApiCall *call)
{
    while (queued_count > QUEUED_MAX && stream_progress(call, true)) {
    }
    return cudaSuccess;
}

cudaError_t stream_push(ApiCall *call, cudaStream_t stream, Work work)
{
    if (call->error) {
        return call->error;
    }
    if (stream && stream->capture) {
        return call->end(capture_add(stream, std::move(work), NULL));
    }
    cudaError_t error = stream ? cudaSuccess : capture_forbids(CAPTURE_USE_NULL_STREAM);
    if (error) {
        return call->end(error);
    }
    stream_queue(stream, std::move(work));
    return stream_limit(call);
}

cudaError_t stream_enqueue(cudaStream_t stream, std::function<void()> run)
{
    ApiCall call;
    if (!call.error && !stream_is_here(stream)) {
        return call.end(cudaErrorInvalidResourceHandle);
    }
    return stream_push(&call, stream, Work(std::move(run)));
}

/* ---- streams ------------------------------------------------------------------------------------------ */

static cudaStream_t add_stream(bool is_blocking)
{
    streams.push_back(new CUstream_st{{}, is_blocking, false, random_next(&random_state), device_current()});
    return streams.back();
}

cudaStream_t stream_add_hidden(void)
{
    return add_stream(false);
}

void stream_remove(cudaStream_t stream)
{
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    if (!stream->is_busy) { /* after a fault, what runs apart may still end */
        delete stream;
    }
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    ApiCall call;
    if (!call.error) {
        *stream = add_stream(flags != cudaStreamNonBlocking);
        (*stream)->level = priority;
    }
    return call.error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ApiCall call;
    *least = 0;
    *greatest = -5;
    return call.error;
}

bool stream_is_here(cudaStream_t stream)
{
    return !stream || stream->device == device_current();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ApiCall call;
    cudaError_t error = capture_forbids_stream(stream);
    if (error) {
        return call.end(error);
    }
    stream_finish(&call, stream);
    return call.end(device_error());
}

cudaError_t stream_ask(ApiCall *call, const std::function<bool()> &is_done)
{
    if (!is_done()) {
        stream_progress(call, false);
    }
    return device_error() ? device_error() : is_done() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ApiCall call;
    const CUstream_st *which = stream ? stream : &legacy;
    cudaError_t error = capture_forbids_stream(stream);
    return error ? call.end(error) : stream_ask(&call, [=] { return which->queue.empty(); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ApiCall call;
    cudaError_t error = stream->capture ? capture_forbids_stream(stream) : cudaSuccess;
    if (error) {
        return call.end(error);
    }
    stream_finish(&call, stream);
    stream_remove(stream);
    return call.end(device_error());
}

cudaError_t cudaDeviceSynchronize(void)
{
    ApiCall call;
    cudaError_t error = capture_forbids(CAPTURE_USE_DEVICE);
    if (error) {
        return call.end(error);
    }
    call.drain();
    return call.end(device_error());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    ApiCall call;
    return stream_push(&call, stream, Work([=] { function(data); }, WORK_UNLOCKED));
}
