#define _GNU_SOURCE
#include "llmc/run/stop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/base/error.h"

static volatile sig_atomic_t stop_signal; /* the only thing that a handler can set */
static volatile sig_atomic_t is_announced;
static pid_t launcher; /* mpirun's process on this machine, 0 without one */

static void handle(int signal_number)
{
    if (is_announced && signal_number == SIGTERM) {
        is_announced = 0;
        return;
    }
    if (stop_signal) { /* the second one: what the system does by default, once this handler returns */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    stop_signal = signal_number;
}

/* An mpirun that is told to end wakes its ranks by SIGCONT, sends SIGTERM a second later (or when its
 * odls_base_sigkill_timeout is over) and SIGKILL as long after that. So the time to write a snapshot in
 * begins with SIGCONT; and the SIGTERM that follows is no second wish. */
static void handle_continue(int signal_number, siginfo_t *from, void *context)
{
    (void)signal_number;
    (void)context;
    if (from->si_code == SI_USER && from->si_pid == launcher && !stop_signal) {
        is_announced = 1;
        stop_signal = SIGTERM;
    }
}

static void install_launcher(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    launcher = getppid();
    action.sa_sigaction = handle_continue;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    CHECK(sigaction(SIGCONT, &action, NULL) == 0, "cannot handle SIGCONT");
}

void stop_install(void)
{
    static const int signals[] = {SIGUSR1, SIGTERM, SIGINT};
    for (int i = 0; i < 3; i++) {
        struct sigaction action;
        memset(&action, 0, sizeof(action));
        action.sa_handler = handle;
        action.sa_flags = SA_RESTART;
        CHECK(sigaction(signals[i], &action, NULL) == 0, "cannot handle signal %d", signals[i]);
    }
    if (getenv("OMPI_COMM_WORLD_SIZE")) {
        install_launcher();
    }
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write, like a full disk */
}

int stop_requested(void)
{
    return stop_signal;
}

const char *stop_signal_name(int signal_number)
{
    return signal_number == SIGUSR1 ? "SIGUSR1" : signal_number == SIGTERM ? "SIGTERM" : "SIGINT";
}
