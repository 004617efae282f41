/* A stream of a GPU and its clock: events measure only against each other, so one at the start of each step
 * is read together with clock_ms(), and every other is told as clock_ms() would have it.
 */
#ifndef LLMC_BASE_CUDA_CUDA_QUEUE_CUH
#define LLMC_BASE_CUDA_CUDA_QUEUE_CUH

#include <cuda_runtime.h>

/* Owned by whoever holds it: cuda_queue_init, cuda_queue_release. */
typedef struct CudaQueue {
    cudaStream_t stream;
    cudaEvent_t zero;
    double zero_ms;

    /* Drops graphs that were captured from the stream; NULL: there are none. Whoever has put work of another
     * library into them calls it before that library ends: NCCL waits for ever for its graphs to go. */
    void (*drop_graphs)(void *context);
    void *context;
} CudaQueue;

void cuda_queue_init(CudaQueue *queue);
void cuda_queue_release(CudaQueue *queue);

/* Now is zero. To be called when the stream is idle: then its event happens at once. */
void cuda_queue_restart_clock(CudaQueue *queue);

/* An event that tells the time. */
cudaEvent_t cuda_timed_event(void);

/* Into any stream, also one that is being captured: then it is recorded each time the graph runs. */
void cuda_record_time(cudaEvent_t event, cudaStream_t stream);

/* When the event happened, to some microseconds in the first minutes after zero. Waits for it. */
double cuda_event_ms(const CudaQueue *queue, cudaEvent_t event);

#endif
