#include "llmc/comm/nccl/nccl_reducer.h"

#include <cuda_bf16.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/cuda/cuda_queue.cuh"
#include "llmc/base/cuda/launch.cuh"
#include "llmc/base/memory.h"
#include "llmc/comm/nccl/nccl_library.cuh"
#include "llmc/comm/watchdog.h"

/* A communicator that is being aborted refuses, and whoever aborts it has said why. */
#define NCCL_CHECK(reducer, call)                                                                            \
    do {                                                                                                     \
        ncclResult_t status_ = (reducer)->nccl->call;                                                        \
        if (status_ != ncclSuccess) {                                                                        \
            watchdog_hold();                                                                                 \
            cuda_fault(__FILE__, __LINE__, #call, (reducer)->nccl->error_string(status_));                   \
        }                                                                                                    \
    } while (0)

enum {
    WHAT_BYTES = 24,
    GAPS_MAX = 16, /* ranges of backward that do not join */
    THREADS = 256
};

typedef struct NcclBucket {
    char what[WHAT_BYTES];
    Bucket range;
    int64_t bytes;          /* on the wire */
    cudaEvent_t is_final;   /* on the compute stream */
    cudaEvent_t begin, end; /* on the communication stream; they tell the time */
} NcclBucket;

typedef struct NcclReducer {
    ReducerConfig config;
    const NcclLibrary *nccl;
    ncclComm_t communicator;
    CudaQueue *compute;
    cudaStream_t stream; /* for communication */
    Buckets cutter;
    /* Steps take turns with two sets of events: the host reads one while the GPU records the other. */
    NcclBucket *buckets[2]; /* [capacity] of a step */
    int capacity;
    int count;                               /* of buckets in a step, once the first is launched */
    cudaEvent_t compute_end[2], wait_end[2]; /* they tell the time */
    int turn;                                /* of the step that is being launched */
    int clock_turn;                          /* the queue's, of the step before */
    cudaEvent_t is_summed;
    __nv_bfloat16 *wire;      /* one bucket of bf16, which is no range of an fp32 arena */
    BucketCounters *counters; /* pinned */
    Watchdog *watchdog;
    char name[64];
    BucketTiming *timings; /* [capacity] */
} NcclReducer;

/* ---- on the GPU ---------------------------------------------------------------------------------------- */

static __global__ void count_kernel(volatile int64_t *count)
{
    *count = *count + 1;
}

static __global__ void __launch_bounds__(THREADS)
    to_wire_kernel(__nv_bfloat16 *wire, const float *values, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        wire[i] = __float2bfloat16_rn(values[i]);
    }
}

static __global__ void __launch_bounds__(THREADS)
    from_wire_kernel(float *values, const __nv_bfloat16 *wire, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        values[i] = __bfloat162float(wire[i]);
    }
}

static void count_up(NcclReducer *reducer, volatile int64_t *counter)
{
    launch(count_kernel, dim3(1), dim3(1), 0, reducer->stream, counter);
}

/* ---- buckets ------------------------------------------------------------------------------------------- */

static size_t arena_bytes(const NcclReducer *reducer)
{
    return reducer->config.type == COMM_INT64 ? sizeof(int64_t) : sizeof(float);
}

/* The arena's own elements go over the wire, but for bf16, which is a copy there and back. */
static void sum_elements(NcclReducer *reducer, const NcclBucket *bucket)
{
    CommType type = reducer->config.type;
    size_t count = (size_t)bucket->range.count;
    void *elements = (char *)reducer->config.elements + (size_t)bucket->range.offset * arena_bytes(reducer);
    void *sent = type == COMM_BF16 ? (void *)reducer->wire : elements;
    ncclDataType_t wire_type = type == COMM_INT64   ? ncclInt64
                               : type == COMM_FLOAT ? ncclFloat32
                                                    : ncclBfloat16;
    NCCL_CHECK(reducer,
               all_reduce(sent, sent, count, wire_type, ncclSum, reducer->communicator, reducer->stream));
}

/* The tail rides in the last bucket. */
static void sum_tail(NcclReducer *reducer)
{
    const ReducerConfig *config = &reducer->config;
    NCCL_CHECK(reducer, all_reduce(config->tail, config->tail, (size_t)config->tail_count, ncclInt64, ncclSum,
                                   reducer->communicator, reducer->stream));
}

static void sum_bucket(NcclReducer *reducer, NcclBucket *bucket, int is_last)
{
    dim3 grid((unsigned)((bucket->range.count + THREADS - 1) / THREADS));
    float *values = (float *)reducer->config.elements + bucket->range.offset;
    cuda_record_time(bucket->begin, reducer->stream);
    count_up(reducer, &reducer->counters->begun_count);
    if (reducer->config.type == COMM_BF16) {
        launch(to_wire_kernel, grid, dim3(THREADS), 0, reducer->stream, reducer->wire, values,
               bucket->range.count);
    }
    NCCL_CHECK(reducer, group_start());
    sum_elements(reducer, bucket);
    if (is_last) {
        sum_tail(reducer);
    }
    NCCL_CHECK(reducer, group_end());
    if (reducer->config.type == COMM_BF16) {
        launch(from_wire_kernel, grid, dim3(THREADS), 0, reducer->stream, values, reducer->wire,
               bucket->range.count);
    }
    count_up(reducer, &reducer->counters->ended_count);
    cuda_record_time(bucket->end, reducer->stream);
}

/* From the event on, the communication stream may read what the compute stream has written so far. */
static void let_communication_start(NcclReducer *reducer, cudaEvent_t is_final)
{
    CUDA_CHECK(cudaEventRecord(is_final, reducer->compute->stream));
    CUDA_CHECK(cudaStreamWaitEvent(reducer->stream, is_final, 0));
}

static int is_everything_covered(const NcclReducer *reducer)
{
    return reducer->cutter.covered_count == reducer->config.count && reducer->cutter.pending_count == 0;
}

static void launch_bucket(void *context, Bucket range)
{
    NcclReducer *reducer = (NcclReducer *)context;
    int index = reducer->cutter.count - 1;
    CHECK(index < reducer->capacity, "more than %d buckets in a step", reducer->capacity);
    NcclBucket *bucket = &reducer->buckets[reducer->turn][index];
    bucket->range = range;
    bucket->bytes = range.count * reducer->cutter.element_bytes;
    reducer->count = index + 1 > reducer->count ? index + 1 : reducer->count;
    if (reducer->config.overlaps) {
        let_communication_start(reducer, bucket->is_final);
        sum_bucket(reducer, bucket, is_everything_covered(reducer));
    }
}

/* The last range of backward: what comes after it on the compute stream finds everything summed. */
static void finish(NcclReducer *reducer)
{
    buckets_finish(&reducer->cutter);
    buckets_begin(&reducer->cutter);
    cuda_record_time(reducer->compute_end[reducer->turn], reducer->compute->stream);
    for (int i = 0; i < reducer->count && !reducer->config.overlaps; i++) {
        NcclBucket *bucket = &reducer->buckets[reducer->turn][i];
        let_communication_start(reducer, bucket->is_final);
        sum_bucket(reducer, bucket, i == reducer->count - 1);
    }
    CUDA_CHECK(cudaEventRecord(reducer->is_summed, reducer->stream));
    CUDA_CHECK(cudaStreamWaitEvent(reducer->compute->stream, reducer->is_summed, 0));
    cuda_record_time(reducer->wait_end[reducer->turn], reducer->compute->stream);
}

static void range_done(Reducer *self, int64_t offset, int64_t count)
{
    NcclReducer *reducer = (NcclReducer *)self;
    int is_last = reducer->cutter.covered_count + count == reducer->config.count;
    if (is_last && reducer->config.type != COMM_BF16) { /* whose buckets have to fit into the wire's memory */
        buckets_add_last(&reducer->cutter, offset, count);
    } else {
        buckets_add(&reducer->cutter, offset, count);
    }
    if (is_last) {
        finish(reducer);
    }
}

/* Everything is in the queues since the last range, or is replayed with it. */
static void wait_for_sums(Reducer *self, const ReducerRest *rest)
{
    NcclReducer *reducer = (NcclReducer *)self;
    CHECK(rest->count == 0, "a GPU leaves no rows aside, found %d", rest->count);
    reducer->clock_turn = reducer->compute->turn;
    reducer->turn = !reducer->turn;
}

/* The update has waited for the sums, and nobody has been told yet of what it made of them. */
static void read_times(Reducer *self, ReducerTimes *times)
{
    NcclReducer *reducer = (NcclReducer *)self;
    int done = !reducer->turn, clock = reducer->clock_turn;
    watchdog_hold();
    for (int i = 0; i < reducer->count; i++) {
        const NcclBucket *bucket = &reducer->buckets[done][i];
        BucketTiming *timing = &reducer->timings[i];
        timing->what = bucket->what;
        timing->begin_ms = cuda_event_ms(reducer->compute, bucket->begin, clock);
        timing->end_ms = cuda_event_ms(reducer->compute, bucket->end, clock);
        timing->bytes = bucket->bytes;
    }
    times->wait_begin_ms = cuda_event_ms(reducer->compute, reducer->compute_end[done], clock);
    times->wait_end_ms = cuda_event_ms(reducer->compute, reducer->wait_end[done], clock);
    times->buckets = reducer->timings;
    times->bucket_count = reducer->count;
}

static const char *name(const Reducer *self)
{
    return ((const NcclReducer *)self)->name;
}

/* ---- for the watchdog ---------------------------------------------------------------------------------- */

/* Every step has the same buckets. The names are there from the start, ranges from the first step on. */
static BucketName name_bucket(void *context, int64_t index)
{
    NcclReducer *reducer = (NcclReducer *)context;
    const NcclBucket *bucket = &reducer->buckets[0][index % (reducer->count > 0 ? reducer->count : 1)];
    return BucketName{bucket->what, bucket->range.count};
}

static const char *error_of(void *context)
{
    NcclReducer *reducer = (NcclReducer *)context;
    ncclResult_t state = ncclSuccess;
    ncclResult_t status = reducer->nccl->async_error(reducer->communicator, &state);
    state = status == ncclSuccess ? state : status;
    return state == ncclSuccess || state == ncclInProgress ? NULL : reducer->nccl->error_string(state);
}

static void abort_communicator(void *context)
{
    NcclReducer *reducer = (NcclReducer *)context;
    reducer->nccl->abort(reducer->communicator);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

/* Version 0 is none, and `own` then says why. One rank speaks for all: the first that has none, else rank 0.
 */
static int check_versions(int version, const Error *own, Error *error)
{
    int count = comm_rank_count(), other = 0, without = 0;
    uint64_t *versions = (uint64_t *)memory_alloc((size_t)count, sizeof(*versions), "versions");
    comm_gather_uint64((uint64_t)version, versions);
    while (other < count && versions[other] == versions[0]) {
        other++;
    }
    while (without < count && versions[without] != 0) {
        without++;
    }
    int first = (int)versions[0], found = other < count ? (int)versions[other] : first;
    memory_free(versions);
    if (without == count && found == first) {
        return 0;
    }
    if (comm_rank() != (without < count ? without : 0)) {
        comm_barrier(); /* until the speaker ends this one */
    }
    if (without < count) {
        *error = *own;
        return -1;
    }
    return error_set(
        error,
        "rank %d has NCCL %d, rank 0 has NCCL %d; let all ranks find the same library (LD_LIBRARY_PATH)",
        other, found, first);
}

static int connect(NcclReducer *reducer, Error *error)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof(id));
    if (comm_rank() == 0) {
        ncclResult_t status = reducer->nccl->get_unique_id(&id);
        if (status != ncclSuccess) {
            return error_set(error, "NCCL cannot open a port: %s; NCCL_DEBUG=WARN says more",
                             reducer->nccl->error_string(status));
        }
    }
    comm_broadcast(&id, sizeof(id), 0);
    comm_enter("NCCL's connecting"); /* over interfaces of its own choice, which may lead nowhere */
    ncclResult_t status =
        reducer->nccl->init_rank(&reducer->communicator, comm_rank_count(), id, comm_rank());
    comm_leave();
    if (status != ncclSuccess) {
        return error_set(error, "NCCL cannot connect the ranks: %s; NCCL_DEBUG=WARN says more",
                         reducer->nccl->error_string(status));
    }
    return 0;
}

const int nccl_header_version = NCCL_VERSION_CODE;

const char *nccl_name_version(char text[NCCL_VERSION_BYTES], int version)
{
    int major = version < 10000 ? version / 1000 : version / 10000;
    int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
    snprintf(text, NCCL_VERSION_BYTES, "%d.%d.%d", major, minor, version % 100);
    return text;
}

static void name_version(NcclReducer *reducer)
{
    char version[NCCL_VERSION_BYTES];
    snprintf(reducer->name, sizeof(reducer->name), "NCCL %s",
             nccl_name_version(version, reducer->nccl->version));
}

static void create_buckets(NcclReducer *reducer, int turn)
{
    reducer->buckets[turn] =
        (NcclBucket *)memory_alloc_zeroed((size_t)reducer->capacity, sizeof(NcclBucket), "buckets");
    for (int i = 0; i < reducer->capacity; i++) {
        NcclBucket *bucket = &reducer->buckets[turn][i];
        snprintf(bucket->what, sizeof(bucket->what), "bucket %d", i);
        CUDA_CHECK(cudaEventCreateWithFlags(&bucket->is_final, cudaEventDisableTiming));
        bucket->begin = cuda_timed_event();
        bucket->end = cuda_timed_event();
    }
    reducer->compute_end[turn] = cuda_timed_event();
    reducer->wait_end[turn] = cuda_timed_event();
}

static void free_buckets(NcclReducer *reducer, int turn)
{
    for (int i = 0; i < reducer->capacity; i++) {
        CUDA_CHECK(cudaEventDestroy(reducer->buckets[turn][i].is_final));
        CUDA_CHECK(cudaEventDestroy(reducer->buckets[turn][i].begin));
        CUDA_CHECK(cudaEventDestroy(reducer->buckets[turn][i].end));
    }
    CUDA_CHECK(cudaEventDestroy(reducer->compute_end[turn]));
    CUDA_CHECK(cudaEventDestroy(reducer->wait_end[turn]));
    memory_free(reducer->buckets[turn]);
}

/* A bucket in bf16, which is never larger than all there is to sum. */
static int create_wire(NcclReducer *reducer, Error *error)
{
    const ReducerConfig *config = &reducer->config;
    if (config->type != COMM_BF16) {
        return 0;
    }
    int64_t elements = config->bucket_bytes / (int64_t)sizeof(__nv_bfloat16) + 1;
    elements = elements < config->count ? elements : config->count;
    size_t bytes = (size_t)elements * sizeof(__nv_bfloat16);
    cudaError_t status = cudaMalloc((void **)&reducer->wire, bytes);
    if (status == cudaErrorMemoryAllocation) {
        return error_set(
            error,
            "out of memory: a bucket in bf16 needs %.1f MiB more on the GPU; lower bucket_cap_mb "
            "or batch_size",
            (double)bytes / 0x1p20);
    }
    CUDA_CHECK(status);
    return 0;
}

static void create_counters(NcclReducer *reducer)
{
    CUDA_CHECK(cudaHostAlloc((void **)&reducer->counters, sizeof(*reducer->counters), cudaHostAllocDefault));
    reducer->counters->begun_count = 0;
    reducer->counters->ended_count = 0;
}

static void free_reducer(Reducer *self)
{
    NcclReducer *reducer = (NcclReducer *)self;
    if (!reducer) {
        return;
    }
    CUDA_CHECK(cudaStreamSynchronize(reducer->stream));
    watchdog_free(reducer->watchdog);
    if (reducer->compute->drop_graphs) {
        reducer->compute->drop_graphs(reducer->compute->context);
    }
    comm_enter("NCCL's end"); /* which waits for graphs, if any is left */
    NCCL_CHECK(reducer, destroy(reducer->communicator));
    comm_leave();
    free_buckets(reducer, 0);
    free_buckets(reducer, 1);
    CUDA_CHECK(cudaEventDestroy(reducer->is_summed));
    CUDA_CHECK(cudaFree(reducer->wire));
    CUDA_CHECK(cudaFreeHost(reducer->counters));
    CUDA_CHECK(cudaStreamDestroy(reducer->stream));
    memory_free(reducer->timings);
    memory_free(reducer);
}

static Reducer *create(const ReducerConfig *config, Error *error)
{
    Error own = {};
    const NcclLibrary *nccl = nccl_library(&own);
    if (check_versions(nccl ? nccl->version : 0, &own, error) != 0) {
        return NULL;
    }
    NcclReducer *reducer = (NcclReducer *)memory_alloc_zeroed(1, sizeof(*reducer), "reducer");
    reducer->config = *config;
    reducer->nccl = nccl;
    reducer->compute = (CudaQueue *)config->queue;
    if (create_wire(reducer, error) != 0 || connect(reducer, error) != 0) {
        cudaFree(reducer->wire);
        memory_free(reducer);
        return NULL;
    }
    name_version(reducer);
    reducer->cutter.element_bytes = config->type == COMM_INT64 ? 8 : config->type == COMM_FLOAT ? 4 : 2;
    reducer->cutter.bucket_bytes = config->bucket_bytes;
    reducer->cutter.launch = launch_bucket;
    reducer->cutter.context = reducer;
    reducer->capacity =
        buckets_most(config->count, reducer->cutter.element_bytes, config->bucket_bytes, GAPS_MAX);
    reducer->timings = (BucketTiming *)memory_alloc_zeroed((size_t)reducer->capacity,
                                                           sizeof(*reducer->timings), "bucket times");
    int lowest, highest; /* a bucket that can start should not wait for blocks of backward */
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    CUDA_CHECK(cudaStreamCreateWithPriority(&reducer->stream, cudaStreamNonBlocking, highest));
    create_buckets(reducer, 0);
    create_buckets(reducer, 1);
    CUDA_CHECK(cudaEventCreateWithFlags(&reducer->is_summed, cudaEventDisableTiming));
    create_counters(reducer);
    WatchdogConfig watchdog = {reducer->counters, name_bucket, error_of, abort_communicator, reducer};
    reducer->watchdog = watchdog_create(&watchdog);
    return (Reducer *)reducer;
}

const ReducerKind nccl_reducer = {create, free_reducer, name, range_done, wait_for_sums, read_times};
