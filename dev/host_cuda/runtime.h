/* The inside of host_cuda: what its sources share. README.md has the whole picture. */
#ifndef HOST_CUDA_INSIDE_H
#define HOST_CUDA_INSIDE_H

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_runtime.h"

enum {
    HOST_CUDA_THREADS_MAX = 1024,
    HOST_CUDA_SHARED_BYTES_MAX = 227 * 1024,
    HOST_CUDA_SHARED_BYTES_MAPPED = 1 << 20 /* what lies beyond a block's part is there to be found out */
};

/* ---- fibers (switch/) --------------------------------------------------------------------------------- */

struct Fiber {
    void *context; /* where it stands; owned by switch/ */
    unsigned char *stack;
    size_t stack_bytes;
};

/* Make *fiber, whose stack is set, start at entry() when first switched to. entry() never returns. */
void fiber_prepare(Fiber *fiber, void (*entry)(void));
void fiber_switch(Fiber *from, Fiber *to);

/* ---- kernels (fibers.cpp) ----------------------------------------------------------------------------- */

/* Wait for the lanes named by mask. The last to come calls finish() with what each of them brought, indexed
 * by lane. All must bring the same mask and finish. `what` is the operation's name in messages. */
typedef void HostWarpFinish(void *const *brought, unsigned int mask);
void host_cuda_warp(unsigned int mask, void *brought, HostWarpFinish *finish, const char *what,
                    const void *where);

struct KernelLaunch {
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    HostCall call;
    uint64_t seed;
};

/* Run all blocks to their end. */
void launch_run(const KernelLaunch &launch);

struct Copy {
    void *to;
    const void *from; /* NULL: 16 zeros */
    int group;
};

struct Thread {
    Fiber *fiber;         /* NULL: not started */
    const char *waits_at; /* the operation's name */
    const void *waits_where;
    bool is_done;
    int groups;               /* of asynchronous copies, committed */
    std::vector<Copy> copies; /* not yet waited for, oldest first */
};

struct Warp {
    unsigned int existing, arrived;
    unsigned int masks[32];
    void *brought[32];
    HostWarpFinish *finish[32];
    uint32_t clocks[32][32]; /* [i][j]: what lane i knows of lane j's clock */
};

/* What an OS thread needs to run a block. */
struct Block {
    const KernelLaunch *launch;
    int thread_count, current, ready_count, done_count, barrier_count, barrier_votes, barrier_result;
    uint64_t random;
    uint32_t epoch,
        first_epoch; /* barriers passed since the OS thread began; the same when the block began */
    unsigned char *shared;
    Fiber main;
    std::vector<Fiber *> free_fibers;
    Thread threads[HOST_CUDA_THREADS_MAX];
    int ready[HOST_CUDA_THREADS_MAX]; /* the last runs next */
    Warp warps[HOST_CUDA_THREADS_MAX / 32];
};

/* The block that this OS thread runs; NULL in host code. */
extern __thread Block *block_now;

/* ---- checks (check.cpp) ------------------------------------------------------------------------------- */

enum Access {
    ACCESS_READ,
    ACCESS_READ_SHARED, /* that must be shared memory */
    ACCESS_WRITE,
    ACCESS_ATOMIC,
    ACCESS_COPY_BEGIN, /* the target of an asynchronous copy */
    ACCESS_COPY_END
};

/* An access of the running thread; `where` is an address in the kernel's code. */
void check_access(const void *address, size_t bytes, Access access, const void *where);

/* Print one line that names the kernel and the running thread, and end the program. */
[[noreturn]] void check_failed(const void *where, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Where `code` lies in the program's file, as nm has it. */
uintptr_t code_offset(const void *code);

/* A block begins; lanes of mask know all that each of them did; so do all threads of the block. */
void check_block_begin(Block *block);
void check_warp_synced(Block *block, Warp *warp, unsigned int mask);
void check_barrier_passed(Block *block);

/* ---- memory and streams (memory.cpp, streams.cpp) ----------------------------------------------------- */

enum Memory { MEMORY_NONE, MEMORY_DEVICE, MEMORY_PINNED };

struct Allocation {
    uintptr_t begin, end;
    Memory kind;
};

/* The live allocation that holds all of these bytes, or one with kind MEMORY_NONE. Valid until the next call
 * of cudaMalloc and the like. */
const Allocation *memory_find(const void *memory, size_t bytes);

/* Whether host code meets device memory here; false also while another thread is inside the API. */
bool memory_is_device(const void *memory);

extern std::mutex api_mutex;

/* One call of the API: holds the lock, and knows the error that makes every call fail. */
struct ApiCall {
    std::unique_lock<std::mutex> lock;
    cudaError_t error; /* no device, old driver, or a fault that came before */
    ApiCall();
    cudaError_t end(cudaError_t result); /* remember it for cudaGetLastError and return it */
    void drain(void);                    /* run all that is queued */
};

/* The error that makes every call fail from now on, if any. */
cudaError_t device_error(void);

/* Queue work, which runs with the lock held; libraries do this too. */
cudaError_t stream_enqueue(cudaStream_t stream, std::function<void()> work);

uint64_t random_next(uint64_t *state);
/* An environment variable that is a number. */
long long setting(const char *name, long long otherwise);

/* 90 for sm_90. */
int device_capability(void);

/* The one that this thread has set. */
int device_current(void);

/* Whether the stream belongs to it: as on a GPU, no other takes kernels. */
bool stream_is_here(cudaStream_t stream);

#endif
