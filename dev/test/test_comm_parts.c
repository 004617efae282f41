/* Parts of comm that need no second process: whom the watch thinks lost, and rings between threads. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/socket.h>

#include "dev/test/comm_worker.h"
#include "llmc/comm/net.h"
#include "llmc/comm/ring.h"
#include "llmc/comm/watch.h"

/* ---- the watch ---- */

enum { WATCHED = 4, TIMEOUT_MS = 10000, INTERVAL_MS = 500 };

/* What the ranks have got done so far. */
static uint64_t works[WATCHED];

static void beat(Watch *watch, int rank, uint64_t entered, int is_inside, double inside_ms, double now_ms)
{
    Beat one = {.work_count = works[rank], .unanswered_rank = -1};
    Progress *progress = &one.progress[CHANNEL_BUCKET];
    *progress = (Progress){.entered_count = entered, .is_inside = is_inside, .inside_ms = inside_ms};
    snprintf(progress->what, PROGRESS_WHAT_BYTES, "bucket %d of 9 elements", (int)entered);
    watch_beat(watch, rank, &one, now_ms);
}

static void watch_start(Watch *watch, int rank)
{
    static char hosts[WATCHED][HOST_BYTES] = {"a", "b", "c", "d"};
    memset(works, 0, sizeof(works));
    watch_init(watch, rank, WATCHED, hosts, 0);
    watch_set_interval(watch, INTERVAL_MS);
}

static double heartbeat_ms = TIMEOUT_MS;

static void assert_judged(const Watch *watch, double now_ms, const char *expected)
{
    char text[WATCH_TEXT_BYTES] = "nobody";
    WatchLimits limits = {.collective_ms = TIMEOUT_MS, .heartbeat_ms = heartbeat_ms};
    int is_lost = watch_judge(watch, text, &limits, now_ms);
    if (!is_lost != !expected || (expected && !strstr(text, expected))) {
        fail_msg("at %g ms: expected %s, found %s", now_ms, expected ? expected : "nobody", text);
    }
}

static void test_silence_is_seen(void **state)
{
    (void)state;
    Watch watch;
    watch_start(&watch, 0);
    assert_judged(&watch, TIMEOUT_MS, NULL);
    for (int rank = 0; rank < WATCHED; rank++) {
        beat(&watch, rank, 0, 0, 0, rank == 2 ? 1000 : 9000);
    }
    assert_judged(&watch, 11000, NULL);
    assert_judged(&watch, 11001, "rank 2 (c) is lost: silent for 10.0 s");
    watch_excuse(&watch, 5000); /* this process was stopped itself */
    assert_judged(&watch, 11001, NULL);
    assert_judged(&watch, 16001, "rank 2 (c)");
    watch_leave(&watch, 2);
    assert_judged(&watch, 16001, NULL);
    watch_release(&watch);

    watch_start(&watch, 3); /* knows only of rank 0 */
    assert_judged(&watch, TIMEOUT_MS + 1, "rank 0 (a) is lost: silent");
    beat(&watch, 0, 0, 0, 0, 9000);
    assert_judged(&watch, TIMEOUT_MS + 1, NULL);
    heartbeat_ms = 1500; /* a limit of its own; where comm_timeout is shorter, that one */
    assert_judged(&watch, 10500, NULL);
    assert_judged(&watch, 10501, "silent for 1.5 s, longer than heartbeat_timeout, 1.5 s");
    heartbeat_ms = 2 * TIMEOUT_MS;
    assert_judged(&watch, 19000, NULL);
    assert_judged(&watch, 19001, "longer than comm_timeout, 10 s");
    heartbeat_ms = TIMEOUT_MS;
    watch_release(&watch);
}

/* Who works is slow: the others wait for it, for as long as it works and comm_timeout after. */
static void test_who_works_is_waited_for(void **state)
{
    (void)state;
    Watch watch;
    watch_start(&watch, 0);
    for (double now_ms = 0; now_ms <= 50000; now_ms += 500) {
        works[2] += now_ms <= 30000 && (int)now_ms % 9000 == 0; /* 27000 is the last */
        for (int rank = 0; rank < WATCHED; rank++) {
            beat(&watch, rank, rank == 2 ? 4 : 5, rank != 2, now_ms, now_ms);
        }
        assert_judged(&watch, now_ms, now_ms <= 37000 ? NULL : "rank 2 (c) is lost: no arrival at bucket 5");
    }
    watch_release(&watch);

    watch_start(&watch, 0); /* one large sum, whose pieces come slowly to rank 1 */
    for (double now_ms = 0; now_ms <= 50000; now_ms += 500) {
        works[1] += now_ms <= 30000;
        for (int rank = 0; rank < WATCHED; rank++) {
            beat(&watch, rank, 5, 1, now_ms, now_ms);
        }
        assert_judged(&watch, now_ms, now_ms <= 40000 ? NULL : "the network is stuck: all ranks are in");
    }
    watch_release(&watch);
}

/* The two ranks are named between which nothing comes through. */
static void test_cut_network_is_seen(void **state)
{
    (void)state;
    Watch watch;
    watch_start(&watch, 0);
    heartbeat_ms = 3000;
    for (double now_ms = 0; now_ms <= 8000; now_ms += 500) {
        for (int rank = 0; rank < WATCHED; rank++) {
            Beat one = {.unanswered_rank = -1};
            if (rank == 1 && now_ms > 2000) {
                one.unanswered_rank = 2;
                one.unanswered_ms = now_ms - 2000;
            }
            watch_beat(&watch, rank, &one, now_ms);
        }
        assert_judged(&watch, now_ms,
                      now_ms <= 5000 ? NULL : "the network between rank 1 (b) and rank 2 (c) is cut");
    }
    Beat unnamed = {.unanswered_rank = -1, .unanswered_ms = 3100, .unanswered_address = "10.0.0.7"};
    watch_beat(&watch, 1, &unnamed, 8000);
    assert_judged(&watch, 8000, "the network between rank 1 (b) and another at 10.0.0.7 is cut");
    heartbeat_ms = TIMEOUT_MS;
    watch_release(&watch);
}

static void test_absence_is_seen(void **state)
{
    (void)state;
    Watch watch;
    watch_start(&watch, 0);
    for (double now_ms = 20000; now_ms < 20600; now_ms += 500) {
        beat(&watch, 0, 5, 1, now_ms - 10100, now_ms);
        beat(&watch, 1, 4, 0, 0, now_ms);
        beat(&watch, 2, 5, 1, now_ms - 10500, now_ms);
        beat(&watch, 3, 4, 0, 0, now_ms);
        assert_judged(&watch, now_ms,
                      now_ms < 20500
                          ? NULL
                          : "ranks 1 (b), 3 (d) are lost: no arrival at bucket 5 of 9 elements within");
    }
    /* Rank 1 comes; one beat of rank 3 is missing, then several: silence is for the other rule to judge. */
    beat(&watch, 1, 5, 1, 0, 20600);
    assert_judged(&watch, 21000, "rank 3 (d) is lost: no arrival at bucket 5");
    for (int rank = 0; rank < 3; rank++) {
        beat(&watch, rank, 5, 1, 12000, 22500);
    }
    assert_judged(&watch, 22500, NULL);
    assert_judged(&watch, 30600, "rank 3 (d) is lost: silent");
    watch_release(&watch);
}

static void test_stuck_network_is_seen(void **state)
{
    (void)state;
    Watch watch;
    watch_start(&watch, 0);
    for (int rank = 0; rank < WATCHED; rank++) {
        beat(&watch, rank, 5, rank != 1, rank == 3 ? 0 : 9000, 20000); /* rank 1 was a root: it is through */
    }
    for (int rank = 0; rank < WATCHED; rank++) {
        beat(&watch, rank, 5, rank != 1, rank == 3 ? 9500 : 18500, 29500);
    }
    assert_judged(&watch, 29500, NULL); /* rank 3, the last one, came 9.5 s ago */
    for (int rank = 0; rank < WATCHED; rank++) {
        beat(&watch, rank, 5, rank != 1, rank == 3 ? 10500 : 19500, 30500);
    }
    assert_judged(&watch, 30500, "the network is stuck: all ranks are in bucket 5");
    watch_release(&watch);
}

/* ---- a ring between threads ---- */

enum { THREADS_MAX = 5 };

typedef struct RingThread {
    Ring ring;
    int to_next, from_previous;
    int64_t count;
    CommType type;
    void *values;
    pthread_t thread;
} RingThread;

static int exchange_pipes(void *context, const void *send, size_t send_bytes, void *receive,
                          size_t receive_bytes)
{
    const RingThread *self = context;
    return net_exchange(self->to_next, send, send_bytes, self->from_previous, receive, receive_bytes);
}

static void *run_ring(void *argument)
{
    RingThread *self = argument;
    AllReduce what = {self->values, self->count, self->type, COMM_SUM};
    return ring_all_reduce(&self->ring, &what) == 0 ? NULL : self;
}

static void ring_of_threads(RingThread *threads, int N, int64_t count, CommType type)
{
    for (int r = 0; r < N; r++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        threads[r].to_next = ends[0];
        threads[(r + 1) % N].from_previous = ends[1];
    }
    for (int r = 0; r < N; r++) {
        RingThread *self = &threads[r];
        ring_init(&self->ring, r, N);
        self->ring.exchange = exchange_pipes;
        self->ring.context = self;
        self->count = count;
        self->type = type;
        self->values = memory_alloc((size_t)count, 8, "test");
        for (int64_t i = 0; i < count; i++) {
            worker_store(self->values, i, type, worker_normal(r, i));
        }
    }
    for (int r = 0; r < N; r++) {
        assert_int_equal(pthread_create(&threads[r].thread, NULL, run_ring, &threads[r]), 0);
    }
    for (int r = 0; r < N; r++) {
        void *failed;
        pthread_join(threads[r].thread, &failed);
        assert_null(failed);
    }
}

static void ring_release_threads(RingThread *threads, int N)
{
    for (int r = 0; r < N; r++) {
        close(threads[r].to_next);
        close(threads[r].from_previous);
        ring_release(&threads[r].ring);
        memory_free(threads[r].values);
    }
}

/* The order that ring.h promises: segment s begins with rank s and goes round. */
static void test_ring_adds_in_the_promised_order(void **state)
{
    (void)state;
    enum { COUNT = 23 };
    for (int N = 2; N <= THREADS_MAX; N++) {
        for (CommType type = COMM_FLOAT; type <= COMM_BF16; type++) {
            RingThread threads[THREADS_MAX];
            ring_of_threads(threads, N, COUNT, type);
            int64_t i = 0;
            for (int s = 0; s < N; s++) {
                for (int64_t end = i + COUNT / N + (s < COUNT % N); i < end; i++) {
                    float sum = 0;
                    for (int k = 0; k < N; k++) {
                        float mine = worker_normal((s + k) % N, i);
                        mine = type == COMM_BF16 ? bf16_to_float(bf16_from_float(mine)) : mine;
                        sum = k == 0 ? mine : sum + mine;
                        sum = type == COMM_BF16 ? bf16_to_float(bf16_from_float(sum)) : sum;
                    }
                    for (int r = 0; r < N; r++) {
                        double found = worker_load(threads[r].values, i, type);
                        if (found != (double)sum) {
                            fail_msg("N %d, type %d, element %d, rank %d: expected %.9g, found %.9g", N, type,
                                     (int)i, r, sum, found);
                        }
                    }
                }
            }
            assert_int_equal(i, COUNT);
            ring_release_threads(threads, N);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silence_is_seen),       cmocka_unit_test(test_who_works_is_waited_for),
        cmocka_unit_test(test_cut_network_is_seen),   cmocka_unit_test(test_absence_is_seen),
        cmocka_unit_test(test_stuck_network_is_seen), cmocka_unit_test(test_ring_adds_in_the_promised_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
