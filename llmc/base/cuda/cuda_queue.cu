#include "llmc/base/cuda/cuda_queue.cuh"

#include "llmc/base/clock.h"
#include "llmc/base/cuda/cuda_check.h"

void cuda_queue_init(CudaQueue *queue)
{
    CUDA_CHECK(cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking));
    queue->zero = cuda_timed_event();
    queue->drop_graphs = NULL;
    queue->context = NULL;
    cuda_queue_restart_clock(queue);
}

void cuda_queue_release(CudaQueue *queue)
{
    CUDA_CHECK(cudaEventDestroy(queue->zero));
    CUDA_CHECK(cudaStreamDestroy(queue->stream));
}

void cuda_queue_restart_clock(CudaQueue *queue)
{
    CUDA_CHECK(cudaEventRecord(queue->zero, queue->stream));
    queue->zero_ms = clock_ms();
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

double cuda_event_ms(const CudaQueue *queue, cudaEvent_t event)
{
    float ms = 0;
    CUDA_CHECK(cudaEventSynchronize(event));
    CUDA_CHECK(cudaEventElapsedTime(&ms, queue->zero, event));
    return queue->zero_ms + (double)ms;
}
