#include "llmc/base/cuda/cuda_queue.cuh"

#include "llmc/base/clock.h"
#include "llmc/base/cuda/cuda_check.h"

void cuda_queue_init(CudaQueue *queue)
{
    CUDA_CHECK(cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking));
    for (int turn = 0; turn < 2; turn++) {
        queue->zeros[turn] = cuda_timed_event();
        cuda_queue_begin_step(queue, turn);
    }
    queue->drop_graphs = NULL;
    queue->context = NULL;
}

void cuda_queue_release(CudaQueue *queue)
{
    CUDA_CHECK(cudaEventDestroy(queue->zeros[0]));
    CUDA_CHECK(cudaEventDestroy(queue->zeros[1]));
    CUDA_CHECK(cudaStreamDestroy(queue->stream));
}

void cuda_queue_begin_step(CudaQueue *queue, int turn)
{
    CUDA_CHECK(cudaEventRecord(queue->zeros[turn], queue->stream));
    queue->zeros_ms[turn] = clock_ms();
    queue->turn = turn;
}

cudaEvent_t cuda_timed_event(void)
{
    cudaEvent_t event;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
    return event;
}

/* Outside a capture an external record is an error. */
void cuda_record_time(cudaEvent_t event, cudaStream_t stream)
{
    cudaStreamCaptureStatus status;
    CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    unsigned int flags =
        status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    CUDA_CHECK(cudaEventRecordWithFlags(event, stream, flags));
}

double cuda_event_ms(const CudaQueue *queue, cudaEvent_t event, int turn)
{
    float ms = 0;
    CUDA_CHECK(cudaEventSynchronize(event));
    CUDA_CHECK(cudaEventElapsedTime(&ms, queue->zeros[turn], event));
    return queue->zeros_ms[turn] + (double)ms;
}
