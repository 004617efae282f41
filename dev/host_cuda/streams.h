/* The inside of streams: what waits in their queues. All of it is touched with the API's lock held. */
#ifndef HOST_CUDA_STREAMS_H
#define HOST_CUDA_STREAMS_H

#include <chrono>
#include <deque>

#include "runtime.h"

/* Of an event: what a cudaEventRecord waits to happen. */
struct Record {
    bool is_done;
    std::chrono::steady_clock::time_point time;
};

enum WorkPlace {
    WORK_LOCKED,   /* by whoever waits, with the lock held */
    WORK_UNLOCKED, /* likewise, without it: it may call the API or take long */
    WORK_APART     /* by a thread of its own, so that it may block its stream and nobody else */
};

struct Work {
    std::function<void()> run = {};
    /* Called when the work enters a queue, each time anew: completes what only then is known. */
    std::function<void(Work *)> bind = {};
    std::vector<std::shared_ptr<Record>> waits_for = {};
    std::shared_ptr<Record> records = {};
    WorkPlace place = WORK_LOCKED;
    bool fails = false;
    uint64_t number = 0; /* in the order of calls */

    Work() = default;
    Work(std::function<void()> run_it, WorkPlace where = WORK_LOCKED) : run(std::move(run_it)), place(where)
    {
    }
};

struct Capture;

struct CUstream_st {
    std::deque<Work> queue; /* the first may be running */
    bool is_blocking, is_busy;
    uint64_t priority; /* drawn */
    int device;
    int level = 0;                         /* the priority that the program gave it */
    std::shared_ptr<Capture> capture = {}; /* NULL where what it is given runs */
    std::vector<int> heads = {};           /* the captured nodes that its next work comes after */
};

struct CUevent_st {
    std::shared_ptr<Record> record;
    bool has_time;
    int device;
    std::shared_ptr<Capture> capture = {}; /* in which it was recorded last, or NULL */
    std::vector<int> heads = {};
};

/* ---- streams.cpp -------------------------------------------------------------------------------------- */

/* Queue work, or capture it. */
cudaError_t stream_push(ApiCall *call, cudaStream_t stream, Work work);

/* Run or wait for one piece of work of some stream, which may be one that runs apart; false if there is none.
 * Without may_wait it returns false also where there is nothing to do but wait. */
bool stream_progress(ApiCall *call, bool may_wait);

/* Run until the stream has nothing left. */
void stream_finish(ApiCall *call, cudaStream_t stream);

/* The parts of stream_push: queue work and run nothing; then run until not too much is queued. */
void stream_queue(cudaStream_t stream, Work work);
cudaError_t stream_limit(ApiCall *call);

/* A queue that no program knows. */
cudaStream_t stream_add_hidden(void);
void stream_remove(cudaStream_t stream);

/* cudaSuccess or cudaErrorNotReady. Time passes while a program asks, so that asking in a loop ends. */
cudaError_t stream_ask(ApiCall *call, const std::function<bool()> &is_done);

/* ---- events.cpp --------------------------------------------------------------------------------------- */

/* From now on the event stands for this. An event that was destroyed ends the program. */
void event_record(cudaEvent_t event, const std::shared_ptr<Record> &record, const char *function);

/* ---- graphs.cpp --------------------------------------------------------------------------------------- */

enum CaptureUse {
    CAPTURE_USE_UNSAFE, /* a call that the mode of a capture may forbid */
    CAPTURE_USE_DEVICE, /* a call on all streams, the captured too */
    CAPTURE_USE_NULL_STREAM
};

/* The error of a call that a capture which goes on forbids; the capture is then invalid. The second and third
 * are for calls that ask for or wait for a stream or an event. */
cudaError_t capture_forbids(CaptureUse use);
cudaError_t capture_forbids_stream(cudaStream_t stream);
cudaError_t capture_forbids_event(cudaEvent_t event);

/* Capture work of a stream that is captured. The event, if any, is recorded when the graph runs. */
cudaError_t capture_add(cudaStream_t stream, Work work, cudaEvent_t records);

/* cudaEventRecord on a captured stream; cudaStreamWaitEvent where the stream or the event is captured. */
cudaError_t capture_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event);

#endif
