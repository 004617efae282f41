/* Graphs run what was captured, as often as they are launched, in any order that the events captured with it
 * allow; what a capture forbids is an error. */
#include <thread>

#include "test.h"

enum { SEEDS = 20, WRONG = 3 };

__global__ void set_value(int *out, int value)
{
    *out = value;
}

__global__ void add_value(int *out, const int *in, int value)
{
    *out = *in + value;
}

static void expect_error(cudaError_t found, cudaError_t expected)
{
    EXPECT(found == expected, "%s, expected %s", cudaGetErrorString(found), cudaGetErrorString(expected));
}

/* Runs test() in a process for each seed; how many of them were WRONG. */
static int wrong_seeds(void (*test)(void))
{
    int wrong = 0;
    for (int seed = 1; seed <= SEEDS; seed++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            char text[16];
            snprintf(text, sizeof text, "%d", seed);
            setenv("HOST_CUDA_SEED", text, 1);
            test();
            _exit(0);
        }
        waitpid(child, &status, 0);
        EXPECT(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == WRONG), "seed %d: %d",
               seed, status);
        wrong += WEXITSTATUS(status) == WRONG;
    }
    return wrong;
}

/* ---- replays ------------------------------------------------------------------------------------------ */

static void test_replays(void)
{
    cudaStream_t stream = new_stream();
    int *cells = on_device<int>(NULL, 3), *in = pinned_ints(1), *out = pinned_ints(1), pageable = 0,
        value = 5;
    CUDA_CHECK(cudaDeviceSynchronize());
    begin_capture(stream);
    CUDA_CHECK(cudaMemcpyAsync(cells, in, sizeof(int), cudaMemcpyHostToDevice, stream));
    CUDA_CHECK(cudaMemcpyAsync(cells + 2, &pageable, sizeof(int), cudaMemcpyHostToDevice, stream));
    launch(add_value, 1, 1, 0, stream, cells + 1, (const int *)cells, value);
    launch(add_value, 1, 1, 0, stream, cells + 1, (const int *)cells + 1, 100);
    CUDA_CHECK(cudaMemcpyAsync(out, cells + 1, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaMemcpyAsync(&pageable, cells + 1, sizeof(int), cudaMemcpyDeviceToHost, stream));
    value = 6;
    cudaGraphExec_t exec = end_capture(stream);
    CUDA_CHECK(cudaStreamSynchronize(stream));
    EXPECT(pageable == 0 && *out == -1, "a capture ran: %d, %d", pageable, *out);
    for (int i = 1; i <= 3; i++) {
        *in = 1000 * i;
        CUDA_CHECK(cudaGraphLaunch(exec, stream));
        EXPECT(*out == (i == 1 ? -1 : 1000 * (i - 1) + 105), "a launch was not late: %d", *out);
        CUDA_CHECK(cudaStreamSynchronize(stream));
        EXPECT(*out == 1000 * i + 105 && pageable == *out, "launch %d: %d, %d", i, *out, pageable);
    }
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    CUDA_CHECK(cudaGraphExecDestroy(exec)); /* what was launched goes on */
    *in = 7000;
    CUDA_CHECK(cudaStreamSynchronize(stream));
    EXPECT(*out == 7105, "%d", *out);
    launch(set_value, 1, 1, 0, stream, cells, 3); /* and the stream runs again what it is given */
    CUDA_CHECK(cudaStreamSynchronize(stream));
    from_device(&value, cells, 1);
    EXPECT(value == 3, "%d", value);
}

/* More than the queues hold, and nothing at all. */
static void test_sizes(void)
{
    cudaStream_t stream = new_stream();
    int *cell = on_device<int>(NULL, 1), value;
    CUDA_CHECK(cudaDeviceSynchronize());
    begin_capture(stream);
    for (int i = 0; i < 3000; i++) {
        launch(add_value, 1, 1, 0, stream, cell, (const int *)cell, 1);
    }
    cudaGraphExec_t big = end_capture(stream);
    begin_capture(stream);
    cudaGraphExec_t empty = end_capture(stream);
    for (int i = 0; i < 2; i++) {
        CUDA_CHECK(cudaGraphLaunch(empty, stream));
        CUDA_CHECK(cudaGraphLaunch(big, stream));
    }
    CUDA_CHECK(cudaStreamSynchronize(stream));
    from_device(&value, cell, 1);
    EXPECT(value == 6000, "%d", value);
}

/* ---- order -------------------------------------------------------------------------------------------- */

/* Two buckets, as a step has them: compute writes each, communication doubles it, compute reads both. The
 * first pair of events forks, so that without the second pair the streams are still captured. */
template <bool has_ready, bool has_done>
static void fork_and_join(void)
{
    cudaStream_t compute = new_stream(), communication = new_stream();
    int *cells = on_device<int>(NULL, 4), found;
    CUDA_CHECK(cudaDeviceSynchronize());
    begin_capture(compute);
    launch(set_value, 1, 1, 0, compute, cells, 1);
    wait_for(communication, compute);
    launch(add_value, 1, 1, 0, communication, cells, (const int *)cells, 10);
    launch(set_value, 1, 1, 0, compute, cells + 1, 2);
    if (has_ready) {
        wait_for(communication, compute);
    }
    launch(add_value, 1, 1, 0, communication, cells + 1, (const int *)cells + 1, 20);
    if (has_done) {
        wait_for(compute, communication);
    }
    launch(add_value, 1, 1, 0, compute, cells + 2, (const int *)cells + 1, 100);
    wait_for(compute, communication);
    cudaGraphExec_t exec = end_capture(compute);
    for (int i = 0; i < 2; i++) {
        CUDA_CHECK(cudaMemsetAsync(cells, 0, 4 * sizeof(int), compute));
        CUDA_CHECK(cudaGraphLaunch(exec, compute));
        CUDA_CHECK(cudaMemcpyAsync(&found, cells + 2, sizeof found, cudaMemcpyDeviceToHost, compute));
        if (found != 122) {
            _exit(WRONG);
        }
    }
}

static void test_fork_and_join(void)
{
    int wrong = wrong_seeds(fork_and_join<true, true>);
    EXPECT(wrong == 0, "%d seeds wrong with all events", wrong);
    EXPECT(wrong_seeds(fork_and_join<false, true>) > 0, "a missing event never shows");
    EXPECT(wrong_seeds(fork_and_join<true, false>) > 0, "a missing event never shows");
}

/* *to = *between + 1, in two streams: right only where a second launch begins after the end of the first. */
static cudaGraphExec_t capture_count(int *cells)
{
    cudaStream_t streams[2] = {new_stream(), new_stream()};
    begin_capture(streams[0]);
    launch(add_value, 1, 1, 0, streams[0], cells + 1, (const int *)cells, 0);
    wait_for(streams[1], streams[0]);
    launch(add_value, 1, 1, 0, streams[1], cells, (const int *)cells + 1, 1);
    wait_for(streams[0], streams[1]);
    cudaGraphExec_t exec = end_capture(streams[0]);
    CUDA_CHECK(cudaStreamDestroy(streams[0]));
    CUDA_CHECK(cudaStreamDestroy(streams[1]));
    return exec;
}

template <bool is_one_graph>
static void count_launches(void)
{
    cudaStream_t streams[2] = {new_stream(), new_stream()};
    int *cells = on_device<int>(NULL, 2), value;
    CUDA_CHECK(cudaDeviceSynchronize());
    cudaGraphExec_t execs[2] = {capture_count(cells), capture_count(cells)};
    for (int i = 0; i < 20; i++) {
        CUDA_CHECK(cudaGraphLaunch(execs[is_one_graph ? 0 : i % 2], streams[i % 2]));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    from_device(&value, cells, 1);
    _exit(value == 20 ? 0 : WRONG);
}

static void test_launches_in_order(void)
{
    int wrong = wrong_seeds(count_launches<true>);
    EXPECT(wrong == 0, "launches of one graph ran at once under %d seeds", wrong);
    EXPECT(wrong_seeds(count_launches<false>) > 0, "two graphs on two streams never run at once");
}

/* All of a graph is after what its stream held, and before what it gets; the NULL stream waits for both. */
template <unsigned int flags>
static void surround(void)
{
    cudaStream_t stream, inner = new_stream();
    int *cells = on_device<int>(NULL, 3), value;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, flags));
    CUDA_CHECK(cudaDeviceSynchronize());
    begin_capture(inner);
    launch(add_value, 1, 1, 0, inner, cells + 1, (const int *)cells, 10);
    cudaGraphExec_t exec = end_capture(inner);
    launch(set_value, 1, 1, 0, stream, cells, 5);
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    launch(add_value, 1, 1, 0, flags == cudaStreamDefault ? 0 : stream, cells + 2, (const int *)cells + 1,
           100);
    CUDA_CHECK(cudaDeviceSynchronize());
    from_device(&value, cells + 2, 1);
    EXPECT(value == 115, "%d", value);
}

static void test_surroundings(void)
{
    EXPECT(wrong_seeds(surround<cudaStreamNonBlocking>) == 0, "the launching stream");
    EXPECT(wrong_seeds(surround<cudaStreamDefault>) == 0, "the NULL stream");
}

/* Events of the host's, recorded in the middle of a graph each time that it runs. */
static void test_external_events(void)
{
    cudaStream_t stream = new_stream();
    cudaEvent_t first = new_event(), second = new_event();
    int *cell = on_device<int>(NULL, 1), *out = pinned_ints(1), queries = 0;
    float ms = -1;
    CUDA_CHECK(cudaDeviceSynchronize());
    expect_error(cudaEventRecordWithFlags(first, stream, cudaEventRecordExternal), cudaErrorInvalidValue);
    begin_capture(stream);
    CUDA_CHECK(cudaEventRecordWithFlags(first, stream, cudaEventRecordExternal));
    launch(add_value, 1, 1, 0, stream, cell, (const int *)cell, 1);
    CUDA_CHECK(cudaMemcpyAsync(out, cell, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaEventRecordWithFlags(second, stream, cudaEventRecordExternal));
    launch(set_value, 1, 1, 0, stream, cell, 70);
    cudaGraphExec_t exec = end_capture(stream);
    CUDA_CHECK(cudaEventQuery(second)); /* never recorded */
    for (int i = 0; i < 2; i++) {
        *out = -1;
        CUDA_CHECK(cudaGraphLaunch(exec, stream));
        expect_error(cudaEventElapsedTime(&ms, first, second), cudaErrorNotReady);
        for (queries = 0; cudaEventQuery(second) == cudaErrorNotReady; queries++) {
        }
        EXPECT(*out == (i ? 71 : 1) && queries > 1, "launch %d: %d after %d queries", i, *out, queries);
        CUDA_CHECK(cudaEventElapsedTime(&ms, first, second));
        EXPECT(ms >= 0 && ms < 60000, "%g ms", ms);
    }
    CUDA_CHECK(cudaStreamSynchronize(stream));
}

/* ---- what a capture forbids --------------------------------------------------------------------------- */

/* The capture of the stream, of which one call failed so, ends with this error. */
static void expect_end(cudaStream_t stream, cudaError_t expected)
{
    cudaGraph_t graph;
    cudaStreamCaptureStatus status;
    CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == (expected == cudaErrorStreamCaptureInvalidated ? cudaStreamCaptureStatusInvalidated
                                                                    : cudaStreamCaptureStatusActive),
           "%d", status);
    expect_error(cudaStreamEndCapture(stream, &graph), expected);
    EXPECT(!graph, "a graph in spite of it");
    CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    EXPECT(status == cudaStreamCaptureStatusNone, "%d", status);
    CUDA_CHECK(cudaStreamSynchronize(stream)); /* it runs again */
}

static void test_forbidden_calls(void)
{
    cudaStream_t stream = new_stream(), other = new_stream();
    cudaEvent_t captured = new_event(), own = new_event();
    int *cell = on_device<int>(NULL, 1);
    void *memory;
    CUDA_CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 9; i++) {
        begin_capture(stream);
        CUDA_CHECK(cudaEventRecord(captured, stream));
        launch(set_value, 1, 1, 0, stream, cell, 1);
        cudaError_t found = i == 0   ? cudaStreamSynchronize(stream)
                            : i == 1 ? cudaStreamQuery(stream)
                            : i == 2 ? cudaDeviceSynchronize()
                            : i == 3 ? cudaMalloc(&memory, 16)
                            : i == 4 ? cudaFree(cell)
                            : i == 5 ? cudaEventQuery(captured)
                            : i == 6 ? cudaEventSynchronize(captured)
                            : i == 7 ? cudaEventQuery(own)
                                     : cudaStreamSynchronize(other);
        expect_error(found, i == 5 || i == 6 ? cudaErrorCapturedEvent : cudaErrorStreamCaptureUnsupported);
        expect_error(cudaMemsetAsync(cell, 0, 4, stream), cudaErrorStreamCaptureInvalidated);
        expect_end(stream, cudaErrorStreamCaptureInvalidated);
        cudaGetLastError();
    }
    expect_error(cudaEventQuery(captured), cudaErrorCapturedEvent);
    expect_error(cudaStreamWaitEvent(other, captured, 0), cudaErrorCapturedEvent);
    CUDA_CHECK(cudaEventRecord(captured, stream));
    CUDA_CHECK(cudaEventSynchronize(captured));
    expect_error(cudaStreamBeginCapture(0, cudaStreamCaptureModeRelaxed), cudaErrorStreamCaptureUnsupported);
}

/* Each mode forbids the same calls to other threads, or to none. */
static void test_modes(void)
{
    cudaStream_t stream = new_stream();
    cudaEvent_t event = new_event();
    cudaGraph_t graph;
    cudaError_t found = cudaSuccess, ended = cudaSuccess;
    CUDA_CHECK(cudaDeviceSynchronize());
    const cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                           cudaStreamCaptureModeRelaxed};
    for (cudaStreamCaptureMode mode : modes) {
        bool is_global = mode == cudaStreamCaptureModeGlobal,
             is_relaxed = mode == cudaStreamCaptureModeRelaxed;
        CUDA_CHECK(cudaStreamBeginCapture(stream, mode));
        expect_error(cudaStreamBeginCapture(stream, mode), cudaErrorIllegalState);
        std::thread([&] {
            found = cudaEventQuery(event);
            ended = is_global ? cudaSuccess : cudaStreamEndCapture(stream, &graph);
        }).join();
        expect_error(found, is_global ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
        if (is_relaxed) {
            CUDA_CHECK(ended);
            continue;
        }
        expect_error(ended, is_global ? cudaSuccess : cudaErrorStreamCaptureWrongThread);
        expect_error(cudaStreamEndCapture(stream, &graph),
                     is_global ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    }
    expect_error(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
}

static void test_bounds_of_a_capture(void)
{
    cudaStream_t stream = new_stream(), other = new_stream(), third = new_stream(), blocking;
    cudaEvent_t event = new_event();
    cudaGraph_t graph;
    int *cell = on_device<int>(NULL, 1);
    CUDA_CHECK(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
    CUDA_CHECK(cudaDeviceSynchronize());

    begin_capture(stream); /* work that is not captured must not come before */
    CUDA_CHECK(cudaEventRecord(event, other));
    expect_error(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    expect_end(stream, cudaErrorStreamCaptureInvalidated);

    begin_capture(stream); /* a fork without a join */
    launch(set_value, 1, 1, 0, stream, cell, 1);
    wait_for(other, stream);
    launch(set_value, 1, 1, 0, other, cell, 2);
    expect_end(stream, cudaErrorStreamCaptureUnjoined);

    begin_capture(stream); /* a join before the forked stream's last work */
    wait_for(other, stream);
    launch(set_value, 1, 1, 0, other, cell, 1);
    wait_for(stream, other);
    launch(set_value, 1, 1, 0, other, cell, 2);
    expect_end(stream, cudaErrorStreamCaptureUnjoined);

    begin_capture(stream); /* the end in the wrong stream */
    wait_for(other, stream);
    expect_error(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
    expect_end(stream, cudaErrorStreamCaptureInvalidated);

    begin_capture(stream); /* two captures that meet */
    begin_capture(third);
    CUDA_CHECK(cudaEventRecord(event, third));
    expect_error(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureMerge);
    expect_error(cudaStreamEndCapture(third, &graph), cudaErrorStreamCaptureInvalidated);
    expect_end(stream, cudaErrorStreamCaptureInvalidated);

    begin_capture(stream); /* the NULL stream waits only for streams that block */
    CUDA_CHECK(cudaMemsetAsync(cell, 0, 4, 0));
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    begin_capture(blocking);
    expect_error(cudaMemsetAsync(cell, 0, 4, 0), cudaErrorStreamCaptureImplicit);
    expect_end(blocking, cudaErrorStreamCaptureInvalidated);
}

/* ---- launches that go wrong --------------------------------------------------------------------------- */

/* Launches count when the graph is launched, each time. */
static void test_fault(void)
{
    cudaStream_t stream = new_stream();
    int *cell = on_device<int>(NULL, 1);
    setenv("HOST_CUDA_FAIL_AT", "5", 1);
    CUDA_CHECK(cudaDeviceSynchronize());
    begin_capture(stream);
    for (int i = 0; i < 2; i++) {
        launch(set_value, 1, 1, 0, stream, cell, i);
    }
    cudaGraphExec_t exec = end_capture(stream);
    for (int i = 0; i < 2; i++) {
        CUDA_CHECK(cudaGraphLaunch(exec, stream));
        CUDA_CHECK(cudaStreamSynchronize(stream));
    }
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    expect_error(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    expect_error(cudaGraphLaunch(exec, stream), cudaErrorLaunchFailure);
}

static void launch_freed(void)
{
    cudaStream_t stream = new_stream();
    int *cells = on_device<int>(NULL, 2);
    CUDA_CHECK(cudaDeviceSynchronize());
    begin_capture(stream);
    CUDA_CHECK(cudaMemcpyAsync(cells, cells + 1, 4, cudaMemcpyDeviceToDevice, stream));
    cudaGraphExec_t exec = end_capture(stream);
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    CUDA_CHECK(cudaFree(cells));
    cudaGraphLaunch(exec, stream);
}

static void launch_destroyed_event(void)
{
    cudaStream_t stream = new_stream();
    cudaEvent_t event = new_event();
    begin_capture(stream);
    CUDA_CHECK(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
    cudaGraphExec_t exec = end_capture(stream);
    CUDA_CHECK(cudaEventDestroy(event));
    cudaGraphLaunch(exec, stream);
}

template <unsigned long long flags>
static void capture_priorities(void)
{
    int lowest, highest;
    cudaStream_t one = new_stream(), other;
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    CUDA_CHECK(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, highest));
    begin_capture(one);
    wait_for(other, one);
    wait_for(one, other);
    CUDA_CHECK(cudaGraphLaunch(end_capture(one, flags), one));
    CUDA_CHECK(cudaStreamSynchronize(one));
}

static const Test tests[] = {
    {"replays with other input", test_replays, NULL},
    {"large and empty graphs", test_sizes, NULL},
    {"forks and joins, and a missing event shows", test_fork_and_join, NULL},
    {"launches of one graph run one after the other", test_launches_in_order, NULL},
    {"a graph keeps its place in its stream", test_surroundings, NULL},
    {"external events", test_external_events, NULL},
    {"calls that a capture forbids", test_forbidden_calls, NULL},
    {"the modes of a capture", test_modes, NULL},
    {"the bounds of a capture", test_bounds_of_a_capture, NULL},
    {"a fault in a graph", test_fault, NULL},
    {"priorities that a graph keeps", capture_priorities<cudaGraphInstantiateFlagUseNodePriority>, NULL},
    {"priorities that a graph would lose", capture_priorities<0>,
     "cudaGraphInstantiate: streams of several priorities"},
    {"a graph with memory that was freed", launch_freed, "cudaMemcpyAsync in a graph: the 4 bytes at"},
    {"a graph with an event that was destroyed", launch_destroyed_event,
     "cudaGraphLaunch: an event that it records was destroyed"},
};

int main(void)
{
    return run_tests(tests, sizeof tests / sizeof *tests);
}
