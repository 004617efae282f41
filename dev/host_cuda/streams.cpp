/* Streams: queues of work that runs only when somebody waits. Which stream goes on is random, unless events or
 * the NULL stream order them: each has a priority that now and then is drawn anew, so that one may run far
 * ahead of another. */
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <stdlib.h>

#include "runtime.h"

enum { QUEUED_MAX = 1024 };

/* Of an event: what a cudaEventRecord waits to happen. */
struct Record {
    bool is_done;
    std::chrono::steady_clock::time_point time;
};

struct Work {
    std::function<void()> run = {};
    std::shared_ptr<Record> waits_for = {}, records = {};
    uint64_t number = 0; /* in the order of calls */
    bool is_unlocked = false, fails = false;
};

struct CUstream_st {
    std::deque<Work> queue; /* the first may be running */
    bool is_blocking, is_busy;
    uint64_t priority;
};

struct CUevent_st {
    std::shared_ptr<Record> record;
    bool has_time;
};

std::mutex api_mutex;
static std::condition_variable host_function_done;
static CUstream_st legacy = {{}, true, false, 0};
static std::vector<CUstream_st *> streams = {&legacy};
static std::map<const void *, int> shared_bytes_allowed;
static cudaError_t fault, last_error;
static uint64_t works_count, queued_count, launches_count, random_state;

/* ---- calls and errors --------------------------------------------------------------------------------- */

static cudaError_t device_error(void)
{
    const char *driver = getenv("HOST_CUDA_DRIVER");
    if (driver && strcmp(driver, "old") == 0) {
        return cudaErrorInsufficientDriver;
    }
    return setting("HOST_CUDA_DEVICES", 1) <= 0 ? cudaErrorNoDevice : fault;
}

ApiCall::ApiCall() : lock(api_mutex), error(device_error())
{
    if (error) {
        last_error = error;
    }
    if (works_count == 0) {
        random_state = (uint64_t)setting("HOST_CUDA_SEED", 1);
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
        {cudaErrorNotReady, "device not ready"},
        {cudaErrorLaunchFailure, "unspecified launch failure"},
    };
    auto found = texts.find(error);
    return found == texts.end() ? "unrecognized error code" : found->second;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = device_error() == cudaErrorInsufficientDriver ? 11040 : 13000;
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
    if (work.waits_for && !work.waits_for->is_done) {
        return false;
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
}

static void run_first(std::unique_lock<std::mutex> *lock, CUstream_st *stream)
{
    Work work = stream->queue.front();
    if (work.fails) {
        fail_all();
        return;
    }
    stream->is_busy = true;
    if (work.is_unlocked) {
        lock->unlock();
        work.run();
        lock->lock();
        host_function_done.notify_all();
    } else if (work.run) {
        work.run();
    }
    stream->is_busy = false;
    if (!stream->queue.empty()) { /* a fault may have cleared it meanwhile */
        stream->queue.pop_front();
        queued_count--;
    }
    if (work.records) {
        work.records->is_done = true;
        work.records->time = std::chrono::steady_clock::now();
    }
}

/* One piece of work of some stream; false if there is none. */
static bool run_one(std::unique_lock<std::mutex> *lock)
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
        run_first(lock, chosen);
    } else if (is_any_busy) {
        host_function_done.wait(*lock);
    }
    return chosen || is_any_busy;
}

static void run_until_idle(std::unique_lock<std::mutex> *lock, const CUstream_st *stream)
{
    while (!stream->queue.empty() && run_one(lock)) {
    }
}

void ApiCall::drain(void)
{
    while (queued_count > 0 && run_one(&lock)) {
    }
    error = device_error();
}

static cudaError_t enqueue(ApiCall *call, cudaStream_t stream, Work work)
{
    if (call->error) {
        return call->error;
    }
    work.number = ++works_count;
    queued_count++;
    (stream ? stream : &legacy)->queue.push_back(std::move(work));
    while (queued_count > QUEUED_MAX && run_one(&call->lock)) {
    }
    return cudaSuccess;
}

cudaError_t stream_enqueue(cudaStream_t stream, std::function<void()> run)
{
    ApiCall call;
    return enqueue(&call, stream, Work{std::move(run)});
}

/* ---- streams ------------------------------------------------------------------------------------------ */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int)
{
    ApiCall call;
    if (!call.error) {
        *stream = new CUstream_st{{}, flags != cudaStreamNonBlocking, false, random_next(&random_state)};
        streams.push_back(*stream);
    }
    return call.error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ApiCall call;
    run_until_idle(&call.lock, stream ? stream : &legacy);
    return call.end(device_error());
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ApiCall call;
    run_until_idle(&call.lock, stream);
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i] == stream) {
            streams.erase(streams.begin() + (long)i);
            delete stream;
            break;
        }
    }
    return call.end(device_error());
}

cudaError_t cudaDeviceSynchronize(void)
{
    ApiCall call;
    call.drain();
    return call.end(device_error());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    ApiCall call;
    return enqueue(&call, stream, Work{[=] { function(data); }, NULL, NULL, 0, true});
}

/* ---- events ------------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    ApiCall call;
    *event = call.error ? NULL : new CUevent_st{NULL, !(flags & cudaEventDisableTiming)};
    return call.error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ApiCall call;
    event->record = std::make_shared<Record>();
    return enqueue(&call, stream, Work{NULL, NULL, event->record});
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    ApiCall call;
    return enqueue(&call, stream, Work{NULL, event->record});
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ApiCall call;
    std::shared_ptr<Record> record = event->record;
    while (record && !record->is_done && run_one(&call.lock)) {
    }
    return call.end(device_error());
}

/* Time passes while a program asks, so that asking in a loop ends. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ApiCall call;
    std::shared_ptr<Record> record = event->record;
    if (record && !record->is_done) {
        run_one(&call.lock);
    }
    return device_error() ? device_error() : !record || record->is_done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ApiCall call;
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
    delete event;
    return call.error;
}

/* ---- copies ------------------------------------------------------------------------------------------- */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ApiCall call;
    if (call.error || bytes == 0) {
        return call.error;
    }
    Memory to_kind = memory_find(to, bytes)->kind, from_kind = memory_find(from, bytes)->kind;
    bool needs_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool needs_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if ((needs_to && to_kind == MEMORY_NONE) || (needs_from && from_kind == MEMORY_NONE)) {
        return call.end(cudaErrorInvalidValue);
    }
    if (from_kind == MEMORY_NONE) { /* pageable: read before the call returns */
        const unsigned char *begin = (const unsigned char *)from;
        auto staged = std::make_shared<std::vector<unsigned char>>(begin, begin + bytes);
        enqueue(&call, stream, Work{[=] { memcpy(to, staged->data(), bytes); }});
    } else {
        enqueue(&call, stream, Work{[=] { memmove(to, from, bytes); }});
    }
    if (to_kind == MEMORY_NONE) { /* pageable: written when the call returns */
        run_until_idle(&call.lock, stream ? stream : &legacy);
    }
    return call.end(device_error());
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return error ? error : cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    ApiCall call;
    if (bytes > 0 && !call.error && memory_find(memory, bytes)->kind == MEMORY_NONE) {
        return call.end(cudaErrorInvalidValue);
    }
    return enqueue(&call, stream, Work{[=] { memset(memory, value, bytes); }});
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    return cudaMemsetAsync(memory, value, bytes, NULL);
}

/* ---- kernels ------------------------------------------------------------------------------------------ */

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    ApiCall call;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > HOST_CUDA_SHARED_BYTES_MAX) {
            return call.end(cudaErrorInvalidValue);
        }
        shared_bytes_allowed[kernel] = value;
    }
    return call.error;
}

static cudaError_t launch_error(const cudaLaunchConfig_t *config, const void *kernel)
{
    dim3 grid = config->gridDim, block = config->blockDim;
    auto allowed = shared_bytes_allowed.find(kernel);
    if (device_capability() < 80) {
        return cudaErrorNoKernelImageForDevice;
    }
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535 ||
        !block.x || !block.y || !block.z || block.z > 64 || config->numAttrs ||
        (uint64_t)block.x * block.y * block.z > HOST_CUDA_THREADS_MAX) {
        return cudaErrorInvalidConfiguration;
    }
    int bytes_max = allowed == shared_bytes_allowed.end() ? 48 * 1024 : std::max(48 * 1024, allowed->second);
    return config->dynamicSmemBytes > (size_t)bytes_max ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t host_cuda_launch(const cudaLaunchConfig_t *config, const void *kernel, HostCall host_call)
{
    ApiCall call;
    std::shared_ptr<void> arguments(host_call.arguments, host_call.destroy);
    cudaError_t error = call.error ? call.error : launch_error(config, kernel);
    if (error) {
        return call.end(error);
    }
    uint64_t seed = (uint64_t)setting("HOST_CUDA_SEED", 1) + ++launches_count * 0x632BE59BD9B4E019u;
    Launch launch = {kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, host_call, seed};
    bool fails = launches_count == (uint64_t)setting("HOST_CUDA_FAIL_AT", -1);
    return enqueue(&call, config->stream,
                   Work{[launch, arguments] { launch_run(launch); }, NULL, NULL, 0, false, fails});
}
