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

struct CUstream_st {
    std::deque<Work> queue; /* the first may be running */
    bool is_blocking, is_busy;
    uint64_t priority;
    int device;
};

struct CUevent_st {
    std::shared_ptr<Record> record;
    bool has_time;
    int device;
};

/* Queue work. */
cudaError_t stream_push(ApiCall *call, cudaStream_t stream, Work work);

/* Run or wait for one piece of work of some stream, which may be one that runs apart; false if there is none.
 * Without may_wait it returns false also where there is nothing to do but wait. */
bool stream_progress(ApiCall *call, bool may_wait);

/* Run until the stream has nothing left. */
void stream_finish(ApiCall *call, cudaStream_t stream);

#endif
