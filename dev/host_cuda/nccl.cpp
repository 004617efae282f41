/* NCCL on sockets. Ranks are processes in a ring; what they queue runs apart, and so blocks its stream only. */
#include <atomic>
#include <condition_variable>
#include <memory>
#include <nccl.h>
#include <stdlib.h>
#include <thread>

#include "llmc/comm/nccl/nccl_library.cuh"

#include "nccl_ring.h"
#include "streams.h"

enum { GRAPHS_MS = 2000 }; /* NCCL waits for ever */

/* Never freed, so that a use after its end is found out. */
struct ncclComm {
    int rank, device;
    NcclRing *ring;   /* NULL when it was closed */
    std::mutex mutex; /* of what follows; taken after the API's */
    std::condition_variable changed;
    uint64_t queued, done; /* all-reduces: they run in the order in which they were queued */
    bool is_running, is_aborted, is_destroyed;
    std::atomic<int> error;
    std::shared_ptr<char> reference = std::make_shared<char>(); /* queued and recorded calls hold one too */
};

struct AllReduceCall {
    void *to;
    const void *from;
    size_t count;
    ncclDataType_t type;
    ncclComm_t comm;
    cudaStream_t stream;
    std::shared_ptr<char> reference;
};

/* ---- the library -------------------------------------------------------------------------------------- */

ncclResult_t ncclGetVersion(int *version)
{
    *version = (int)setting("HOST_CUDA_NCCL", NCCL_VERSION_CODE);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[ncclNumResults] = {
        "no error",         "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage",        "a peer was lost",        "operation in progress",
    };
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

const NcclLibrary *nccl_library(Error *error)
{
    static NcclLibrary library = {};
    const char *text = getenv("HOST_CUDA_NCCL");
    if (text && strcmp(text, "missing") == 0) {
        error_set(error, "expected NCCL (libnccl.so.2), found none");
        return NULL;
    }
    int version;
    ncclGetVersion(&version);
    library = NcclLibrary{version,        ncclGetUniqueId,       ncclCommInitRank,   ncclCommDestroy,
                          ncclCommAbort,  ncclCommGetAsyncError, ncclGetErrorString, ncclAllReduce,
                          ncclGroupStart, ncclGroupEnd};
    return &library;
}

/* ---- communicators ------------------------------------------------------------------------------------ */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    return nccl_ring_invite(id) ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int rank_count, ncclUniqueId id, int rank)
{
    if (rank_count < 1 || rank < 0 || rank >= rank_count) {
        return ncclInvalidArgument;
    }
    if (ApiCall().error) {
        return ncclUnhandledCudaError;
    }
    while (setting("HOST_CUDA_NCCL_HANG", 0) < 0) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    NcclRing *ring = nccl_ring_create(&id, rank, rank_count);
    if (!ring) {
        return ncclSystemError;
    }
    *comm = new ncclComm();
    (*comm)->ring = ring;
    (*comm)->rank = rank;
    (*comm)->device = device_current();
    return ncclSuccess;
}

/* ---- all-reduces -------------------------------------------------------------------------------------- */

/* ncclInvalidUsage after an abort, which another thread may have called; other misuse ends the program. */
static ncclResult_t check_comm(ncclComm_t comm, const char *function)
{
    std::lock_guard<std::mutex> lock(comm->mutex);
    if (comm->is_destroyed) {
        check_failed(NULL, "%s: the communicator was destroyed", function);
    }
    return comm->is_aborted ? ncclInvalidUsage : ncclSuccess;
}

static void check_memory(const AllReduceCall *what, const void *memory, const char *name)
{
    size_t bytes = what->count * nccl_type_bytes(what->type);
    if (bytes > 0 && memory_find(memory, bytes)->kind != MEMORY_DEVICE) {
        check_failed(NULL, "ncclAllReduce: the %zu bytes of %s at %p are not in live device memory", bytes,
                     name, memory);
    }
}

static void check_buffers(const AllReduceCall *what)
{
    check_memory(what, what->from, "sendbuff");
    check_memory(what, what->to, "recvbuff");
}

/* 0, or -1 when a peer was lost. */
static int all_reduce(const AllReduceCall *what, uint64_t number)
{
    NcclHeader header = {number, what->count, what->type, what->comm->rank};
    if (what->to != what->from) {
        memmove(what->to, what->from, what->count * nccl_type_bytes(what->type));
    }
    return nccl_ring_all_reduce(what->comm->ring, what->to, &header);
}

/* When its turn has come. As on a GPU it does not end when a peer is lost, until somebody aborts. */
static void run_in_turn(const AllReduceCall *what, uint64_t number)
{
    ncclComm_t comm = what->comm;
    std::unique_lock<std::mutex> lock(comm->mutex);
    bool hangs = (long long)number == setting("HOST_CUDA_NCCL_HANG", 0);
    comm->changed.wait(lock, [=] { return comm->is_aborted || (comm->done + 1 == number && !hangs); });
    if (comm->is_aborted) {
        return;
    }
    comm->is_running = true;
    lock.unlock();
    int status = all_reduce(what, number);
    lock.lock();
    comm->is_running = false;
    if (status == 0) {
        comm->done++;
    } else if (!comm->is_aborted) {
        comm->error = ncclRemoteError;
    }
    comm->changed.notify_all();
    comm->changed.wait(lock, [=] { return status == 0 || comm->is_aborted; });
}

/* Number the calls when they are queued, and again each time that a graph with them is. */
static void bind_calls(Work *work, const std::vector<AllReduceCall> &calls)
{
    std::vector<uint64_t> numbers;
    for (const AllReduceCall &call : calls) {
        check_comm(call.comm, "ncclAllReduce");
        check_buffers(&call); /* again, for graphs; cudaFree runs all that is queued */
        std::lock_guard<std::mutex> lock(call.comm->mutex);
        numbers.push_back(++call.comm->queued);
    }
    work->run = [calls, numbers] {
        for (size_t i = 0; i < calls.size(); i++) {
            run_in_turn(&calls[i], numbers[i]);
        }
    };
}

static thread_local int group_depth;
static thread_local std::vector<AllReduceCall> group;

/* Queue what the group holds as one piece of work. */
static ncclResult_t queue_group(ApiCall *api)
{
    std::vector<AllReduceCall> calls;
    calls.swap(group);
    if (calls.empty()) {
        return ncclSuccess;
    }
    Work work(nullptr, WORK_APART);
    work.bind = [calls](Work *self) { bind_calls(self, calls); };
    return api->end(stream_push(api, calls[0].stream, work)) ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream)
{
    AllReduceCall what = {to, from, count, type, comm, stream, comm->reference};
    ncclResult_t error = check_comm(comm, "ncclAllReduce");
    if (error) {
        return error;
    }
    ApiCall api;
    if (api.error) {
        return ncclUnhandledCudaError;
    }
    if (nccl_type_bytes(type) == 0 || operation != ncclSum) {
        check_failed(NULL,
                     "ncclAllReduce: type %d, operation %d: only ncclSum of int64, float and bf16 is known",
                     type, operation);
    }
    if (stream && stream->device != comm->device) {
        check_failed(NULL, "ncclAllReduce: the communicator is of device %d, the stream of device %d",
                     comm->device, stream->device);
    }
    if (!group.empty() && group[0].stream != stream) {
        check_failed(NULL, "ncclAllReduce: one group on two streams");
    }
    check_buffers(&what);
    group.push_back(what);
    return group_depth > 0 ? ncclSuccess : queue_group(&api);
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group_depth == 0) {
        check_failed(NULL, "ncclGroupEnd without ncclGroupStart");
    }
    ApiCall api;
    return --group_depth > 0 ? ncclSuccess : queue_group(&api);
}

/* ---- errors and the end ------------------------------------------------------------------------------- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (check_comm(comm, "ncclCommGetAsyncError") != ncclSuccess) { /* which frees it */
        check_failed(NULL, "ncclCommGetAsyncError: the communicator was aborted");
    }
    *error = (ncclResult_t)comm->error.load();
    return ncclSuccess;
}

/* 0 when no graph holds the communicator's calls any more. Calls that are over let go a moment later. */
static int await_graphs(ncclComm_t comm)
{
    for (int ms = 0; comm->reference.use_count() > 1; ms++) {
        if (ms > GRAPHS_MS * setting("TEST_TIME_SCALE", 1)) {
            return -1;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return 0;
}

static void close_ring(ncclComm_t comm)
{
    nccl_ring_free(comm->ring);
    comm->ring = NULL;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclResult_t error = check_comm(comm, "ncclCommAbort");
    if (error) {
        return error;
    }
    std::unique_lock<std::mutex> lock(comm->mutex);
    comm->is_aborted = true;
    comm->changed.notify_all();
    nccl_ring_break(comm->ring);
    comm->changed.wait(lock, [=] { return !comm->is_running; });
    lock.unlock();
    await_graphs(comm);
    close_ring(comm);
    return ncclSuccess;
}

static bool has_work(ncclComm_t comm)
{
    std::lock_guard<std::mutex> lock(comm->mutex);
    return comm->done < comm->queued && !comm->is_aborted;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    check_comm(comm, "ncclCommDestroy");
    ApiCall api;
    while (has_work(comm) && stream_progress(&api, true)) {
    }
    if (await_graphs(comm) != 0) {
        check_failed(NULL, "ncclCommDestroy: a graph with its all-reduces has not been destroyed");
    }
    std::lock_guard<std::mutex> lock(comm->mutex);
    comm->is_destroyed = true;
    if (comm->ring) {
        close_ring(comm);
    }
    return ncclSuccess;
}
