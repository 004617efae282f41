#include <pthread.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/compute/cuda/cuda_model.cuh"

enum { THREADS = 256, BUFFERS = 2 };
static const int64_t BUFFER_COUNT = 1 << 20;

/* Weights and moments on their way to the host. */
struct StateCopies {
    pthread_mutex_t lock; /* the snapshot's thread and training may read at the same time */
    cudaStream_t stream;
    float *buffers[BUFFERS]; /* pinned, BUFFER_COUNT each: one is filled while the other is emptied */
    cudaEvent_t is_filled[BUFFERS];
};

StateCopies *state_copies_create(void)
{
    StateCopies *copies = (StateCopies *)memory_alloc_zeroed(1, sizeof(*copies), "copies of the state");
    pthread_mutex_init(&copies->lock, NULL);
    CUDA_CHECK(cudaStreamCreateWithFlags(&copies->stream, cudaStreamNonBlocking));
    for (int i = 0; i < BUFFERS; i++) {
        CUDA_CHECK(cudaHostAlloc((void **)&copies->buffers[i], (size_t)BUFFER_COUNT * sizeof(float),
                                 cudaHostAllocDefault));
        CUDA_CHECK(cudaEventCreateWithFlags(&copies->is_filled[i], cudaEventDisableTiming));
    }
    return copies;
}

void state_copies_free(StateCopies *copies)
{
    for (int i = 0; i < BUFFERS; i++) {
        CUDA_CHECK(cudaFreeHost(copies->buffers[i]));
        CUDA_CHECK(cudaEventDestroy(copies->is_filled[i]));
    }
    CUDA_CHECK(cudaStreamDestroy(copies->stream));
    pthread_mutex_destroy(&copies->lock);
    memory_free(copies);
}

static float *state_arena(const Model *model, StateKind kind)
{
    return kind == STATE_WEIGHTS ? model->weights : kind == STATE_MOMENT1 ? model->moment1 : model->moment2;
}

__global__ void __launch_bounds__(THREADS)
    lower_kernel(__nv_bfloat16 *out, const float *values, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        out[i] = __float2bfloat16_rn(values[i]);
    }
}

void cuda_model_write_state(Model *model, StateKind kind, int64_t offset, const float *values, int64_t count)
{
    if (count == 0) {
        return;
    }
    float *arena = state_arena(model, kind) + offset;
    CUDA_CHECK(
        cudaMemcpyAsync(arena, values, (size_t)count * sizeof(float), cudaMemcpyHostToDevice, model->stream));
    if (kind == STATE_WEIGHTS && model->weights_low) {
        launch(lower_kernel, dim3((unsigned)div_up(count, THREADS)), dim3(THREADS), 0, model->stream,
               model->weights_low + offset, arena, count);
    }
    CUDA_CHECK(cudaStreamSynchronize(model->stream)); /* `values` is the caller's again */
}

/* Gradients as the update sees them, by way of the logits' memory, which nothing uses between steps. */
static void read_gradients(const Model *model, int64_t offset, float *values, int64_t count)
{
    Gradients gradients = cuda_model_reduced(model);
    int64_t piece_max = model->logits_bytes / (int64_t)sizeof(float);
    for (int64_t first = 0; first < count; first += piece_max) {
        int64_t piece = count - first < piece_max ? count - first : piece_max;
        gradients_read((float *)model->logits, &gradients, offset + first, piece, model->stream);
        CUDA_CHECK(cudaMemcpyAsync(values + first, model->logits, (size_t)piece * sizeof(float),
                                   cudaMemcpyDeviceToHost, model->stream));
    }
    CUDA_CHECK(cudaStreamSynchronize(model->stream));
}

static int64_t piece_count(int64_t count, int64_t piece)
{
    int64_t rest = count - piece * BUFFER_COUNT;
    return rest < BUFFER_COUNT ? rest : BUFFER_COUNT;
}

/* The update that made this state is known to be over. So nothing orders this stream after the model's. */
static void read_arena(StateCopies *copies, float *values, const float *arena, int64_t count)
{
    int64_t pieces = div_up(count, BUFFER_COUNT);
    for (int64_t piece = 0; piece <= pieces; piece++) {
        if (piece < pieces) {
            int i = (int)(piece % BUFFERS);
            CUDA_CHECK(cudaMemcpyAsync(copies->buffers[i], arena + piece * BUFFER_COUNT,
                                       (size_t)piece_count(count, piece) * sizeof(float),
                                       cudaMemcpyDeviceToHost, copies->stream));
            CUDA_CHECK(cudaEventRecord(copies->is_filled[i], copies->stream));
        }
        if (piece > 0) {
            int i = (int)((piece - 1) % BUFFERS);
            CUDA_CHECK(cudaEventSynchronize(copies->is_filled[i]));
            memcpy(values + (piece - 1) * BUFFER_COUNT, copies->buffers[i],
                   (size_t)piece_count(count, piece - 1) * sizeof(float));
        }
    }
}

void cuda_model_read_state(const Model *model, StateKind kind, int64_t offset, float *values, int64_t count)
{
    if (kind == STATE_GRADIENTS) {
        read_gradients(model, offset, values, count);
        return;
    }
    pthread_mutex_lock(&model->copies->lock);
    read_arena(model->copies, values, state_arena(model, kind) + offset, count);
    pthread_mutex_unlock(&model->copies->lock);
}
