/* Signals: the first asks, the second ends the program at once. Each case runs in a child of its own. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_signal_asks),
        cmocka_unit_test(test_second_signal_ends_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
