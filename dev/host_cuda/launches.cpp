/* What streams are given to do: copies and kernels. */
#include <chrono>
#include <map>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <thread>

#include "streams.h"

static std::map<const void *, int> shared_bytes_allowed;
static uint64_t launches_count;

/* ---- copies ------------------------------------------------------------------------------------------- */

/* When a graph is launched, what it was captured with may be gone. */
static void check_live(const char *function, const void *memory, size_t bytes, Memory kind)
{
    if (kind != MEMORY_NONE && bytes > 0 && memory_find(memory, bytes)->kind == MEMORY_NONE) {
        check_failed(NULL, "%s in a graph: the %zu bytes at %p were freed", function, bytes, memory);
    }
}

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
    bool is_captured = stream && stream->capture;
    Work work([=] { memmove(to, from, bytes); });
    if (is_captured) {
        work.bind = [=](Work *) {
            check_live("cudaMemcpyAsync", to, bytes, to_kind);
            check_live("cudaMemcpyAsync", from, bytes, from_kind);
        };
    } else if (from_kind == MEMORY_NONE) { /* pageable: read before the call returns */
        const unsigned char *begin = (const unsigned char *)from;
        auto staged = std::make_shared<std::vector<unsigned char>>(begin, begin + bytes);
        work.run = [=] { memcpy(to, staged->data(), bytes); };
    }
    cudaError_t error = stream_push(&call, stream, work);
    if (!error && to_kind == MEMORY_NONE && !is_captured) { /* pageable: written when the call returns */
        stream_finish(&call, stream);
    }
    return call.end(error ? error : device_error());
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
    Work work([=] { memset(memory, value, bytes); });
    work.bind = [=](Work *) { check_live("cudaMemsetAsync", memory, bytes, MEMORY_DEVICE); };
    return stream_push(&call, stream, work);
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
    if (!stream_is_here(config->stream)) {
        return cudaErrorInvalidResourceHandle;
    }
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535 ||
        !block.x || !block.y || !block.z || block.z > 64 || config->numAttrs ||
        (uint64_t)block.x * block.y * block.z > HOST_CUDA_THREADS_MAX) {
        return cudaErrorInvalidConfiguration;
    }
    int bytes_max = allowed == shared_bytes_allowed.end() ? 48 * 1024 : std::max(48 * 1024, allowed->second);
    return config->dynamicSmemBytes > (size_t)bytes_max ? cudaErrorInvalidValue : cudaSuccess;
}

/* Which launch it is, and so its order of threads, is known when it is queued. */
static void bind_launch(Work *work, KernelLaunch launch, const std::shared_ptr<void> &arguments)
{
    launches_count++;
    launch.seed = (uint64_t)setting("HOST_CUDA_SEED", 1) + launches_count * 0x632BE59BD9B4E019u;
    work->fails = launches_count == (uint64_t)setting("HOST_CUDA_FAIL_AT", -1);
    bool is_dry = setting("HOST_CUDA_DRY", 0) != 0;
    work->run = [launch, arguments, is_dry] {
        if (!is_dry) {
            launch_run(launch);
            std::this_thread::sleep_for(std::chrono::milliseconds(setting("HOST_CUDA_KERNEL_MS", 0)));
        }
    };
}

/* For whoever wants to know what is launched: one line for each kernel, block and shared memory. */
static void record_launch(const cudaLaunchConfig_t *config, const void *kernel)
{
    static std::set<std::vector<uint64_t>> known;
    const char *path = getenv("HOST_CUDA_LAUNCHES");
    dim3 grid = config->gridDim, block = config->blockDim;
    uint64_t threads = (uint64_t)block.x * block.y * block.z, offset = code_offset(kernel);
    if (!path || !known.insert({offset, threads, config->dynamicSmemBytes}).second) {
        return;
    }
    FILE *file = fopen(path, "a");
    if (file) {
        fprintf(file, "%llx %llu %zu %u %u %u\n", (unsigned long long)offset, (unsigned long long)threads,
                config->dynamicSmemBytes, grid.x, grid.y, grid.z);
        fclose(file);
    }
}

cudaError_t host_cuda_launch(const cudaLaunchConfig_t *config, const void *kernel, HostCall host_call)
{
    ApiCall call;
    std::shared_ptr<void> arguments(host_call.arguments, host_call.destroy);
    cudaError_t error = call.error ? call.error : launch_error(config, kernel);
    if (error) {
        return call.end(error);
    }
    record_launch(config, kernel);
    KernelLaunch launch = {kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, host_call, 0};
    Work work;
    work.bind = [launch, arguments](Work *self) { bind_launch(self, launch, arguments); };
    return call.end(stream_push(&call, config->stream, work));
}
