/* Jobs of real processes over TCP, started as torchrun would. test_comm.sh has those under mpirun.
 *
 *   test_comm                      prints TAP
 *   test_comm worker NAME [...]    one rank of a job
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/test/comm_job.h"
#include "dev/test/comm_worker.h"
#include "llmc/comm/net.h"

static void test_sums(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        Job job;
        job_init(&job, counts[i], "sums", "1000003");
        job_start(&job);
        for (int rank = 0; rank < counts[i]; rank++) {
            job_expect(&job, rank, EXIT_DONE, NULL, NULL);
        }
        job_release(&job);
    }
}

static void test_orderly_end_is_silent(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 3, "again", "");
    job_start(&job);
    for (int rank = 0; rank < 3; rank++) {
        job_expect(&job, rank, EXIT_RUN_AGAIN, NULL, NULL);
    }
    job_release(&job);
}

static void test_notice_reaches_all(void **state)
{
    (void)state;
    for (int posting = 0; posting < 2; posting++) {
        Job job;
        job_init(&job, 3, "notice", posting ? "1" : "0");
        job_start(&job);
        for (int rank = 0; rank < 3; rank++) {
            job_expect(&job, rank, EXIT_DONE, NULL, NULL);
        }
        job_release(&job);
    }
}

static void test_error_of_one_rank_ends_all(void **state)
{
    (void)state;
    for (int failing = 0; failing < 2; failing++) {
        Job job;
        job_init(&job, 3, "failing", failing ? "1" : "0");
        job_start(&job);
        for (int rank = 0; rank < 3; rank++) {
            char line[32];
            snprintf(line, sizeof(line), "worker: [rank %d ", failing);
            job_expect(&job, rank, EXIT_FAILED, rank == failing ? line : NULL,
                       rank == failing ? "] file.bin: broken on rank" : NULL);
        }
        job_release(&job);
    }
}

/* Nothing here waits for a timeout: it is 600 s. A rank may be in a collective or between two. */
static void test_killed_rank_is_named(void **state)
{
    (void)state;
    for (int killed = 0; killed < 3; killed++) {
        char who[64];
        Job job;
        job_init(&job, 3, "endless", "");
        job_start(&job);
        job_wait_ready(&job);
        kill(job.pids[killed], SIGKILL);
        snprintf(who, sizeof(who), "rank %d (", killed);
        for (int rank = 0; rank < 3; rank++) {
            if (rank == killed) {
                job_expect(&job, rank, 128 + SIGKILL, NULL, NULL);
            } else {
                job_expect(&job, rank, EXIT_FAULT, who, "it ended without a word; this rank was ");
            }
        }
        job_release(&job);
    }
}

/* The stopped rank learns, once it may go on, that it is the one. */
static void test_stopped_rank_is_named(void **state)
{
    (void)state;
    for (int stopped = 0; stopped < 2; stopped++) {
        Job job;
        job_init(&job, 3, "endless", "");
        job.timeout_s = 2;
        job_start(&job);
        job_wait_ready(&job);
        kill(job.pids[stopped], SIGSTOP);
        for (int rank = 0; rank < 3; rank++) {
            if (rank != stopped) {
                job_expect(&job, rank, EXIT_FAULT, stopped ? "rank 1 (" : "rank 0 (", "is lost: silent for");
            }
        }
        kill(job.pids[stopped], SIGCONT);
        job_expect(&job, stopped, EXIT_FAULT, stopped ? "rank 1 (" : "rank 0 (", "is lost: silent for");
        job_release(&job);
    }
}

static void test_absent_rank_is_named(void **state)
{
    (void)state;
    for (int absent = 0; absent < 2; absent++) {
        Job job;
        job_init(&job, 3, "absent", absent ? "1" : "0");
        job.timeout_s = 2;
        job_start(&job);
        for (int rank = 0; rank < 3; rank++) {
            job_expect(&job, rank, EXIT_FAULT, absent ? "rank 1 (" : "rank 0 (",
                       rank == absent ? "this rank was computing" : "this rank was in bucket 7 of 1 element");
        }
        job_release(&job);
    }
}

static void test_missing_rank_is_named(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 2, "again", "");
    job.timeout_s = 1;
    job_start_one(&job, 0, 0, 3);
    job_start_one(&job, 1, 2, 3);
    job_expect(&job, 0, EXIT_FAILED, "expected 3, found 2 until time was up", "missing: 1;");
    job_expect(&job, 1, EXIT_FAILED, "rank", "time was up");
    job_release(&job);

    job_init(&job, 1, "again", ""); /* rank 0 itself is missing */
    job.timeout_s = 1;
    job_start_one(&job, 0, 1, 2);
    job_expect(&job, 0, EXIT_FAILED, "rank 1 found no rank 0", "Connection refused");
    job_release(&job);
}

static void test_ranks_that_do_not_fit_are_named(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 2, "again", "");
    job_start_one(&job, 0, 0, 3);
    job_start_one(&job, 1, 1, 2);
    for (int i = 0; i < 2; i++) {
        job_expect(&job, i, EXIT_FAILED, "WORLD_SIZE: expected 3 as at rank 0", "found 2 at rank 1");
    }
    job_release(&job);

    job_init(&job, 3, "again", "");
    job_start_one(&job, 0, 0, 3);
    job_start_one(&job, 1, 2, 3);
    job_start_one(&job, 2, 2, 3);
    for (int i = 0; i < 3; i++) {
        job_expect(&job, i, EXIT_FAILED, "found rank 2 twice", "own RANK");
    }
    job_release(&job);
}

/* Strangers that connect to rank 0's port, silent or not, are no ranks; ranks that come before rank 0 wait.
 */
static void test_strangers_are_ignored(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 2, "again", "");
    job_start_one(&job, 1, 1, 2);
    job_start_one(&job, 0, 0, 2);
    Error error;
    double end_ms = clock_ms() + JOB_DEADLINE_S * 1e3 * time_scale();
    for (int i = 0; i < 2 && clock_ms() < end_ms; i++) {
        int stranger = net_connect("127.0.0.1", job.port, end_ms, &error);
        if (stranger >= 0 && i == 0) {
            static const char request[200] = "GET / HTTP/1.0\r\n\r\n";
            net_send(stranger, request, sizeof(request), end_ms);
        }
        net_close(stranger);
    }
    job_expect(&job, 0, EXIT_RUN_AGAIN, NULL, NULL);
    job_expect(&job, 1, EXIT_RUN_AGAIN, NULL, NULL);
    job_release(&job);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        return worker_main(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_orderly_end_is_silent),
        cmocka_unit_test(test_notice_reaches_all),
        cmocka_unit_test(test_error_of_one_rank_ends_all),
        cmocka_unit_test(test_killed_rank_is_named),
        cmocka_unit_test(test_stopped_rank_is_named),
        cmocka_unit_test(test_absent_rank_is_named),
        cmocka_unit_test(test_missing_rank_is_named),
        cmocka_unit_test(test_ranks_that_do_not_fit_are_named),
        cmocka_unit_test(test_strangers_are_ignored),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
