/* What one rank of a job does in the tests of comm: `test_comm worker SCENARIO [ARGUMENT]`. It ends with an
 * error line if anything is not as it should be. */
#ifndef DEV_TEST_COMM_WORKER_H
#define DEV_TEST_COMM_WORKER_H

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dev/test/time_scale.h"
#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/base/work.h"
#include "llmc/comm/comm.h"
#include "llmc/model/dtype.h"
#include "llmc/run/stop.h"

enum { WORKER_PERIOD = 9 };

/* Element i of rank r: small whole numbers of period WORKER_PERIOD, whose sums are exact in every type. */
static inline int worker_whole(int rank, int64_t i)
{
    return (int)((i * 7 + rank * 5 + i * rank) % WORKER_PERIOD) - 4;
}

static inline int64_t worker_whole_sum(int64_t i)
{
    int64_t sum = 0;
    for (int rank = 0; rank < comm_rank_count(); rank++) {
        sum += worker_whole(rank, i);
    }
    return sum;
}

static inline void worker_store(void *values, int64_t i, CommType type, float value)
{
    if (type == COMM_INT64) {
        ((int64_t *)values)[i] = (int64_t)value;
    } else if (type == COMM_FLOAT) {
        ((float *)values)[i] = value;
    } else {
        ((bf16 *)values)[i] = bf16_from_float(value);
    }
}

static inline double worker_load(const void *values, int64_t i, CommType type)
{
    return type == COMM_INT64   ? (double)((const int64_t *)values)[i]
           : type == COMM_FLOAT ? (double)((const float *)values)[i]
                                : (double)bf16_to_float(((const bf16 *)values)[i]);
}

static inline void worker_sum(void *values, int64_t count, CommType type, int is_bucket)
{
    if (is_bucket) {
        comm_bucket_sum(values, count, type, "bucket 1");
    } else if (type == COMM_INT64) {
        comm_sum_int64(values, count);
    } else {
        comm_sum_float(values, count);
    }
}

/* Sums of whole numbers are exact. */
static inline void worker_check_whole(int64_t count, CommType type, int is_bucket)
{
    void *values = memory_alloc((size_t)count + 1, 8, "test");
    for (int64_t i = 0; i < count; i++) {
        worker_store(values, i, type, (float)worker_whole(comm_rank(), i));
    }
    worker_store(values, count, type, 3); /* one past the end */
    worker_sum(values, count, type, is_bucket);
    double sums[WORKER_PERIOD];
    for (int64_t i = 0; i < WORKER_PERIOD; i++) {
        sums[i] = (double)worker_whole_sum(i);
    }
    for (int64_t i = 0; i < count; i++) {
        double found = worker_load(values, i, type), expected = sums[i % WORKER_PERIOD];
        CHECK(found == expected, "type %d, element %lld of %lld: expected %g, found %g", (int)type,
              (long long)i, (long long)count, expected, found);
    }
    CHECK(worker_load(values, count, type) == 3, "type %d: wrote past %lld elements", (int)type,
          (long long)count);
    memory_free(values);
}

static inline float worker_normal(int rank, int64_t i)
{
    RandomKey key = {.seed = 5, .purpose = RANDOM_TEST, .slot = (uint32_t)rank};
    float value;
    random_normal(&value, 1, 1.0f, &key, (uint64_t)i);
    return value;
}

/* Rounded sums lie within N-1 roundings (and one of each bf16 addend) of the true one, and have the same bits
 * on every rank. */
static inline void worker_check_rounded(int64_t count, CommType type)
{
    double epsilon = type == COMM_FLOAT ? 0x1p-24 : 0x1p-8;
    int N = comm_rank_count();
    char *values = memory_alloc_zeroed((size_t)count, 4, "test");
    for (int64_t i = 0; i < count; i++) {
        worker_store(values, i, type, worker_normal(comm_rank(), i));
    }
    comm_bucket_sum(values, count, type, "rounded");
    for (int64_t i = 0; i < count; i++) {
        double expected = 0, size = 0;
        for (int rank = 0; rank < N; rank++) {
            expected += worker_normal(rank, i);
            size += fabs(worker_normal(rank, i));
        }
        double found = worker_load(values, i, type);
        CHECK(fabs(found - expected) <= N * size * epsilon,
              "type %d, element %lld: expected %.9g, found %.9g", (int)type, (long long)i, expected, found);
    }
    uint64_t *hashes = memory_alloc((size_t)N, sizeof(*hashes), "test");
    comm_gather_uint64(hash_bytes(values, (size_t)count * (type == COMM_FLOAT ? 4 : 2), 0), hashes);
    for (int rank = 0; rank < N; rank++) {
        CHECK(hashes[rank] == hashes[0], "type %d: bits differ between ranks 0 and %d", (int)type, rank);
    }
    memory_free(hashes);
    memory_free(values);
}

/* The second channel at work on a thread of its own. */
static inline void *worker_buckets(void *unused)
{
    (void)unused;
    for (int round = 0; round < 40; round++) {
        worker_check_whole(round % 4 == 0 ? 100003 : round * 17, COMM_INT64, 1);
        worker_check_whole(round * 31, COMM_BF16, 1);
    }
    return NULL;
}

static inline void worker_two_channels(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, worker_buckets, NULL) == 0, "cannot start a thread");
    for (int round = 0; round < 40; round++) {
        worker_check_whole(round * 29, COMM_INT64, 0);
        worker_check_whole(round % 4 == 1 ? 100003 : 3, COMM_FLOAT, 0);
        comm_barrier();
    }
    pthread_join(thread, NULL);
}

static inline void worker_others(void)
{
    int N = comm_rank_count();
    for (int root = 0; root < N; root++) {
        enum { BYTES = 1500001 };
        unsigned char *data = memory_alloc(BYTES, 1, "test");
        for (int64_t i = 0; i < BYTES; i++) {
            data[i] = comm_rank() == root ? (unsigned char)(i * 3 + root) : 0xee;
        }
        comm_broadcast(data, BYTES, root);
        for (int64_t i = 0; i < BYTES; i++) {
            CHECK(data[i] == (unsigned char)(i * 3 + root), "broadcast from %d: byte %lld is %d", root,
                  (long long)i, data[i]);
        }
        memory_free(data);
    }
    uint64_t *all = memory_alloc((size_t)N, sizeof(*all), "test");
    comm_gather_uint64(UINT64_C(0xfedcba9876543210) * (uint64_t)(comm_rank() + 1), all);
    for (int rank = 0; rank < N; rank++) {
        CHECK(all[rank] == UINT64_C(0xfedcba9876543210) * (uint64_t)(rank + 1),
              "gathered the wrong number of %d", rank);
    }
    memory_free(all);
    int64_t extremes[2] = {comm_rank() - 5, -(int64_t)comm_rank()};
    comm_max_int64(extremes, 2);
    CHECK(extremes[0] == N - 6 && extremes[1] == 0, "maximum: found %lld and %lld", (long long)extremes[0],
          (long long)extremes[1]);
    CHECK(comm_local_rank() == comm_rank(), "local rank: expected %d, found %d", comm_rank(),
          comm_local_rank());
    int64_t edges[2] = {INT64_MAX, INT64_MIN + comm_rank()}; /* sums wrap around alike everywhere */
    comm_sum_int64(edges, 2);
    CHECK((uint64_t)edges[0] == (uint64_t)N * (uint64_t)INT64_MAX, "sum: does not wrap");
}

/* Everything that can be summed, up to `argument` elements, then an orderly end. */
static inline int worker_sums(const char *argument)
{
    CHECK(strcmp(comm_transport_name(), "MPI") != 0 || getenv("OMPI_MCA_mpi_yield_when_idle"),
          "MPI waits without yielding its core");
    const int64_t counts[] = {0, 1, 7, atoll(argument)};
    for (int i = 0; i < 4; i++) {
        for (CommType type = COMM_INT64; type <= COMM_BF16; type++) {
            worker_check_whole(counts[i], type, 1);
            if (type != COMM_BF16) {
                worker_check_whole(counts[i], type, 0);
            }
        }
    }
    worker_check_rounded(20011, COMM_FLOAT);
    worker_check_rounded(20011, COMM_BF16);
    worker_two_channels();
    worker_others();
    return EXIT_DONE;
}

/* One line by one write, so that those of several ranks do not mix: "ready RANK PID". */
static inline void worker_say_ready(void)
{
    char line[64];
    int bytes = snprintf(line, sizeof(line), "ready %d %d\n", comm_rank(), (int)getpid());
    CHECK(write(STDOUT_FILENO, line, (size_t)bytes) == bytes, "cannot write");
}

/* Collectives on both channels without end, until somebody is lost. */
static inline void *worker_endless_buckets(void *unused)
{
    (void)unused;
    for (;;) {
        worker_check_whole(10007, COMM_INT64, 1);
    }
    return NULL;
}

static inline int worker_endless(const char *argument)
{
    (void)argument;
    comm_barrier();
    worker_say_ready();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, worker_endless_buckets, NULL) == 0, "cannot start a thread");
    for (;;) {
        worker_check_whole(101, COMM_INT64, 0);
    }
    return EXIT_DONE;
}

/* All but rank `argument` wait in a collective; that one never comes, though its process is well. */
static inline int worker_absent(const char *argument)
{
    comm_barrier();
    worker_say_ready();
    while (comm_rank() == atoi(argument)) {
        pause();
    }
    comm_bucket_sum(&(int64_t){1}, 1, COMM_INT64, "bucket 7");
    return EXIT_DONE;
}

/* All but rank `argument` wait in a collective, for three times comm_timeout, while that one works. */
static inline int worker_slow(const char *argument)
{
    comm_barrier();
    double limit_ms = atof(getenv("COMM_TIMEOUT")) * 1e3;
    for (double end_ms = clock_ms() + 3 * limit_ms; comm_rank() == atoi(argument) && clock_ms() < end_ms;) {
        work_add();
        usleep((useconds_t)(limit_ms * 1e3 / 8));
    }
    int64_t one = 1;
    comm_bucket_sum(&one, 1, COMM_INT64, "bucket 7");
    CHECK(one == comm_rank_count(), "sum: expected %d, found %d", comm_rank_count(), (int)one);
    return EXIT_DONE;
}

/* Rank `argument` posts a notice; all wait for it, in no collective. */
static inline int worker_notice(const char *argument)
{
    comm_barrier();
    CHECK(comm_notice() == 0, "notice: expected none, found %d", comm_notice());
    comm_barrier();
    if (comm_rank() == atoi(argument)) {
        comm_post_notice(7);
        comm_post_notice(3);
    }
    for (double end_ms = clock_ms() + 60e3 * time_scale(); comm_notice() != 7;) {
        CHECK(clock_ms() < end_ms, "notice: expected 7, found %d", comm_notice());
        usleep(1000);
    }
    return EXIT_DONE;
}

/* Rank `argument` fails with an error of its own while the others wait for it. */
static inline int worker_failing(const char *argument)
{
    comm_barrier();
    if (comm_rank() == atoi(argument)) {
        error_exit(EXIT_FAILED, "file.bin: broken on rank %d", comm_rank());
    }
    comm_barrier();
    return EXIT_DONE;
}

/* Every rank asks to be run again, one after another. */
static inline int worker_again(const char *argument)
{
    (void)argument;
    comm_barrier();
    return EXIT_RUN_AGAIN;
}

typedef struct WorkerScenario {
    const char *name;
    int (*run)(const char *argument);
} WorkerScenario;

static const WorkerScenario worker_scenarios[] = {
    {"sums", worker_sums}, {"endless", worker_endless}, {"absent", worker_absent}, {"notice", worker_notice},
    {"slow", worker_slow}, {"failing", worker_failing}, {"again", worker_again}};

static inline int worker_main(int argc, char **argv)
{
    Error error = {.text = ""};
    error_set_program("worker");
    if (getenv("JOIN_TIMEOUT")) {
        comm_set_join_timeout(atof(getenv("JOIN_TIMEOUT")));
    }
    if (getenv("PORT_FIRST")) {
        comm_set_port_range(atoi(getenv("PORT_FIRST")), atoi(getenv("PORT_LAST")));
    }
    if (getenv("COMM_TIMEOUT")) {
        comm_set_timeout(atof(getenv("COMM_TIMEOUT")));
        comm_set_join_timeout(atof(getenv("COMM_TIMEOUT")));
    }
    stop_install(); /* as in a run: the SIGTERM that mpirun sends when a rank is lost does not end it */
    if (comm_init(&argc, &argv, &error) != 0) {
        error_exit(error_exit_code(&error), "%s", error.text);
    }
    stop_in_order();
    for (size_t i = 0; i < sizeof(worker_scenarios) / sizeof(worker_scenarios[0]); i++) {
        if (argc > 2 && strcmp(argv[2], worker_scenarios[i].name) == 0) {
            int exit_code = worker_scenarios[i].run(argc > 3 ? argv[3] : "");
            comm_finish();
            return exit_code;
        }
    }
    error_exit(EXIT_FAILED, "expected a scenario, found %s", argc > 2 ? argv[2] : "none");
}

#endif
