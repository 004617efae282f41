/* Kernels: blocks run on OS threads, a block's threads as fibers of one OS thread, in an order that the seed
 * shuffles anew at each meeting point. A fiber runs until it must wait; the last of a warp or block to arrive
 * makes the others ready and goes on. */
#include <omp.h>
#include <sys/mman.h>

#include "runtime.h"

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;
__thread unsigned int host_cuda_thread;
__thread Block *block_now;
static __thread Block *block_of_os_thread;

static void fiber_main(void);

uint64_t random_next(uint64_t *state) /* splitmix64, Steele, Lea and Flood, OOPSLA 2014 */
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* ---- the order of threads ----------------------------------------------------------------------------- */

static void set_current(Block *block, int number)
{
    dim3 size = block->launch->block;
    block->current = number;
    host_cuda_thread = (unsigned int)number;
    threadIdx = uint3{number % size.x, number / size.x % size.y, number / (size.x * size.y)};
}

/* Let the last `count` of ready[] run in a random order. */
static void shuffle_ready(Block *block, int count)
{
    int *ready = block->ready + block->ready_count - count;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)((random_next(&block->random) >> 32) * (uint64_t)(i + 1) >> 32);
        int swapped = ready[i];
        ready[i] = ready[j];
        ready[j] = swapped;
    }
}

static Fiber *take_fiber(Block *block)
{
    if (!block->free_fibers.empty()) {
        Fiber *fiber = block->free_fibers.back();
        block->free_fibers.pop_back();
        return fiber;
    }
    const size_t guard = 4096, bytes = 128 * 1024;
    void *stack = mmap(NULL, guard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, guard, PROT_NONE)) {
        check_failed(NULL, "no memory for the threads' stacks");
    }
    Fiber *fiber = new Fiber{NULL, (unsigned char *)stack + guard, bytes};
    fiber_prepare(fiber, fiber_main);
    return fiber;
}

/* Nobody can go on: some wait for threads that ended or wait elsewhere. */
[[noreturn]] static void stuck(Block *block)
{
    int first = 0, others = 0;
    while (block->threads[first].is_done) {
        first++;
    }
    const Thread *thread = &block->threads[first];
    for (int i = 0; i < block->thread_count; i++) {
        others += !block->threads[i].is_done && block->threads[i].waits_at != thread->waits_at;
    }
    set_current(block, first);
    check_failed(thread->waits_where,
                 "waits in %s, which not all threads reach: of the block's %d, %d ended, %d wait elsewhere",
                 thread->waits_at, block->thread_count, block->done_count, others);
}

/* Stop the running thread, which others will make ready, and let another go on. */
static void wait_for_others(Block *block, const char *waits_at, const void *waits_where)
{
    Thread *self = &block->threads[block->current];
    self->waits_at = waits_at;
    self->waits_where = waits_where;
    if (block->ready_count == 0) {
        stuck(block);
    }
    int next = block->ready[--block->ready_count];
    Thread *thread = &block->threads[next];
    if (!thread->fiber) {
        thread->fiber = take_fiber(block);
    }
    set_current(block, next);
    fiber_switch(self->fiber, thread->fiber);
}

/* A fiber runs whole threads, one after the other, until it meets one that another fiber has begun. */
static void fiber_main(void)
{
    for (;;) {
        Block *block = block_now;
        Thread *thread = &block->threads[block->current];
        Fiber *self = thread->fiber;
        block->launch->call.run(block->launch->call.arguments);
        thread->is_done = true;
        block->done_count++;
        if (block->ready_count == 0) {
            if (block->done_count < block->thread_count) {
                stuck(block);
            }
            block->free_fibers.push_back(self);
            fiber_switch(self, &block->main);
            continue;
        }
        int next = block->ready[--block->ready_count];
        set_current(block, next);
        if (!block->threads[next].fiber) {
            block->threads[next].fiber = self;
            continue;
        }
        block->free_fibers.push_back(self);
        fiber_switch(self, block->threads[next].fiber);
    }
}

static void run_block(Block *block, const KernelLaunch *launch, uint64_t number)
{
    dim3 grid = launch->grid;
    block->launch = launch;
    block->thread_count = (int)(launch->block.x * launch->block.y * launch->block.z);
    block->done_count = block->barrier_count = block->barrier_votes = 0;
    block->random = launch->seed + number;
    blockIdx = uint3{(unsigned int)(number % grid.x), (unsigned int)(number / grid.x % grid.y),
                     (unsigned int)(number / grid.x / grid.y)};
    blockDim = launch->block;
    gridDim = grid;
    for (int i = 0; i < block->thread_count; i++) {
        Thread *thread = &block->threads[i];
        thread->fiber = NULL;
        thread->is_done = false;
        thread->groups = 0;
        thread->copies.clear();
        block->ready[i] = i;
    }
    for (int i = 0; i * 32 < block->thread_count; i++) {
        int lanes = block->thread_count - i * 32;
        block->warps[i].existing = lanes < 32 ? (1u << lanes) - 1 : 0xFFFFFFFFu;
        block->warps[i].arrived = 0;
    }
    memset(block->shared, 0xFF,
           launch->shared_bytes); /* not a number, so that nothing good is read unwritten */
    check_block_begin(block);
    block->ready_count = block->thread_count;
    shuffle_ready(block, block->thread_count);
    int first = block->ready[--block->ready_count];
    block->threads[first].fiber = take_fiber(block);
    set_current(block, first);
    block_now = block;
    fiber_switch(&block->main, block->threads[first].fiber);
    block_now = NULL;
}

static Block *make_block(void)
{
    Block *block = new Block();
    void *shared =
        mmap(NULL, HOST_CUDA_SHARED_BYTES_MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        check_failed(NULL, "no memory for shared memory");
    }
    block->shared = (unsigned char *)shared;
    return block;
}

void launch_run(const KernelLaunch &launch)
{
    uint64_t count = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    uint64_t random = launch.seed;
    uint64_t first = random_next(&random) % count;
#pragma omp parallel for schedule(dynamic) if (count > 1)
    for (uint64_t i = 0; i < count; i++) {
        if (!block_of_os_thread) {
            block_of_os_thread = make_block();
        }
        run_block(block_of_os_thread, &launch, (first + i) % count);
    }
}

/* ---- meeting points ----------------------------------------------------------------------------------- */

int host_cuda_barrier(bool predicate)
{
    Block *block = block_now;
    block->barrier_votes += predicate;
    if (++block->barrier_count < block->thread_count) {
        wait_for_others(block, "__syncthreads", __builtin_return_address(0));
        return block->barrier_result;
    }
    block->barrier_result = block->barrier_votes;
    block->barrier_count = block->barrier_votes = 0;
    check_barrier_passed(block);
    for (int i = 0; i < block->thread_count; i++) {
        if (i != block->current) {
            block->ready[block->ready_count++] = i;
        }
    }
    shuffle_ready(block, block->thread_count - 1);
    return block->barrier_result;
}

void host_cuda_warp(unsigned int mask, void *brought, HostWarpFinish *finish, const char *what,
                    const void *where)
{
    Block *block = block_now;
    Warp *warp = &block->warps[block->current / 32];
    int lane = block->current % 32;
    if (!(mask >> lane & 1) || (mask & ~warp->existing)) {
        check_failed(where, "%s: mask %08x %s", what, mask,
                     mask >> lane & 1 ? "names lanes that do not exist" : "leaves out the calling lane");
    }
    warp->arrived |= 1u << lane;
    warp->masks[lane] = mask;
    warp->brought[lane] = brought;
    warp->finish[lane] = finish;
    for (unsigned int rest = warp->arrived & mask; rest; rest &= rest - 1) {
        int other = __builtin_ctz(rest);
        if (warp->masks[other] != mask || warp->finish[other] != finish) {
            check_failed(where, "%s with mask %08x meets lane %d in another operation or mask", what, mask,
                         other);
        }
    }
    if ((warp->arrived & mask) != mask) {
        wait_for_others(block, what, where);
        return;
    }
    warp->arrived &= ~mask;
    finish(warp->brought, mask);
    int count = 0;
    for (unsigned int rest = mask & ~(1u << lane); rest; rest &= rest - 1) {
        block->ready[block->ready_count++] = block->current - lane + __builtin_ctz(rest);
        count++;
    }
    shuffle_ready(block, count);
}

static void finish_sync(void *const *, unsigned int mask)
{
    check_warp_synced(block_now, &block_now->warps[block_now->current / 32], mask);
}

void host_cuda_warp_sync(unsigned int mask)
{
    host_cuda_warp(mask, NULL, finish_sync, "__syncwarp", __builtin_return_address(0));
}

struct Vote {
    bool predicate;
    unsigned int result;
};

static void finish_ballot(void *const *brought, unsigned int mask)
{
    unsigned int result = 0;
    for (unsigned int rest = mask; rest; rest &= rest - 1) {
        result |= (unsigned int)((Vote *)brought[__builtin_ctz(rest)])->predicate << __builtin_ctz(rest);
    }
    for (unsigned int rest = mask; rest; rest &= rest - 1) {
        ((Vote *)brought[__builtin_ctz(rest)])->result = result;
    }
}

unsigned int host_cuda_ballot(unsigned int mask, bool predicate)
{
    Vote vote = {predicate, 0};
    host_cuda_warp(mask, &vote, finish_ballot, "a warp vote", __builtin_return_address(0));
    return vote.result;
}

struct Shuffle {
    unsigned char before[8], after[8];
    unsigned int source;
};

static void finish_shuffle(void *const *brought, unsigned int mask)
{
    for (unsigned int rest = mask; rest; rest &= rest - 1) {
        Shuffle *shuffle = (Shuffle *)brought[__builtin_ctz(rest)];
        if (!(mask >> shuffle->source & 1)) {
            check_failed(NULL, "a shuffle reads lane %u, which its mask %08x leaves out", shuffle->source,
                         mask);
        }
        memcpy(shuffle->after, ((Shuffle *)brought[shuffle->source])->before, sizeof shuffle->after);
    }
}

void host_cuda_shuffle(unsigned int mask, void *value, size_t bytes, unsigned int source)
{
    Shuffle shuffle = {{}, {}, source};
    memcpy(shuffle.before, value, bytes);
    host_cuda_warp(mask, &shuffle, finish_shuffle, "a shuffle", __builtin_return_address(0));
    memcpy(value, shuffle.after, bytes);
}
