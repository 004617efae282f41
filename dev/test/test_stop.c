/* Signals: the first asks, the second ends the program at once, unless it comes so soon that it is the same
 * event. Each case runs in a child of its own; those that have to wait do so at the same time. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dev/test/time_scale.h"
#include "llmc/base/error.h"
#include "llmc/run/stop.h"

/* Send this process a signal, as a user does, and wait until it is taken. */
static void take(int signal_number)
{
    kill(getpid(), signal_number);
    while (!stop_requested()) {
        sched_yield();
    }
}

/* Until another signal is another wish. */
static void wait_for_another_event(void)
{
    struct timespec left = {.tv_sec = STOP_SAME_EVENT_MS / 1000, .tv_nsec = 200000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

/* A child that gets these signals (0: none) and would then exit with what stop_requested says. */
static pid_t begin(int first, int second)
{
    pid_t child = fork();
    if (child == 0) {
        stop_install();
        stop_in_order();
        if (first) {
            take(first);
        }
        if (second) {
            wait_for_another_event();
            kill(getpid(), second);
            pause(); /* for the end */
        }
        _exit(stop_requested());
    }
    return child;
}

static int status_of(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_first_signal_asks(void **state)
{
    (void)state;
    static const int signals[] = {0, SIGUSR1, SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < 5; i++) {
        int status = status_of(begin(signals[i], 0));
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), signals[i]);
    }
}

static void test_second_signal_ends_at_once(void **state)
{
    (void)state;
    static const int pairs[][2] = {{SIGTERM, SIGTERM}, {SIGUSR1, SIGTERM}, {SIGINT, SIGUSR1}};
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = begin(pairs[i][0], pairs[i][1]);
    }
    for (int i = 0; i < 3; i++) {
        int status = status_of(children[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), pairs[i][1]);
    }
}

/* Send this process a signal and wait until the thread that takes signals has it. */
static void send_and_await(int signal_number)
{
    sigset_t pending;
    kill(getpid(), signal_number);
    do {
        sched_yield();
        sigpending(&pending);
    } while (sigismember(&pending, signal_number));
}

/* Slurm signals every process of a step, torchrun among them, which signals its workers again. */
static void test_signals_of_one_event_count_once(void **state)
{
    (void)state;
    static const int pairs[][2] = {
        {SIGTERM, SIGTERM}, {SIGUSR1, SIGUSR1}, {SIGUSR1, SIGTERM}, {SIGINT, SIGTERM}};
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            stop_install();
            stop_in_order();
            take(pairs[i][0]);
            send_and_await(pairs[i][1]);
            send_and_await(pairs[i][1]);
            send_and_await(SIGHUP); /* which is taken after the one before */
            _exit(stop_requested());
        }
        int status = status_of(child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), pairs[i][0]);
    }
}

/* How a child ends whose parent, as mpirun does, sends SIGCONT, and that then gets these signals one by one,
 * the first at once and others when they are another event, by which it has to end. */
static int status_after_continue(int is_rank, const int *signals)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        is_rank ? setenv("OMPI_COMM_WORLD_SIZE", "2", 1) : unsetenv("OMPI_COMM_WORLD_SIZE");
        stop_install();
        stop_in_order();
        int is_told = write(ready[1], "", 1) == 1;
        while (is_told && is_rank && !stop_requested()) {
            sched_yield();
        }
        int is_ended = *signals != 0;
        for (int i = 0; signals[i]; i++) {
            if (i > 0) {
                wait_for_another_event();
            }
            send_and_await(signals[i]);
        }
        while (is_ended) {
            pause();
        }
        _exit(stop_requested());
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(child, SIGCONT);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(ready[0]);
    close(ready[1]);
    return status;
}

static void test_launcher_announces_the_end(void **state)
{
    (void)state;
    assert_int_equal(WEXITSTATUS(status_after_continue(0, (int[]){0})), 0);
    int status = status_after_continue(1, (int[]){0});
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SIGTERM);
    /* mpirun's SIGTERM is no second wish, so it is the SIGINT after it that ends the program. */
    status = status_after_continue(1, (int[]){SIGTERM, SIGINT, 0});
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

/* A terminal that goes away: SIGHUP from several, then SIGTERM. All are one wish; what follows is another. */
static void test_hang_ups_are_one_wish(void **state)
{
    (void)state;
    for (int is_ended = 0; is_ended < 2; is_ended++) {
        pid_t child = fork();
        if (child == 0) {
            stop_install();
            stop_in_order();
            take(SIGHUP);
            send_and_await(SIGHUP);
            send_and_await(SIGTERM);
            send_and_await(SIGHUP);
            if (is_ended) {
                wait_for_another_event();
                kill(getpid(), SIGTERM);
                pause();
            }
            _exit(stop_requested());
        }
        int status = status_of(child);
        assert_true(is_ended ? WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM
                             : WIFEXITED(status) && WEXITSTATUS(status) == SIGHUP);
    }
}

/* Slurm tells ranks and mpirun, which tells its ranks by SIGCONT, and by SIGTERM when its time-out is over:
 * that is the same event, however long the time-out is. */
static void test_launcher_that_repeats_late_is_no_second_wish(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        stop_install();
        stop_in_order();
        take(SIGTERM);
        int is_told = write(ready[1], "", 1) == 1;
        wait_for_another_event();
        send_and_await(SIGTERM); /* mpirun's */
        send_and_await(SIGHUP);
        _exit(is_told ? stop_requested() : 0);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(child, SIGCONT);
    int status = status_of(child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SIGTERM);
    close(ready[0]);
    close(ready[1]);
}

/* nohup. Of two signals that wait to be taken, the lower number is the first. */
static void test_ignored_hang_ups_stay_ignored(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGHUP, SIG_IGN);
        stop_install();
        stop_in_order();
        kill(getpid(), SIGHUP);
        take(SIGTERM);
        _exit(stop_requested());
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SIGTERM);
}

/* A main thread that waits for something for ever, before the run has begun. */
static void test_before_the_run_a_signal_ends_at_once(void **state)
{
    (void)state;
    static const int signals[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            int never[2];
            char byte;
            stop_install();
            alarm(60 * (unsigned)time_scale());
            if (pipe(never) == 0 && kill(getpid(), signals[i]) == 0 && read(never[0], &byte, 1) == 0) {
                _exit(0);
            }
            _exit(1);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), EXIT_RUN_AGAIN);
    }
}

/* mpirun ends its ranks because one has failed, which has said why: the others say nothing. */
static void test_before_the_run_a_launcher_ends_silently(void **state)
{
    (void)state;
    int ready[2], said[2];
    assert_int_equal(pipe(ready) | pipe(said), 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        stop_install();
        alarm(60 * (unsigned)time_scale());
        int is_told = dup2(said[1], STDERR_FILENO) >= 0 && write(ready[1], "", 1) == 1;
        while (is_told) {
            pause();
        }
        _exit(1);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(child, SIGCONT);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_RUN_AGAIN);
    close(said[1]);
    assert_int_equal(read(said[0], &byte, 1), 0);
    close(said[0]);
    close(ready[0]);
    close(ready[1]);
}

/* A pipe whose reader has gone: an error of write, not the end. */
static void test_a_lost_console_is_an_error_of_write(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        int ends[2];
        stop_install();
        int is_made = pipe(ends) == 0 && close(ends[0]) == 0;
        _exit(is_made && write(ends[1], "x", 1) < 0 && errno == EPIPE ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A program that executes itself once more, as train_gpt2 does, loses no signal that came before. */
static void test_signals_are_held_until_they_are_taken(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        stop_hold();
        kill(getpid(), SIGTERM);
        execl("/proc/self/exe", "test_stop", "again", (char *)NULL);
        _exit(127);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), SIGTERM);
}

/* What that program does then. */
static int take_what_came(void)
{
    stop_in_order();
    stop_install();
    while (!stop_requested()) {
        sched_yield();
    }
    return stop_requested();
}

static void *are_blocked(void *answer)
{
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    *(int *)answer = sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGTERM) &&
                     sigismember(&mask, SIGINT) && sigismember(&mask, SIGCONT);
    return NULL;
}

static void test_no_other_thread_takes_signals(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        stop_install();
        int here = 0, there = 0;
        pthread_t thread;
        are_blocked(&here);
        pthread_create(&thread, NULL, are_blocked, &there);
        pthread_join(thread, NULL);
        _exit(here + 2 * there);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 3);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        return take_what_came();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_signal_asks),
        cmocka_unit_test(test_second_signal_ends_at_once),
        cmocka_unit_test(test_signals_of_one_event_count_once),
        cmocka_unit_test(test_launcher_announces_the_end),
        cmocka_unit_test(test_launcher_that_repeats_late_is_no_second_wish),
        cmocka_unit_test(test_hang_ups_are_one_wish),
        cmocka_unit_test(test_ignored_hang_ups_stay_ignored),
        cmocka_unit_test(test_before_the_run_a_signal_ends_at_once),
        cmocka_unit_test(test_before_the_run_a_launcher_ends_silently),
        cmocka_unit_test(test_a_lost_console_is_an_error_of_write),
        cmocka_unit_test(test_signals_are_held_until_they_are_taken),
        cmocka_unit_test(test_no_other_thread_takes_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
