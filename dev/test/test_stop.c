/* Signals: the first asks, the second ends the program at once. Each case runs in a child of its own. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "llmc/run/stop.h"

/* How a child ends that gets these signals (0: none) and would then exit with what stop_requested says. */
static int status_after(int first, int second)
{
    pid_t child = fork();
    if (child == 0) {
        stop_install();
        if (first) {
            raise(first);
        }
        if (second) {
            raise(second);
        }
        _exit(stop_requested());
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_first_signal_asks(void **state)
{
    (void)state;
    static const int signals[] = {0, SIGUSR1, SIGTERM, SIGINT};
    for (int i = 0; i < 4; i++) {
        int status = status_after(signals[i], 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), signals[i]);
    }
}

static void test_second_signal_ends_at_once(void **state)
{
    (void)state;
    static const int pairs[][2] = {{SIGTERM, SIGTERM}, {SIGUSR1, SIGTERM}, {SIGINT, SIGUSR1}};
    for (int i = 0; i < 3; i++) {
        int status = status_after(pairs[i][0], pairs[i][1]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), pairs[i][1]);
    }
}

/* What a child sees when its parent, as mpirun does, sends SIGCONT and then `after`. */
static int status_after_continue(int is_rank, int after)
{
    int ready[2], go[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        is_rank ? setenv("OMPI_COMM_WORLD_SIZE", "2", 1) : unsetenv("OMPI_COMM_WORLD_SIZE");
        stop_install();
        _exit(write(ready[1], "", 1) == 1 && read(go[0], &byte, 1) == 1 ? stop_requested() : 99);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(child, SIGCONT);
    if (after) {
        kill(child, after);
    }
    assert_int_equal(write(go[1], "", 1), 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
    }
    return status;
}

static void test_launcher_announces_the_end(void **state)
{
    (void)state;
    assert_int_equal(WEXITSTATUS(status_after_continue(0, 0)), 0);
    assert_int_equal(WEXITSTATUS(status_after_continue(1, 0)), SIGTERM);
    int status = status_after_continue(1, SIGTERM);
    assert_true(WIFEXITED(status)); /* no second wish */
    assert_int_equal(WEXITSTATUS(status), SIGTERM);
    status = status_after_continue(1, SIGINT);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_signal_asks),
        cmocka_unit_test(test_second_signal_ends_at_once),
        cmocka_unit_test(test_launcher_announces_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
