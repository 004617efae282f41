#include "llmc/compute/cuda/cuda_backend.h"

#include <cublasLt.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/cuda/cuda_check.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/comm/nccl/nccl_reducer.h"
#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/compute/cuda/peak_flops.cuh"

enum { CAPABILITY_MIN = 80 };

/* Of this thread's GPU; 0 where it is unknown. */
static double peak_flops(DType dtype)
{
    int device;
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return dtype == DTYPE_BF16 ? peak_flops_bf16(properties.name) : 0;
}

/* The properties are asked for once, as that is slow: describe() is called after each update, when the GPU
 * has nothing to do. */
static Model *create(const ModelConfig *config, Error *error)
{
    Model *model = cuda_model_create(config, error);
    if (model) {
        model->peak_flops = peak_flops(config->dtype);
    }
    return model;
}

/* Events are made as they are first asked for: all of them in the first steps. */
static void mark(Model *model, int index)
{
    if (index < 2) {
        cuda_queue_begin_step(&model->queue, index);
        return;
    }
    if (index >= model->mark_count) {
        int count = index + 64;
        model->marks = (cudaEvent_t *)memory_grow(model->marks, (size_t)model->mark_count, (size_t)count,
                                                  sizeof(cudaEvent_t), "marks");
        for (; model->mark_count < count; model->mark_count++) {
            model->marks[model->mark_count] = cuda_timed_event();
        }
    }
    CUDA_CHECK(cudaEventRecord(model->marks[index], model->stream));
}

static double mark_ms(const Model *model, int index)
{
    int turn = index % 2;
    return index < 2 ? model->queue.zeros_ms[turn] : cuda_event_ms(&model->queue, model->marks[index], turn);
}

static void describe(ModelFacts *facts, const Model *model)
{
    *facts = ModelFacts{model->bytes,
                        model->peak_flops,
                        matmuls_plans(model->matmuls),
                        matmuls_notice(model->matmuls),
                        matmuls_device(model->matmuls),
                        NULL,
                        model->shape_notice.text[0] ? model->shape_notice.text : NULL,
                        1,
                        0};
}

static const Backend backend = {.name = "cuda",
                                .create = create,
                                .release = cuda_model_release,
                                .write_state = cuda_model_write_state,
                                .read_state = cuda_model_read_state,
                                .train_slot = cuda_model_train_slot,
                                .gradients = cuda_model_gradients,
                                .update = cuda_model_update,
                                .evaluate = cuda_model_evaluate,
                                .losses = cuda_model_losses,
                                .decode = cuda_model_decode,
                                .describe = describe,
                                .mark = mark,
                                .mark_ms = mark_ms,
                                .reducer = &nccl_reducer,
                                .has_bf16_residual = 1};

/* A driver must be there, and know this toolkit's version. Without one the runtime says that it is too old,
 * and that its version is 0. */
static int check_driver(cudaError_t status, Error *error)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        return error_set(
            error,
            "expected an NVIDIA driver, found no libcuda.so.1 (%s); install the driver, or start "
            "the container with its GPUs; ./train_gpt2 trains on the CPU",
            cudaGetErrorString(status));
    }
    if (status == cudaErrorInsufficientDriver) {
        return error_set(
            error,
            "the NVIDIA driver is too old: expected one for CUDA %d.%d, found %d.%d; install a newer "
            "driver, or build with an older CUDA Toolkit",
            runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
    }
    return 0;
}

void cuda_print_build(FILE *out)
{
    int runtime = 0;
    size_t cublas = cublasLtGetVersion();
    char nccl[NCCL_VERSION_BYTES];
    cudaRuntimeGetVersion(&runtime);
    fprintf(out, "CUDA: %d.%d, cuBLASLt %zu.%zu.%zu, kernels for %s\n", runtime / 1000, runtime % 1000 / 10,
            cublas / 10000, cublas % 10000 / 100, cublas % 100, BUILD_GPUS);
    if (nccl_header_version > 0) {
        fprintf(out,
                "NCCL: built with the header of %s; libnccl.so.2 is loaded when there is a second rank\n",
                nccl_name_version(nccl, nccl_header_version));
    } else {
        fputs("NCCL: left out: one GPU only\n", out);
    }
}

/* Find the GPUs that this process may use. */
static int count_devices(int *count, Error *error)
{
    cudaError_t status = cudaGetDeviceCount(count);
    if (check_driver(status, error) != 0) {
        return -1;
    }
    if (status != cudaSuccess || *count == 0) {
        return error_set(error, "expected an NVIDIA GPU, found none (%s); ./train_gpt2 trains on the CPU",
                         status == cudaSuccess ? "no devices" : cudaGetErrorString(status));
    }
    return 0;
}

/* How many of all (count) are `wanted`. */
static int count_equal(const uint64_t *all, int count, uint64_t wanted)
{
    int equal = 0;
    for (int i = 0; i < count; i++) {
        equal += all[i] == wanted;
    }
    return equal;
}

/* A launcher may show each rank other GPUs, all by the name 0: only their identity tells whether ranks share
 * one. The first rank of a machine where they do speaks; all wait for it. */
static int check_sharing(const cudaDeviceProp *properties, int device_count, Error *error)
{
    int count = comm_rank_count(), rank = comm_rank(), speaker = -1;
    uint64_t *hosts = (uint64_t *)memory_alloc(2 * (size_t)count, sizeof(*hosts), "GPUs of ranks");
    uint64_t *devices = hosts + count;
    uint64_t host = hash_bytes(comm_host(), strlen(comm_host()), 0);
    comm_gather_uint64(host, hosts);
    comm_gather_uint64(hash_bytes(&properties->uuid, sizeof(properties->uuid), host), devices);
    for (int r = 0; r < count && speaker < 0; r++) {
        speaker = count_equal(devices, count, devices[r]) > 1 ? r : -1;
    }
    int sharing = speaker < 0 ? 0 : count_equal(devices, count, devices[speaker]);
    int neighbours = speaker < 0 ? 0 : count_equal(hosts, count, hosts[speaker]);
    memory_free(hosts);
    if (speaker < 0) {
        return 0;
    }
    if (rank != speaker) {
        comm_barrier(); /* until the speaker ends this one */
    }
    return error_set(
        error,
        "%s: expected a GPU for each rank, found %d GPU%s and %d ranks, of which %d would share one "
        "%s; start fewer ranks on this machine",
        comm_host(), device_count, device_count == 1 ? "" : "s", neighbours, sharing, properties->name);
}

static const Backend *open_device(int may_share, Error *error)
{
    int count = 0;
    cudaDeviceProp properties;
    if (count_devices(&count, error) != 0) {
        return NULL;
    }
    int device = comm_local_rank() % count;
    CUDA_CHECK(cudaSetDevice(device));
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    if (properties.major * 10 + properties.minor < CAPABILITY_MIN) {
        error_set(error, "%s: expected a GPU of compute capability 8.0 or newer, found %d.%d",
                  properties.name, properties.major, properties.minor);
        return NULL;
    }
    if (comm_rank_count() > 1 && !may_share && check_sharing(&properties, count, error) != 0) {
        return NULL;
    }
    return &backend;
}

const Backend *cuda_backend(Error *error)
{
    return open_device(0, error);
}

const Backend *cuda_backend_shared(Error *error)
{
    return open_device(1, error);
}
