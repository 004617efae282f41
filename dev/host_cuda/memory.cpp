/* The device and its memory: a table of what is allocated, in the host's own memory. */
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "streams.h"

enum { GAP_BYTES = 1 << 20 }; /* around each allocation, so that what runs over its end meets nothing live */

static size_t device_bytes;
static thread_local int device_now;

long long setting(const char *name, long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

int device_capability(void)
{
    return (int)setting("HOST_CUDA_CAPABILITY", 90);
}

int device_current(void)
{
    return device_now;
}

static size_t device_bytes_max(void)
{
    return (size_t)setting("HOST_CUDA_MEMORY_MB", 32768) << 20;
}

/* ---- the device --------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
    ApiCall call;
    *count = call.error ? 0 : (int)setting("HOST_CUDA_DEVICES", 1);
    return call.error;
}

cudaError_t cudaSetDevice(int device)
{
    ApiCall call;
    if (call.error) {
        return call.error;
    }
    if (device < 0 || device >= setting("HOST_CUDA_DEVICES", 1)) {
        return call.end(cudaErrorInvalidDevice);
    }
    device_now = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    ApiCall call;
    *device = device_now;
    return call.error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    ApiCall call;
    if (call.error || device < 0 || device >= setting("HOST_CUDA_DEVICES", 1)) {
        return call.error ? call.error : call.end(cudaErrorInvalidDevice);
    }
    *properties = cudaDeviceProp();
    snprintf(properties->name, sizeof properties->name, "host_cuda (no GPU)");
    properties->totalGlobalMem = device_bytes_max();
    properties->sharedMemPerBlock = 48 * 1024;
    properties->sharedMemPerBlockOptin = HOST_CUDA_SHARED_BYTES_MAX;
    properties->sharedMemPerMultiprocessor = HOST_CUDA_SHARED_BYTES_MAX + 1024;
    properties->regsPerBlock = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = HOST_CUDA_THREADS_MAX;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->multiProcessorCount = 4;
    properties->major = device_capability() / 10;
    properties->minor = device_capability() % 10;
    properties->l2CacheSize = 32 << 20;
    properties->memoryBusWidth = 64;
    properties->uuid.bytes[0] = (char)device;
    properties->pciBusID = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error) {
        return error;
    }
    const struct {
        cudaDeviceAttr attribute;
        int value;
    } values[] = {
        {cudaDevAttrMaxThreadsPerBlock, properties.maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, (int)properties.sharedMemPerBlock},
        {cudaDevAttrMultiProcessorCount, properties.multiProcessorCount},
        {cudaDevAttrL2CacheSize, properties.l2CacheSize},
        {cudaDevAttrComputeCapabilityMajor, properties.major},
        {cudaDevAttrComputeCapabilityMinor, properties.minor},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, (int)properties.sharedMemPerMultiprocessor},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)properties.sharedMemPerBlockOptin},
    };
    for (const auto &entry : values) {
        if (entry.attribute == attribute) {
            *value = entry.value;
            return cudaSuccess;
        }
    }
    return cudaErrorInvalidValue;
}

/* ---- allocations -------------------------------------------------------------------------------------- */

/* By address. Never freed: host code is checked until the process ends. */
static std::vector<Allocation> &table(void)
{
    static std::vector<Allocation> *allocations = new std::vector<Allocation>();
    return *allocations;
}

static bool begins_later(uintptr_t address, const Allocation &allocation)
{
    return address < allocation.begin;
}

const Allocation *memory_find(const void *memory, size_t bytes)
{
    static const Allocation none = {0, 0, MEMORY_NONE};
    uintptr_t address = (uintptr_t)memory;
    std::vector<Allocation> &allocations = table();
    auto next = std::upper_bound(allocations.begin(), allocations.end(), address, begins_later);
    if (next == allocations.begin() || address + bytes > (next - 1)->end) {
        return &none;
    }
    return &*(next - 1);
}

bool memory_is_device(const void *memory)
{
    std::unique_lock<std::mutex> held(api_mutex, std::try_to_lock);
    return held && memory_find(memory, 1)->kind == MEMORY_DEVICE;
}

static cudaError_t allocate(ApiCall *call, void **memory, size_t bytes, Memory kind)
{
    *memory = NULL;
    cudaError_t error = call->error ? call->error : capture_forbids(CAPTURE_USE_UNSAFE);
    if (error || bytes == 0) {
        return call->end(error);
    }
    if (kind == MEMORY_DEVICE && bytes > device_bytes_max() - device_bytes) {
        return call->end(cudaErrorMemoryAllocation);
    }
    size_t pages_bytes = (bytes + 4095) / 4096 * 4096 + 2 * GAP_BYTES;
    void *pages = mmap(NULL, pages_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *begin = (unsigned char *)pages + GAP_BYTES;
    if (pages == MAP_FAILED || mprotect(begin, pages_bytes - 2 * GAP_BYTES, PROT_READ | PROT_WRITE)) {
        return call->end(cudaErrorMemoryAllocation);
    }
    memset(begin, 0xFF, bytes); /* not a number: nothing good comes of reading what was never written */
    Allocation allocation = {(uintptr_t)begin, (uintptr_t)begin + bytes, kind};
    std::vector<Allocation> &allocations = table();
    allocations.insert(
        std::upper_bound(allocations.begin(), allocations.end(), allocation.begin, begins_later), allocation);
    device_bytes += kind == MEMORY_DEVICE ? bytes : 0;
    *memory = begin;
    return cudaSuccess;
}

static cudaError_t release(ApiCall *call, void *memory, Memory kind)
{
    cudaError_t error = capture_forbids(CAPTURE_USE_UNSAFE);
    if (error) {
        return call->end(error);
    }
    call->drain();
    if (call->error || memory == NULL) {
        return call->error;
    }
    const Allocation *found = memory_find(memory, 1);
    if (found->kind != kind || found->begin != (uintptr_t)memory) {
        return call->end(cudaErrorInvalidValue);
    }
    size_t bytes = found->end - found->begin;
    table().erase(table().begin() + (found - table().data()));
    device_bytes -= kind == MEMORY_DEVICE ? bytes : 0;
    /* The address is never used again, so that a use after this is found out. */
    mmap(memory, (bytes + 4095) / 4096 * 4096, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    ApiCall call;
    return allocate(&call, memory, bytes, MEMORY_DEVICE);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned int)
{
    ApiCall call;
    return allocate(&call, memory, bytes, MEMORY_PINNED);
}

cudaError_t cudaFree(void *memory)
{
    ApiCall call;
    return release(&call, memory, MEMORY_DEVICE);
}

cudaError_t cudaFreeHost(void *memory)
{
    ApiCall call;
    return release(&call, memory, MEMORY_PINNED);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ApiCall call;
    *total_bytes = device_bytes_max();
    *free_bytes = *total_bytes - device_bytes;
    return call.error;
}
