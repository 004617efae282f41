/* Tests of several processes, which are ranks of one NCCL communicator. */
#ifndef HOST_CUDA_TEST_RANKS_H
#define HOST_CUDA_TEST_RANKS_H

#include <atomic>
#include <nccl.h>
#include <sys/mman.h>

#include "test.h"

enum { RANKS_MAX = 4 };

#define NCCL_EXPECT(call)                                                                                    \
    do {                                                                                                     \
        ncclResult_t result_ = (call);                                                                       \
        EXPECT(result_ == ncclSuccess, "%s", ncclGetErrorString(result_));                                   \
    } while (0)

/* What the processes of one test share. */
struct Shared {
    ncclUniqueId id;
    std::atomic<int> is_invited, arrived, steps;
};

struct Rank {
    int rank, rank_count;
    Shared *shared;
    ncclComm_t comm;
    cudaStream_t compute, communication;
};

static inline void join(Rank *self)
{
    if (self->rank == 0) {
        NCCL_EXPECT(ncclGetUniqueId(&self->shared->id));
        self->shared->is_invited = 1;
    }
    while (!self->shared->is_invited) {
        usleep(1000);
    }
    NCCL_EXPECT(ncclCommInitRank(&self->comm, self->rank_count, self->shared->id, self->rank));
    self->compute = new_stream();
    self->communication = new_stream();
}

typedef void RankMain(Rank *self);

static inline void run_rank(Rank self, RankMain *run, int seed)
{
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    setenv("HOST_CUDA_SEED", text, 1);
    alarm(60 * time_scale());
    join(&self);
    run(&self);
    _exit(0);
}

/* Run in so many processes. The exit code of each; only the last rank's complaints are seen. */
static inline void run_ranks(int codes[RANKS_MAX], int rank_count, RankMain *run, int seed)
{
    pid_t children[RANKS_MAX];
    Shared *shared =
        (Shared *)mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int rank = 0; rank < rank_count; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            if (rank < rank_count - 1) {
                EXPECT(freopen("/dev/null", "w", stderr), "/dev/null");
            }
            run_rank(Rank{rank, rank_count, shared, NULL, NULL, NULL}, run, seed);
        }
    }
    for (int rank = rank_count - 1; rank >= 0; rank--) {
        int status = 0;
        waitpid(children[rank], &status, 0);
        codes[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    munmap(shared, sizeof(Shared));
}

template <RankMain *run, int rank_count>
static void in_ranks(void)
{
    int codes[RANKS_MAX];
    run_ranks(codes, rank_count, run, 1);
    for (int rank = 0; rank < rank_count; rank++) {
        EXPECT(codes[rank] == 0, "rank %d of %d: exit code %d", rank, rank_count, codes[rank]);
    }
}

#endif
