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

#include <errno.h>

#include "dev/test/comm_job.h"
#include "dev/test/comm_worker.h"
#include "llmc/comm/peer.h"

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

/* Whether that is rank 0, which others watch, or another, which rank 0 watches. */
static void test_slow_rank_is_waited_for(void **state)
{
    (void)state;
    Job jobs[2];
    for (int slow = 0; slow < 2; slow++) {
        job_init(&jobs[slow], 2, "slow", slow ? "1" : "0");
        jobs[slow].timeout_s = 1;
        jobs[slow].first_process = 2 * slow;
        job_start(&jobs[slow]);
    }
    for (int slow = 0; slow < 2; slow++) {
        for (int rank = 0; rank < 2; rank++) {
            job_expect(&jobs[slow], rank, EXIT_DONE, NULL, NULL);
        }
        job_release(&jobs[slow]);
    }
}

/* The system refuses to send a rank's goodbye for a while: it still arrives. */
static int refusals_left = -1;

ssize_t send(int descriptor, const void *data, size_t bytes, int flags)
{
    if (refusals_left < 0) {
        refusals_left = getenv("REFUSE_GOODBYE") ? 20 : 0;
    }
    const Message *message = data;
    if (refusals_left > 0 && bytes == sizeof(*message) && message->kind == MESSAGE_GOODBYE) {
        refusals_left--;
        errno = EAGAIN;
        return -1;
    }
    return sendto(descriptor, data, bytes, flags, NULL, 0);
}

static void test_a_goodbye_that_must_wait_arrives(void **state)
{
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        Job job;
        job_init(&job, 2, "again", "");
        for (int rank = 0; rank < 2; rank++) {
            rank == refused ? setenv("REFUSE_GOODBYE", "1", 1) : unsetenv("REFUSE_GOODBYE");
            job_start_one(&job, rank, rank, 2);
        }
        unsetenv("REFUSE_GOODBYE");
        job_expect(&job, 0, EXIT_RUN_AGAIN, NULL, NULL);
        job_expect(&job, 1, EXIT_RUN_AGAIN, NULL, NULL);
        job_release(&job);
    }
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
        cmocka_unit_test(test_slow_rank_is_waited_for),
        cmocka_unit_test(test_a_goodbye_that_must_wait_arrives),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
