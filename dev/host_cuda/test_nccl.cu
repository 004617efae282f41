/* NCCL between processes: sums, order, mistakes that are named, peers that are lost. */
#include <signal.h>
#include <thread>

#include "llmc/comm/nccl/nccl_library.cuh"

#include "test_ranks.h"

enum { COUNT = 1001, SEEDS = 20, WRONG = 3 };

/* ---- sums --------------------------------------------------------------------------------------------- */

/* All ranks hold small multiples of 1/4, whose sums are exact in every type. */
template <typename T>
static void check_sum(Rank *self, ncclDataType_t type, bool is_in_place)
{
    static T values[COUNT], found[COUNT], kept[COUNT];
    for (int i = 0; i < COUNT; i++) {
        values[i] = (T)(float)(i % 32 + self->rank);
    }
    T *from = on_device(values, COUNT), *to = is_in_place ? from : on_device<T>(NULL, COUNT);
    CUDA_CHECK(cudaDeviceSynchronize());
    NCCL_EXPECT(ncclAllReduce(from, to, COUNT, type, ncclSum, self->comm, self->communication));
    CUDA_CHECK(cudaMemcpyAsync(found, to, sizeof found, cudaMemcpyDeviceToHost, self->communication));
    CUDA_CHECK(cudaStreamSynchronize(self->communication));
    from_device(kept, from, COUNT);
    for (int i = 0; i < COUNT; i++) {
        int N = self->rank_count;
        float expected = (float)(N * (i % 32) + N * (N - 1) / 2);
        EXPECT((float)found[i] == expected, "type %d, element %d: %g, expected %g", type, i, (float)found[i],
               expected);
        EXPECT(is_in_place || (float)kept[i] == (float)values[i], "the source changed");
    }
}

static void sums(Rank *self)
{
    for (int is_in_place = 0; is_in_place < 2; is_in_place++) {
        check_sum<int64_t>(self, ncclInt64, is_in_place);
        check_sum<float>(self, ncclFloat, is_in_place);
        check_sum<__nv_bfloat16>(self, ncclBfloat16, is_in_place);
    }
    NCCL_EXPECT(ncclCommDestroy(self->comm));
}

/* Several calls in groups within groups, of one stream: in order, as one piece. */
static void groups(Rank *self)
{
    int64_t values[3] = {1, 10, 100}, *cells = on_device(values, 3), N = self->rank_count;
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclAllReduce(cells, cells + 1, 1, ncclInt64, ncclSum, self->comm, self->communication));
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclAllReduce(cells + 1, cells + 2, 1, ncclInt64, ncclSum, self->comm, self->communication));
    NCCL_EXPECT(ncclGroupEnd());
    CUDA_CHECK(cudaStreamSynchronize(self->communication));
    from_device(values, cells, 3);
    EXPECT(values[1] == 10 && values[2] == 100, "the inner group's end ran it: %ld", (long)values[2]);
    NCCL_EXPECT(ncclGroupEnd());
    NCCL_EXPECT(ncclCommDestroy(self->comm)); /* waits */
    from_device(values, cells, 3);
    EXPECT(values[0] == 1 && values[1] == N && values[2] == N * N, "%ld, %ld", (long)values[1],
           (long)values[2]);
}

/* Two streams with one communicator: in the order of the calls, whatever the streams do. */
static void two_streams(Rank *self)
{
    int64_t values[2] = {1, 2}, *cells = on_device(values, 2), N = self->rank_count;
    for (int i = 0; i < 10; i++) {
        NCCL_EXPECT(ncclAllReduce(cells, cells, 1, ncclInt64, ncclSum, self->comm, self->compute));
        NCCL_EXPECT(
            ncclAllReduce(cells + 1, cells + 1, 1, ncclInt64, ncclSum, self->comm, self->communication));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    from_device(values, cells, 2);
    int64_t power = N == 2 ? 1 << 10 : 59049;
    EXPECT(values[0] == power && values[1] == 2 * power, "%ld, %ld", (long)values[0], (long)values[1]);
}

/* ---- order -------------------------------------------------------------------------------------------- */

__global__ void set_value(int64_t *out, int value)
{
    *out = value;
}

__global__ void double_value(int64_t *out, const int64_t *in)
{
    *out = 2 * *in;
}

/* Compute writes, communication sums, compute reads: what a bucket does. */
static void bucket(Rank *self)
{
    int64_t *cells = on_device<int64_t>(NULL, 2), found, N = self->rank_count;
    cudaEvent_t ready, summed;
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&summed, cudaEventDisableTiming));
    for (int i = 1; i <= 5; i++) {
        launch(set_value, 1, 1, 0, self->compute, cells, i);
    }
    CUDA_CHECK(cudaEventRecord(ready, self->compute));
    CUDA_CHECK(cudaStreamWaitEvent(self->communication, ready, 0));
    NCCL_EXPECT(ncclAllReduce(cells, cells, 1, ncclInt64, ncclSum, self->comm, self->communication));
    CUDA_CHECK(cudaEventRecord(summed, self->communication));
    CUDA_CHECK(cudaStreamWaitEvent(self->compute, summed, 0));
    launch(double_value, 1, 1, 0, self->compute, cells + 1, (const int64_t *)cells);
    CUDA_CHECK(cudaMemcpyAsync(&found, cells + 1, sizeof found, cudaMemcpyDeviceToHost, self->compute));
    CUDA_CHECK(cudaDeviceSynchronize());
    NCCL_EXPECT(ncclCommDestroy(self->comm));
    _exit(found == 2 * 5 * N ? 0 : WRONG);
}

/* The same twice in a graph, which runs with other input each time. Its first wait forks. */
static void captured_bucket(Rank *self)
{
    int64_t *cells = on_device<int64_t>(NULL, 2), *in = (int64_t *)pinned_ints(4), *out = in + 1;
    int64_t N = self->rank_count;
    bool is_wrong = false;
    CUDA_CHECK(cudaDeviceSynchronize());
    begin_capture(self->compute);
    wait_for(self->communication, self->compute);
    CUDA_CHECK(cudaMemcpyAsync(cells, in, sizeof *in, cudaMemcpyHostToDevice, self->compute));
    wait_for(self->communication, self->compute);
    NCCL_EXPECT(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        NCCL_EXPECT(ncclAllReduce(cells, cells, 1, ncclInt64, ncclSum, self->comm, self->communication));
    }
    NCCL_EXPECT(ncclGroupEnd());
    wait_for(self->compute, self->communication);
    launch(double_value, 1, 1, 0, self->compute, cells + 1, (const int64_t *)cells);
    CUDA_CHECK(cudaMemcpyAsync(out, cells + 1, sizeof *out, cudaMemcpyDeviceToHost, self->compute));
    wait_for(self->compute, self->communication);
    cudaGraphExec_t exec = end_capture(self->compute);
    for (int i = 1; i <= 3; i++) {
        *in = i * (self->rank + 1);
        CUDA_CHECK(cudaGraphLaunch(exec, self->compute));
        CUDA_CHECK(cudaStreamSynchronize(self->compute));
        is_wrong = is_wrong || *out != i * N * N * (N + 1);
    }
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    NCCL_EXPECT(ncclCommDestroy(self->comm));
    _exit(is_wrong ? WRONG : 0);
}

/* How many seeds give a wrong result when this wait is dropped. */
static int wrong_seeds(RankMain *run, int rank_count, const char *dropped)
{
    int wrong = 0;
    setenv("HOST_CUDA_DROP_WAIT", dropped, 1);
    for (int seed = 1; seed <= SEEDS; seed++) {
        int codes[RANKS_MAX];
        bool is_wrong = false;
        run_ranks(codes, rank_count, run, seed);
        for (int rank = 0; rank < rank_count; rank++) {
            EXPECT(codes[rank] == 0 || codes[rank] == WRONG, "rank %d: exit code %d", rank, codes[rank]);
            is_wrong = is_wrong || codes[rank];
        }
        wrong += is_wrong;
    }
    return wrong;
}

static void test_order(void)
{
    EXPECT(wrong_seeds(bucket, 3, "0") == 0, "events do not order all-reduces");
    EXPECT(wrong_seeds(bucket, 2, "1") > 0, "no seed shows that the all-reduce does not wait");
    EXPECT(wrong_seeds(bucket, 2, "2") > 0, "no seed shows that nothing waits for the all-reduce");
}

static void test_order_in_graph(void)
{
    EXPECT(wrong_seeds(captured_bucket, 3, "0") == 0, "events do not order all-reduces");
    EXPECT(wrong_seeds(captured_bucket, 2, "2") > 0, "no seed shows that the all-reduce does not wait");
    EXPECT(wrong_seeds(captured_bucket, 2, "3") > 0, "no seed shows that nothing waits for the all-reduce");
}

/* While rank 0 waits for its compute stream, rank 1 waits for rank 0: the all-reduce, which either may have
 * begun, keeps nobody. */
static void other_streams_go_on(Rank *self)
{
    int64_t one = 1, *cells = on_device(&one, 1), *other = on_device<int64_t>(NULL, 1);
    std::atomic<int> is_over(0);
    CUDA_CHECK(cudaDeviceSynchronize());
    if (self->rank == 0) {
        NCCL_EXPECT(ncclAllReduce(cells, cells, 1, ncclInt64, ncclSum, self->comm, self->communication));
        std::thread asks([&] {
            cudaEvent_t event;
            CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
            CUDA_CHECK(cudaEventRecord(event, self->communication));
            while (!is_over) {
                cudaError_t error = cudaEventQuery(event);
                EXPECT(error == cudaErrorNotReady || error == cudaSuccess, "%s", cudaGetErrorString(error));
                usleep(100);
            }
        });
        for (int i = 0; i < 20; i++) {
            launch(set_value, 1, 1, 0, self->compute, other, i);
            CUDA_CHECK(cudaStreamSynchronize(self->compute));
        }
        self->shared->steps = 1;
        CUDA_CHECK(cudaStreamSynchronize(self->communication));
        is_over = 1;
        asks.join();
    } else {
        while (!self->shared->steps) {
            usleep(1000);
        }
        NCCL_EXPECT(ncclAllReduce(cells, cells, 1, ncclInt64, ncclSum, self->comm, self->communication));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
    from_device(&one, cells, 1);
    EXPECT(one == 2, "%ld", (long)one);
}

/* ---- lost peers --------------------------------------------------------------------------------------- */

/* The last rank dies; a neighbour's all-reduce does not end, its main thread waits, another thread is told
 * and aborts. */
static void lost_peer(Rank *self)
{
    float *values = on_device<float>(NULL, COUNT);
    CUDA_CHECK(cudaDeviceSynchronize());
    if (self->rank == self->rank_count - 1) {
        kill(getpid(), SIGKILL);
    }
    NCCL_EXPECT(ncclAllReduce(values, values, COUNT, ncclFloat, ncclSum, self->comm, self->communication));
    std::atomic<bool> has_returned(false);
    std::thread watchdog([&] {
        ncclResult_t error = ncclSuccess;
        while (error == ncclSuccess) {
            usleep(1000);
            NCCL_EXPECT(ncclCommGetAsyncError(self->comm, &error));
        }
        usleep(20000);
        EXPECT(error == ncclRemoteError && !has_returned, "error %d, or the stream ended", error);
        NCCL_EXPECT(ncclCommAbort(self->comm));
    });
    CUDA_CHECK(cudaStreamSynchronize(self->communication));
    has_returned = true;
    watchdog.join();
    EXPECT(ncclAllReduce(values, values, 1, ncclFloat, ncclSum, self->comm, self->communication) ==
               ncclInvalidUsage,
           "an aborted communicator went on");
}

static void test_lost_peer(void)
{
    int codes[RANKS_MAX];
    run_ranks(codes, 3, lost_peer, 1);
    EXPECT(codes[0] == 0 && codes[1] == 0 && codes[2] == 128 + SIGKILL, "%d, %d, %d", codes[0], codes[1],
           codes[2]);
}

/* A peer that lives and does not come: no error, and an abort ends it as well. */
static void stuck_peer(Rank *self)
{
    float *values = on_device<float>(NULL, COUNT);
    CUDA_CHECK(cudaDeviceSynchronize());
    if (self->rank == 1) {
        while (!self->shared->steps) {
            usleep(1000);
        }
        _exit(0);
    }
    ncclResult_t error;
    NCCL_EXPECT(ncclAllReduce(values, values, COUNT, ncclFloat, ncclSum, self->comm, self->communication));
    for (int i = 0; i < 50; i++) {
        EXPECT(cudaStreamQuery(self->communication) == cudaErrorNotReady, "it ended");
        usleep(1000);
    }
    NCCL_EXPECT(ncclCommGetAsyncError(self->comm, &error));
    EXPECT(error == ncclSuccess, "%s", ncclGetErrorString(error));
    NCCL_EXPECT(ncclCommAbort(self->comm));
    CUDA_CHECK(cudaStreamSynchronize(self->communication));
    self->shared->steps = 1;
}

/* A program may end in the middle of everything. */
static void end_while_stuck(Rank *self)
{
    float *values = on_device<float>(NULL, COUNT);
    CUDA_CHECK(cudaDeviceSynchronize());
    if (self->rank == 1) {
        while (!self->shared->steps) {
            usleep(1000);
        }
        _exit(0);
    }
    NCCL_EXPECT(ncclAllReduce(values, values, COUNT, ncclFloat, ncclSum, self->comm, self->communication));
    std::thread waits([=] { cudaStreamSynchronize(self->communication); });
    waits.detach();
    usleep(50000);
    self->shared->steps = 1;
    exit(0);
}

/* ---- mistakes ----------------------------------------------------------------------------------------- */

enum Mistake {
    COUNT_DIFFERS,
    TYPE_DIFFERS,
    ORDER_DIFFERS,
    HOST_BUFFER,
    BUFFER_TOO_SMALL,
    FREED_BUFFER,
    WRONG_OPERATION,
    TWO_STREAMS_OF_GROUP,
    USE_AFTER_DESTROY,
    ASK_AFTER_ABORT,
    GRAPH_OUTLIVES
};

template <Mistake mistake>
static void make_mistake(Rank *self)
{
    static int64_t host[100];
    ncclComm_t comm = self->comm;
    cudaStream_t stream = self->communication;
    int64_t *cells = on_device<int64_t>(NULL, 100);
    bool is_last = self->rank == self->rank_count - 1;
    auto reduce = [&](int64_t *at, size_t count, ncclDataType_t type) {
        NCCL_EXPECT(ncclAllReduce(at, at, count, type, ncclSum, comm, stream));
    };
    CUDA_CHECK(cudaDeviceSynchronize());
    reduce(cells, 100, ncclInt64);
    if (mistake == COUNT_DIFFERS) {
        reduce(cells, is_last ? 50 : 100, ncclInt64);
    } else if (mistake == TYPE_DIFFERS) {
        reduce(cells, 100, is_last ? ncclFloat : ncclInt64);
    } else if (mistake == ORDER_DIFFERS) {
        reduce(cells, is_last ? 10 : 20, ncclInt64);
        reduce(cells, is_last ? 20 : 10, ncclInt64);
    } else if (mistake == HOST_BUFFER) {
        reduce(host, 100, ncclInt64);
    } else if (mistake == BUFFER_TOO_SMALL) {
        reduce(cells, 101, ncclInt64);
    } else if (mistake == FREED_BUFFER) {
        CUDA_CHECK(cudaFree(cells));
        reduce(cells, 100, ncclInt64);
    } else if (mistake == WRONG_OPERATION) {
        ncclAllReduce(cells, cells, 100, ncclInt64, ncclAvg, comm, stream);
    } else if (mistake == TWO_STREAMS_OF_GROUP) {
        NCCL_EXPECT(ncclGroupStart());
        reduce(cells, 1, ncclInt64);
        stream = self->compute;
        reduce(cells, 1, ncclInt64);
    } else if (mistake == USE_AFTER_DESTROY) {
        NCCL_EXPECT(ncclCommDestroy(comm));
        reduce(cells, 1, ncclInt64);
    } else if (mistake == ASK_AFTER_ABORT) {
        ncclResult_t error;
        NCCL_EXPECT(ncclCommAbort(comm));
        ncclCommGetAsyncError(comm, &error);
    } else if (mistake == GRAPH_OUTLIVES) {
        cudaGraph_t graph;
        CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        reduce(cells, 1, ncclInt64);
        CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
        NCCL_EXPECT(ncclCommDestroy(comm));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
}

/* The line that the last rank ends with. */
template <Mistake mistake>
static void run_mistake(void)
{
    int codes[RANKS_MAX];
    run_ranks(codes, 2, make_mistake<mistake>, 1);
    _exit(codes[1]);
}

/* ---- the library -------------------------------------------------------------------------------------- */

static void test_library(void)
{
    Error error = {};
    const NcclLibrary *library = nccl_library(&error);
    EXPECT(library && library->version == 22703, "%s", error.text);
    EXPECT(library->all_reduce == ncclAllReduce && library->abort == ncclCommAbort, "the table");
    setenv("HOST_CUDA_NCCL", "22809", 1);
    EXPECT((library = nccl_library(&error)) && library->version == 22809, "%s", error.text);
    setenv("HOST_CUDA_NCCL", "missing", 1);
    EXPECT(!nccl_library(&error) && strstr(error.text, "expected NCCL") && strstr(error.text, "found none"),
           "%s", error.text);
}

static const Test tests[] = {
    {"the library, and its versions", test_library, NULL},
    {"sums of 1 rank", in_ranks<sums, 1>, NULL},
    {"sums of 2 ranks", in_ranks<sums, 2>, NULL},
    {"sums of 3 ranks", in_ranks<sums, 3>, NULL},
    {"sums of 4 ranks", in_ranks<sums, 4>, NULL},
    {"groups in groups", in_ranks<groups, 3>, NULL},
    {"one communicator on two streams", in_ranks<two_streams, 3>, NULL},
    {"events order all-reduces, and a missing one shows", test_order, NULL},
    {"the same in a graph", test_order_in_graph, NULL},
    {"other streams go on", in_ranks<other_streams_go_on, 2>, NULL},
    {"a peer is killed: an error is told, an abort ends it", test_lost_peer, NULL},
    {"a peer does not come: an abort ends it", in_ranks<stuck_peer, 2>, NULL},
    {"the program ends while an all-reduce waits", in_ranks<end_while_stuck, 2>, NULL},
    {"counts differ", run_mistake<COUNT_DIFFERS>,
     "ncclAllReduce: number 2 of rank 1 is of 50 values of int64, but number 2 of rank 0 of 100 of int64"},
    {"types differ", run_mistake<TYPE_DIFFERS>,
     "is of 100 values of float, but number 2 of rank 0 of 100 of int64"},
    {"the order differs", run_mistake<ORDER_DIFFERS>,
     "is of 10 values of int64, but number 2 of rank 0 of 20"},
    {"a buffer of the host", run_mistake<HOST_BUFFER>, "the 800 bytes of sendbuff at"},
    {"a buffer that is too small", run_mistake<BUFFER_TOO_SMALL>, "the 808 bytes of sendbuff at"},
    {"a buffer that was freed", run_mistake<FREED_BUFFER>, "are not in live device memory"},
    {"an operation that is not a sum", run_mistake<WRONG_OPERATION>, "only ncclSum of int64, float and bf16"},
    {"a group on two streams", run_mistake<TWO_STREAMS_OF_GROUP>, "one group on two streams"},
    {"a communicator that was destroyed", run_mistake<USE_AFTER_DESTROY>, "the communicator was destroyed"},
    {"a communicator that was aborted", run_mistake<ASK_AFTER_ABORT>, "the communicator was aborted"},
    {"a graph that outlives its communicator", run_mistake<GRAPH_OUTLIVES>,
     "a graph with its all-reduces has not been destroyed"},
};

int main(void)
{
    return run_tests(tests, sizeof tests / sizeof *tests);
}
