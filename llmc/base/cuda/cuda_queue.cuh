/* A stream of a GPU and its clock: events measure only against each other, so one at the start of each step
 * is read together with clock_ms(), and every other is told as clock_ms() would have it. Steps take turns
 * with two of them: while the host reads the times of one, the GPU is in the next.
 */
#ifndef LLMC_BASE_CUDA_CUDA_QUEUE_CUH
#define LLMC_BASE_CUDA_CUDA_QUEUE_CUH

#include <cuda_runtime.h>

/* Owned by whoever holds it: cuda_queue_init, cuda_queue_release. */
typedef struct CudaQueue {
    cudaStream_t stream;
    cudaEvent_t zeros[2];
    double zeros_ms[2];
    int turn; /* of the present step */

    /* Drops graphs that were captured from the stream; NULL: there are none. Whoever has put work of another
     * library into them calls it before that library ends: NCCL waits for ever for its graphs to go. */
    void (*drop_graphs)(void *context);
    void *context;
} CudaQueue;

void cuda_queue_init(CudaQueue *queue);
void cuda_queue_release(CudaQueue *queue);

/* Now a step begins, 0 or 1 in turn. If the stream is idle, its event happens at once; else all its times are
 * late by as much, and only their differences are right. */
void cuda_queue_begin_step(CudaQueue *queue, int turn);

/* An event that tells the time. */
cudaEvent_t cuda_timed_event(void);

/* Into any stream, also one that is being captured: then it is recorded each time the graph runs. */
void cuda_record_time(cudaEvent_t event, cudaStream_t stream);

/* When an event of a step happened, to some microseconds in the first minutes of the step. Waits for it. */
double cuda_event_ms(const CudaQueue *queue, cudaEvent_t event, int turn);

#endif
