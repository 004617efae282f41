/* How ranks over TCP find each other, and who else may be at the port: jobs of real processes, started as
 * torchrun would, and this process in the place of one of them or of a stranger.
 *
 *   test_comm_start                      prints TAP
 *   test_comm_start worker NAME [...]    one rank of a job
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
#include "llmc/comm/star_wire.h"

static void test_missing_rank_is_named(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 2, "again", "");
    job.timeout_s = 1;
    job_start_one(&job, 0, 0, 3);
    job_start_one(&job, 1, 2, 3);
    job_expect(&job, 0, EXIT_FAULT, "expected 3, found 2 until time was up", "missing: 1;");
    job_expect(&job, 1, EXIT_FAULT, "rank", "time was up");
    job_release(&job);

    job_init(&job, 1, "again", ""); /* rank 0 itself is missing */
    job.timeout_s = 1;
    job_start_one(&job, 0, 1, 2);
    job_expect(&job, 0, EXIT_FAULT, "rank 1 (",
               "found no rank 0 until time was up (join_timeout): 127.0.0.1 port ");
    job_release(&job);
}

/* After five seconds they say whom they wait for; a signal ends them at once meanwhile. */
static void test_waiting_is_told_and_ends_by_signals(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    Job jobs[2]; /* without rank 1 of 4; without rank 0 */
    for (int i = 0; i < 2; i++) {
        job_init(&jobs[i], 2, "again", "");
        jobs[i].first_process = 2 * i;
    }
    for (int i = 0; i < 2; i++) {
        job_start_one(&jobs[0], i, 2 * i, 4);
        job_start_one(&jobs[1], i, i + 1, 3);
    }
    job_wait_text(&jobs[0], 0, "rank 0 (", " waits for 2 of 4 ranks to come");
    job_wait_text(&jobs[0], 0, "missing: 1, 3\n", "");
    job_wait_text(&jobs[1], 0, "rank 1 (", " waits for rank 0");
    job_wait_text(&jobs[1], 1, "rank 2 (", "127.0.0.1 port ");
    for (int i = 0; i < 2; i++) {
        double begin_ms = clock_ms();
        kill(jobs[0].pids[1 - i], signals[i]); /* rank 2, which has been welcomed, then rank 0 */
        kill(jobs[1].pids[i], signals[i]);
        job_expect(&jobs[0], 1 - i, EXIT_RUN_AGAIN, "before the run had begun", i ? "SIGINT" : "SIGTERM");
        job_expect(&jobs[1], i, EXIT_RUN_AGAIN, "before the run had begun", i ? "SIGINT" : "SIGTERM");
        assert_true(clock_ms() - begin_ms < 5e3 * time_scale());
    }
    job_release(&jobs[0]);
    job_release(&jobs[1]);
}

/* Ranks listen nowhere else than in the range; where it has no room, they say so. */
static void test_ports_are_of_the_range(void **state)
{
    (void)state;
    Job job;
    char port[16];
    job_init(&job, 3, "sums", "1000");
    snprintf(port, sizeof(port), "%d", job_free_port());
    setenv("PORT_FIRST", port, 1);
    setenv("PORT_LAST", port, 1); /* the first rank to come takes the only one */
    job.timeout_s = 3;
    job_start(&job);
    int faults = 0;
    for (int rank = 0; rank < 3; rank++) {
        faults += job_wait(&job, rank) != EXIT_DONE;
    }
    assert_int_equal(faults, 3);
    int told = job_has_text(&job, 1, "cannot listen on any of these ports") +
               job_has_text(&job, 2, "cannot listen on any of these ports");
    assert_int_equal(told, 1);
    job_release(&job);

    job_init(&job, 3, "sums", "1000");
    snprintf(port, sizeof(port), "%d", atoi(port) + 5);
    setenv("PORT_LAST", port, 1);
    job_start(&job);
    for (int rank = 0; rank < 3; rank++) {
        job_expect(&job, rank, EXIT_DONE, NULL, NULL);
    }
    job_release(&job);
    unsetenv("PORT_FIRST");
    unsetenv("PORT_LAST");
}

/* Ranks that know each other by the launcher's run id all end with the same line. */
static void test_ranks_that_do_not_fit_are_named(void **state)
{
    (void)state;
    Job job;
    setenv("TORCHELASTIC_RUN_ID", "a-run", 1);
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
    unsetenv("TORCHELASTIC_RUN_ID");
}

/* Where nothing is known of the job, the one that does not fit is refused, and named when time is up. */
static void test_ranks_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 2, "again", "");
    job.timeout_s = 3;
    job_start_one(&job, 0, 0, 3);
    job_start_one(&job, 1, 1, 2);
    job_expect(&job, 1, EXIT_FAILED, "WORLD_SIZE: expected 3 as at rank 0", "found 2 at rank 1");
    assert_int_equal(job_wait(&job, 0), EXIT_FAULT);
    size_t bytes;
    char *text = (char *)scratch_read(job_error_path(0), &bytes);
    text[bytes] = 0;
    assert_non_null(strstr(text, "found 2 at rank 1 ("));
    assert_non_null(strstr(text, "missing: 1, 2;"));
    free(text);
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

/* A connection to the job's port, as soon as somebody listens there. */
static int knock(const Job *job)
{
    Error error;
    double end_ms = clock_ms() + JOB_DEADLINE_S * 1e3 * time_scale();
    for (;;) {
        int descriptor = net_connect("127.0.0.1", job->port, end_ms, &error);
        if (descriptor >= 0) {
            return descriptor;
        }
        if (clock_ms() > end_ms) {
            fail_msg("nobody listens: %s", error.text);
        }
        usleep(2000);
    }
}

static Hello hello_of(int rank, int rank_count)
{
    Hello hello = {.magic = STAR_MAGIC, .version = STAR_VERSION, .rank = rank, .rank_count = rank_count};
    snprintf(hello.host, sizeof(hello.host), "\x1b[31mhost\n");
    return hello;
}

/* Silent connections wait side by side: one after another these would take 200 s. What says hello and does
 * not fit is refused, and the job goes on. */
static void test_strangers_do_not_hold_a_job_up(void **state)
{
    (void)state;
    enum { SILENT = 40, FOREIGN = 4 };
    Job job;
    int strangers[SILENT + FOREIGN];
    job_init(&job, 2, "again", "");
    job_start_one(&job, 0, 0, 2);
    double begin_ms = clock_ms();
    for (int i = 0; i < SILENT + FOREIGN; i++) {
        strangers[i] = knock(&job);
    }
    Hello hellos[FOREIGN] = {hello_of(1, 2), hello_of(1, 3), hello_of(7, 2), hello_of(-1, 2)};
    hellos[0].version = 99;
    for (int i = 0; i < FOREIGN; i++) {
        Reply reply;
        net_send(strangers[SILENT + i], &hellos[i], sizeof(hellos[i]), begin_ms + 60e3 * time_scale());
        assert_int_equal(
            net_receive(strangers[SILENT + i], &reply, sizeof(reply), begin_ms + 60e3 * time_scale()), 0);
        assert_int_equal(reply.kind, REPLY_REFUSED);
    }
    job_start_one(&job, 1, 1, 2);
    assert_int_equal(job_wait(&job, 0), EXIT_RUN_AGAIN);
    job_expect(&job, 1, EXIT_RUN_AGAIN, NULL, NULL);
    assert_true(clock_ms() - begin_ms < 100e3);
    for (int i = 0; i < SILENT + FOREIGN; i++) {
        net_close(strangers[i]);
    }
    size_t bytes;
    char *text = (char *)scratch_read(job_error_path(0), &bytes);
    text[bytes] = 0;
    assert_non_null(strstr(text, "?[31mhost"));
    assert_null(strchr(text, 0x1b));
    free(text);
    job_release(&job);
}

/* Whether a socket listens at the port on any other address than 127.0.0.1. */
static int is_open_to_others(int port)
{
    char line[256];
    int is_open = 0, found = 0;
    for (int six = 0; six < 2; six++) {
        FILE *file = fopen(six ? "/proc/net/tcp6" : "/proc/net/tcp", "r");
        while (file && fgets(line, sizeof(line), file)) {
            char address[40];
            unsigned at = 0, status = 0;
            if (sscanf(line, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x", address, &at, &status) == 3 &&
                (int)at == port && status == 0x0a) {
                found++;
                is_open |= strcmp(address, "0100007F") != 0;
            }
        }
        if (file) {
            fclose(file);
        }
    }
    assert_true(found > 0);
    return is_open;
}

/* Rank 1 as this process plays it, which then goes without a word. */
static void test_rank_lost_after_the_star_is_named(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 3, "again", "");
    job_start_one(&job, 0, 0, 3);
    net_close(knock(&job));
    assert_false(is_open_to_others(job.port));
    job_start_one(&job, 2, 2, 3);
    Star star;
    StarAnswer answer;
    Error error;
    StarPlan plan = {.rank = 1, .rank_count = 3, .deadline_ms = clock_ms() + 60e3 * time_scale()};
    char address[1][ADDRESS_BYTES] = {"127.0.0.1"};
    star_init(&star, 1, 3);
    if (star_join(&star, &answer, &plan, address, 1, job.port, &error) != 0) {
        job_fail(&job, error.text);
    }
    char who[64];
    snprintf(who, sizeof(who), "rank 1 (%.50s) is lost: it ended without a word", star.hosts[1]);
    star_release(&star);
    job_expect(&job, 0, EXIT_FAULT, who, NULL);
    job_expect(&job, 2, EXIT_FAULT, who, NULL);
    job_release(&job);
}

/* Two jobs at one port: the second has no rank 0, and its other rank is told so. The first goes on. */
static void test_two_jobs_at_one_port(void **state)
{
    (void)state;
    Job jobs[2];
    for (int i = 0; i < 2; i++) {
        job_init(&jobs[i], 2, "again", "");
    }
    jobs[1].port = jobs[0].port;
    setenv("TRAIN_GPT2_JOB", "first", 1);
    job_start_one(&jobs[0], 0, 0, 2);
    net_close(knock(&jobs[0]));
    setenv("TRAIN_GPT2_JOB", "second", 1);
    job_start_one(&jobs[1], 2, 0, 2);
    job_expect(&jobs[1], 2, EXIT_FAILED, "expected a free MASTER_PORT", "Address already in use");
    job_start_one(&jobs[1], 3, 1, 2);
    job_expect(&jobs[1], 3, EXIT_FAILED, "MASTER_PORT: expected rank 0 of this job", "another");
    setenv("TRAIN_GPT2_JOB", "first", 1);
    job_start_one(&jobs[0], 1, 1, 2);
    job_expect(&jobs[0], 0, EXIT_RUN_AGAIN, NULL, NULL);
    job_expect(&jobs[0], 1, EXIT_RUN_AGAIN, NULL, NULL);
    unsetenv("TRAIN_GPT2_JOB");
    job_release(&jobs[0]);
    job_release(&jobs[1]);
}

/* Jobs that nothing tells apart: somebody else takes a place until his launcher ends him; meanwhile the right
 * rank tries again, and then gets it. */
static void test_a_place_that_is_taken_becomes_free(void **state)
{
    (void)state;
    Job job;
    job_init(&job, 2, "again", "");
    job_start_one(&job, 0, 0, 3);
    double end_ms = clock_ms() + 60e3 * time_scale();
    int other = knock(&job), third = knock(&job);
    Hello hello = hello_of(1, 3);
    Reply reply;
    net_send(other, &hello, sizeof(hello), end_ms);
    assert_int_equal(net_receive(other, &reply, sizeof(reply), end_ms), 0);
    assert_int_equal(reply.kind, REPLY_WELCOME);
    net_send(third, &hello, sizeof(hello), end_ms);
    assert_int_equal(net_receive(third, &reply, sizeof(reply), end_ms), 0);
    assert_int_equal(reply.kind, REPLY_TAKEN);
    net_close(other);
    net_close(third);
    job_start_one(&job, 1, 1, 3);
    int stranger = knock(&job);
    hello.rank = 2;
    net_send(stranger, &hello, sizeof(hello), end_ms);
    assert_int_equal(net_receive(stranger, &reply, sizeof(reply), end_ms), 0);
    assert_int_equal(reply.kind, REPLY_WELCOME);
    assert_int_equal(net_receive(stranger, &reply, sizeof(reply), end_ms), 0);
    assert_int_equal(reply.kind, REPLY_ANSWER); /* so rank 1 is there */
    net_close(stranger);
    assert_int_equal(job_wait(&job, 0), EXIT_FAULT);
    assert_int_equal(job_wait(&job, 1), EXIT_FAULT);
    job_release(&job);
}

/* Whatever a rank waits for before the run, a signal ends it at once. This process plays the other rank. */
static void test_a_signal_ends_a_rank_that_waits(void **state)
{
    (void)state;
    Job job;
    double end_ms = clock_ms() + 60e3 * time_scale();
    job_init(&job, 1, "again", "");
    job_start_one(&job, 0, 0, 3);
    int descriptor = knock(&job);
    Hello hello = hello_of(1, 3);
    Reply reply;
    net_send(descriptor, &hello, sizeof(hello), end_ms);
    assert_int_equal(net_receive(descriptor, &reply, sizeof(reply), end_ms), 0);
    kill(job.pids[0], SIGTERM);
    job_expect(&job, 0, EXIT_RUN_AGAIN, "SIGTERM before the run had begun", NULL);
    net_close(descriptor);
    job_release(&job);

    Error error;
    job_init(&job, 1, "again", "");
    int listener = net_listen(&job.port, 8, &error);
    job_start_one(&job, 0, 1, 2);
    descriptor = net_accept(listener, end_ms);
    assert_true(descriptor >= 0);
    kill(job.pids[0], SIGHUP);
    job_expect(&job, 0, EXIT_RUN_AGAIN, "SIGHUP before the run had begun", NULL);
    net_close(descriptor);
    net_close(listener);
    job_release(&job);
}

/* Rank 0 ends while others wait with it: they do not look for it until time is up. */
static void test_rank_0_lost_before_the_star_is_named(void **state)
{
    (void)state;
    Job job;
    Error error;
    double end_ms = clock_ms() + 60e3 * time_scale();
    job_init(&job, 1, "again", "");
    int listener = net_listen(&job.port, 8, &error);
    job_start_one(&job, 0, 1, 3);
    int descriptor = net_accept(listener, end_ms);
    Hello hello;
    Reply reply = {.magic = STAR_MAGIC, .kind = REPLY_WELCOME, .host = "a\x1b]0;host"};
    assert_int_equal(net_receive(descriptor, &hello, sizeof(hello), end_ms), 0);
    assert_int_equal(hello.rank, 1);
    net_send(descriptor, &reply, sizeof(reply), end_ms);
    net_close(descriptor);
    job_expect(&job, 0, EXIT_FAULT, "rank 0 (a?]0;host) ended while it waited for other ranks", NULL);
    net_close(listener);
    job_release(&job);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        return worker_main(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_rank_is_named),
        cmocka_unit_test(test_waiting_is_told_and_ends_by_signals),
        cmocka_unit_test(test_ports_are_of_the_range),
        cmocka_unit_test(test_ranks_that_do_not_fit_are_named),
        cmocka_unit_test(test_ranks_that_do_not_fit_are_refused),
        cmocka_unit_test(test_strangers_are_ignored),
        cmocka_unit_test(test_strangers_do_not_hold_a_job_up),
        cmocka_unit_test(test_rank_lost_after_the_star_is_named),
        cmocka_unit_test(test_two_jobs_at_one_port),
        cmocka_unit_test(test_a_place_that_is_taken_becomes_free),
        cmocka_unit_test(test_a_signal_ends_a_rank_that_waits),
        cmocka_unit_test(test_rank_0_lost_before_the_star_is_named),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
