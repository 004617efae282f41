/* Streams run apart unless something orders them, threads in an order that the seed chooses, and a device can
 * be missing, old, small or broken. */
#include <thread>

#include "test.h"

enum { SEEDS = 16 };

/* ---- order -------------------------------------------------------------------------------------------- */

__global__ void set_value(int *out, int value)
{
    *out = value;
}

__global__ void add_value(int *out, const int *in, int value)
{
    *out += *in + value;
}

static void set_seed(int seed)
{
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    setenv("HOST_CUDA_SEED", text, 1);
}

static cudaStream_t stream_with(unsigned int flags)
{
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

/* One stream writes, the other reads and writes, the first reads that: with or without the events between. */
static int result_of_chain(bool has_first_event, bool has_second_event)
{
    cudaStream_t streams[2] = {stream_with(cudaStreamNonBlocking), stream_with(cudaStreamNonBlocking)};
    int *cells = on_device<int>(NULL, 4), result;
    cudaEvent_t first, second;
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaEventCreateWithFlags(&first, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&second, cudaEventDisableTiming));
    for (int i = 0; i < 5; i++) {
        launch(set_value, 1, 1, 0, streams[0], cells, i + 1);
    }
    CUDA_CHECK(cudaEventRecord(first, streams[0]));
    if (has_first_event) {
        CUDA_CHECK(cudaStreamWaitEvent(streams[1], first, 0));
    }
    launch(add_value, 1, 1, 0, streams[1], cells + 1, (const int *)cells, 100);
    CUDA_CHECK(cudaEventRecord(second, streams[1]));
    if (has_second_event) {
        CUDA_CHECK(cudaStreamWaitEvent(streams[0], second, 0));
    }
    launch(add_value, 1, 1, 0, streams[0], cells + 2, (const int *)cells + 1, 1000);
    CUDA_CHECK(cudaMemcpyAsync(&result, cells + 2, sizeof result, cudaMemcpyDeviceToHost, streams[0]));
    CUDA_CHECK(cudaStreamSynchronize(streams[0]));
    CUDA_CHECK(cudaStreamSynchronize(streams[1]));
    CUDA_CHECK(cudaEventDestroy(first));
    CUDA_CHECK(cudaEventDestroy(second));
    CUDA_CHECK(cudaStreamDestroy(streams[0]));
    CUDA_CHECK(cudaStreamDestroy(streams[1]));
    return result;
}

static int wrong_results(bool has_first_event, bool has_second_event)
{
    int wrong = 0;
    for (int i = 0; i < SEEDS; i++) {
        wrong += result_of_chain(has_first_event, has_second_event) != 1105;
    }
    return wrong;
}

static void test_events(void)
{
    EXPECT(wrong_results(true, true) == 0, "%d", wrong_results(true, true));
    EXPECT(wrong_results(false, true) > 0, "a missing event never shows");
    EXPECT(wrong_results(true, false) > 0, "a missing event never shows");
}

/* Blocking streams wait for the NULL stream and it for them; others do not. */
static int wrong_with_null_stream(unsigned int flags)
{
    int wrong = 0, result;
    cudaStream_t streams[2] = {stream_with(flags), stream_with(flags)};
    int *cells = on_device<int>(NULL, 3);
    for (int i = 0; i < SEEDS; i++) {
        CUDA_CHECK(cudaMemsetAsync(cells, 0, 3 * sizeof *cells, 0));
        CUDA_CHECK(cudaDeviceSynchronize());
        launch(set_value, 1, 1, 0, streams[0], cells, 7);
        launch(add_value, 1, 1, 0, 0, cells + 1, (const int *)cells, 10);
        launch(add_value, 1, 1, 0, streams[1], cells + 2, (const int *)cells + 1, 100);
        CUDA_CHECK(cudaDeviceSynchronize());
        from_device(&result, cells + 2, 1);
        wrong += result != 117;
    }
    return wrong;
}

static void test_null_stream(void)
{
    EXPECT(wrong_with_null_stream(cudaStreamDefault) == 0, "blocking streams");
    EXPECT(wrong_with_null_stream(cudaStreamNonBlocking) > 0, "streams that do not block were ordered");
}

static void test_lateness(void)
{
    cudaStream_t stream = stream_with(cudaStreamNonBlocking);
    int *cell = on_device<int>(NULL, 1), *pinned, pageable = 5;
    CUDA_CHECK(cudaHostAlloc(&pinned, 2 * sizeof(int), cudaHostAllocDefault));
    pinned[0] = 1;
    CUDA_CHECK(cudaMemcpyAsync(cell, &pageable, sizeof(int), cudaMemcpyHostToDevice, stream));
    CUDA_CHECK(cudaMemcpyAsync(pinned + 1, cell, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaMemcpyAsync(cell, pinned, sizeof(int), cudaMemcpyHostToDevice, stream));
    pageable = 6;
    pinned[0] = 2;
    EXPECT(pinned[1] == -1, "a copy to pinned memory was not late: %d", pinned[1]);
    CUDA_CHECK(cudaMemcpyAsync(&pageable, cell, sizeof(int), cudaMemcpyDeviceToHost, stream));
    EXPECT(pinned[1] == 5 && pageable == 2, "%d, %d", pinned[1], pageable);
}

static void count_call(void *count)
{
    ++*(int *)count;
}

static void test_host_functions(void)
{
    cudaStream_t stream = stream_with(cudaStreamNonBlocking);
    cudaEvent_t start, end;
    int count = 0, queries = 0;
    float ms = -1.0f;
    CUDA_CHECK(cudaEventCreateWithFlags(&start, cudaEventDefault));
    CUDA_CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    CUDA_CHECK(cudaEventRecord(start, stream));
    for (int i = 0; i < 5000; i++) { /* more than the queues hold */
        CUDA_CHECK(cudaLaunchHostFunc(stream, count_call, &count));
    }
    CUDA_CHECK(cudaEventRecord(end, stream));
    EXPECT(cudaEventElapsedTime(&ms, start, end) == cudaErrorNotReady, "an event was early");
    while (cudaEventQuery(end) == cudaErrorNotReady) {
        queries++;
    }
    EXPECT(count == 5000 && queries > 0, "%d calls, %d queries", count, queries);
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    EXPECT(ms >= 0.0f && ms < 60000.0f, "%g ms", ms);
}

/* The wait that HOST_CUDA_DROP_WAIT names is missing; no other is. */
static void test_dropped_wait(void)
{
    setenv("HOST_CUDA_DROP_WAIT", "3", 1);
    EXPECT(result_of_chain(true, true) == 1105, "waits 1 and 2 were not made");
    setenv("HOST_CUDA_DROP_WAIT", "0", 1);
    EXPECT(wrong_results(true, true) == 0, "waits are missing");
    int wrong = 0, waits = 2 + 2 * SEEDS;
    for (int i = 0; i < SEEDS; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", waits + 1);
        setenv("HOST_CUDA_DROP_WAIT", text, 1);
        wrong += result_of_chain(true, true) != 1105;
        waits += 2;
    }
    EXPECT(wrong > 0, "a dropped wait never shows");
}

static void test_stream_query(void)
{
    cudaStream_t stream = stream_with(cudaStreamNonBlocking);
    int *cell = on_device<int>(NULL, 1), queries = 0, least, greatest;
    CUDA_CHECK(cudaStreamQuery(stream));
    for (int i = 0; i < 5; i++) {
        launch(set_value, 1, 1, 0, stream, cell, i);
    }
    while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        queries++;
    }
    EXPECT(queries >= 4, "%d queries", queries);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EXPECT(greatest < least, "%d, %d", least, greatest);
}

/* ---- threads ------------------------------------------------------------------------------------------ */

__global__ void note_order(int *order, unsigned long long *next)
{
    order[atomicAdd(next, 1ull)] = (int)threadIdx.x;
}

static void find_order(int *order, int seed)
{
    set_seed(seed);
    int *d_order = on_device<int>(NULL, 64);
    launch(note_order, 1, 64, 0, 0, d_order, on_device<unsigned long long>(NULL, 1));
    from_device(order, d_order, 64);
}

static void test_order_of_threads(void)
{
    int orders[2][64], sum = 0;
    find_order(orders[0], 1);
    find_order(orders[1], 2);
    EXPECT(memcmp(orders[0], orders[1], sizeof orders[0]) != 0, "two seeds, one order");
    for (int i = 0; i < 64; i++) {
        sum += orders[0][i];
    }
    EXPECT(sum == 63 * 32, "%d", sum);
}

__global__ void mirror(int *out, int has_barrier)
{
    int *shared = (int *)dynamic_shared();
    shared[threadIdx.x] = (int)threadIdx.x;
    if (has_barrier) {
        __syncthreads();
    }
    out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

/* Also where accesses are not checked, a missing barrier gives wrong numbers. */
static void test_missing_barrier_shows(void)
{
    int *out = on_device<int>(NULL, 64), found[64];
    for (int has_barrier = 0; has_barrier < 2; has_barrier++) {
        int wrong = 0;
        launch(mirror, 1, 64, 64 * sizeof(int), 0, out, has_barrier);
        from_device(found, out, 64);
        for (int i = 0; i < 64; i++) {
            wrong += found[i] != 63 - i;
        }
        EXPECT((wrong == 0) == has_barrier, "%d wrong with %d barriers", wrong, has_barrier);
    }
}

/* ---- bad situations ----------------------------------------------------------------------------------- */

static void expect_error(cudaError_t found, cudaError_t expected)
{
    EXPECT(found == expected, "%s, expected %s", cudaGetErrorString(found), cudaGetErrorString(expected));
}

static void test_no_device(void)
{
    int count = 5;
    void *memory;
    setenv("HOST_CUDA_DEVICES", "0", 1);
    expect_error(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    expect_error(cudaMalloc(&memory, 16), cudaErrorNoDevice);
    EXPECT(count == 0, "%d devices", count);
}

static void test_old_driver(void)
{
    int count, driver, runtime;
    setenv("HOST_CUDA_DRIVER", "old", 1);
    expect_error(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    expect_error(cudaDriverGetVersion(&driver), cudaSuccess);
    expect_error(cudaRuntimeGetVersion(&runtime), cudaSuccess);
    EXPECT(driver < runtime, "%d, %d", driver, runtime);
}

static cudaError_t try_launch(dim3 grid, dim3 block, size_t shared_bytes)
{
    int *cell = on_device<int>(NULL, 1);
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    cudaError_t error = cudaLaunchKernelEx(&config, set_value, cell, 1);
    expect_error(cudaGetLastError(), error);
    expect_error(cudaGetLastError(), cudaSuccess);
    return error;
}

static void test_old_device(void)
{
    cudaDeviceProp properties;
    setenv("HOST_CUDA_CAPABILITY", "75", 1);
    expect_error(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    EXPECT(properties.major == 7 && properties.minor == 5, "%d.%d", properties.major, properties.minor);
    expect_error(try_launch(1, 1, 0), cudaErrorNoKernelImageForDevice);
    expect_error(cudaSetDevice(1), cudaErrorInvalidDevice);
}

/* Each thread begins on device 0, and kernels and events go to streams of the device that it has set. */
static void test_several_devices(void)
{
    cudaEvent_t event;
    cudaLaunchConfig_t config = {};
    int count, device;
    setenv("HOST_CUDA_DEVICES", "4", 1);
    CUDA_CHECK(cudaGetDeviceCount(&count));
    EXPECT(count == 4, "%d devices", count);
    expect_error(cudaSetDevice(4), cudaErrorInvalidDevice);
    CUDA_CHECK(cudaSetDevice(3));
    int *cell = on_device<int>(NULL, 1), value = 0;
    config.gridDim = config.blockDim = 1;
    config.stream = stream_with(cudaStreamNonBlocking);
    CUDA_CHECK(cudaEventCreate(&event));
    CUDA_CHECK(cudaStreamSynchronize(0));
    CUDA_CHECK(cudaLaunchKernelEx(&config, set_value, cell, 7));
    CUDA_CHECK(cudaEventRecord(event, config.stream));
    CUDA_CHECK(cudaEventSynchronize(event));
    std::thread([&] {
        CUDA_CHECK(cudaGetDevice(&device));
        EXPECT(device == 0, "%d", device);
        CUDA_CHECK(cudaMemcpyAsync(&value, cell, sizeof value, cudaMemcpyDeviceToHost, config.stream));
        expect_error(cudaLaunchKernelEx(&config, set_value, cell, 8), cudaErrorInvalidResourceHandle);
        CUDA_CHECK(cudaEventCreate(&event));
        expect_error(cudaEventRecord(event, config.stream), cudaErrorInvalidResourceHandle);
    }).join();
    EXPECT(value == 7, "%d", value);
}

static void test_small_memory(void)
{
    size_t free_bytes, total_bytes;
    void *first, *second;
    setenv("HOST_CUDA_MEMORY_MB", "10", 1);
    CUDA_CHECK(cudaMalloc(&first, 6 << 20));
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(free_bytes == 4 << 20 && total_bytes == 10 << 20, "%zu of %zu", free_bytes, total_bytes);
    expect_error(cudaMalloc(&second, 5 << 20), cudaErrorMemoryAllocation);
    CUDA_CHECK(cudaFree(first));
    expect_error(cudaFree(first), cudaErrorInvalidValue);
    CUDA_CHECK(cudaMalloc(&second, 10 << 20));
}

static void test_bad_launches(void)
{
    int *cell = on_device<int>(NULL, 1), value = 0;
    expect_error(try_launch(1, 1, 48 * 1024), cudaSuccess);
    expect_error(try_launch(1, 1025, 0), cudaErrorInvalidConfiguration);
    expect_error(try_launch(dim3(1, 65536), 1, 0), cudaErrorInvalidConfiguration);
    expect_error(try_launch(0, 1, 0), cudaErrorInvalidConfiguration);
    expect_error(try_launch(1, 1, 48 * 1024 + 1), cudaErrorInvalidValue);
    allow_shared_bytes(set_value, 100 * 1024);
    expect_error(try_launch(1, 1, 100 * 1024), cudaSuccess);
    expect_error(cudaMemcpy(cell + 1, &value, sizeof value, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
}

/* As on a GPU, the fault shows later, and stays. */
static void test_fault(void)
{
    int *cell = on_device<int>(NULL, 1), value = 0;
    setenv("HOST_CUDA_FAIL_AT", "3", 1);
    for (int i = 1; i <= 2; i++) {
        launch(set_value, 1, 1, 0, 0, cell, i);
    }
    from_device(&value, cell, 1);
    EXPECT(value == 2, "%d", value);
    launch(set_value, 1, 1, 0, 0, cell, 3);
    expect_error(cudaStreamSynchronize(0), cudaErrorLaunchFailure);
    expect_error(cudaMemcpy(&value, cell, sizeof value, cudaMemcpyDeviceToHost), cudaErrorLaunchFailure);
    expect_error(cudaGetLastError(), cudaErrorLaunchFailure);
    expect_error(cudaGetLastError(), cudaErrorLaunchFailure);
}

static const Test tests[] = {
    {"events order streams, and a missing one shows", test_events, NULL},
    {"the NULL stream waits for blocking streams, and they for it", test_null_stream, NULL},
    {"what is asynchronous comes late", test_lateness, NULL},
    {"host functions, and time that passes", test_host_functions, NULL},
    {"HOST_CUDA_DROP_WAIT drops one wait", test_dropped_wait, NULL},
    {"streams are asked", test_stream_query, NULL},
    {"the seed chooses the order of threads", test_order_of_threads, NULL},
    {"a missing barrier shows in unchecked numbers", test_missing_barrier_shows, NULL},
    {"no device", test_no_device, NULL},
    {"an old driver", test_old_driver, NULL},
    {"an old device", test_old_device, NULL},
    {"several devices", test_several_devices, NULL},
    {"little memory", test_small_memory, NULL},
    {"launches that no device takes", test_bad_launches, NULL},
    {"a fault in the middle", test_fault, NULL},
};

int main(void)
{
    return run_tests(tests, sizeof tests / sizeof *tests);
}
