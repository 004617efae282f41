#define _GNU_SOURCE
#include "llmc/run/stop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/comm/comm.h"
#include "llmc/run/status_line.h"

static atomic_int stop_signal; /* the one that asked this process for the end, 0 until then */
static double asked_ms;        /* when it came: the thread that takes signals alone uses it */
static atomic_int is_orderly;  /* the run has begun: there is something to finish */
static pid_t launcher;         /* mpirun's process on this machine, 0 without one */

/* The signals that ask. SIGCONT does only where mpirun may send it; SIGHUP unless whoever started the program
 * has it ignored. */
static void awaited_signals(sigset_t *set)
{
    struct sigaction hang_up = {0};
    sigaction(SIGHUP, NULL, &hang_up);
    sigemptyset(set);
    if (hang_up.sa_handler != SIG_IGN) {
        sigaddset(set, SIGHUP);
    }
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    if (launcher) {
        sigaddset(set, SIGCONT);
    }
}

/* End the program as the signal would have, if it had not been blocked. */
static void end_by_signal(int signal_number)
{
    sigset_t set;
    status_line_clear();
    char text[64];
    snprintf(text, sizeof(text), "ended at once by a second signal, %s", stop_signal_name(signal_number));
    error_tell_end(128 + signal_number, text);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Note the first signal, and let all ranks know. They may be waiting for this one, which may be waiting for
 * them or for a file: before the run has begun nobody waits for a snapshot. An mpirun that ends its ranks was
 * told to, or another rank has failed and said why. */
static void ask_for_end(int signal_number, int is_from_launcher)
{
    if (!atomic_load(&is_orderly) && is_from_launcher) {
        error_exit_silently(EXIT_RUN_AGAIN);
    }
    if (!atomic_load(&is_orderly)) {
        error_exit(EXIT_RUN_AGAIN, "%s before the run had begun: nothing was changed; run again",
                   stop_signal_name(signal_number));
    }
    asked_ms = clock_ms();
    atomic_store(&stop_signal, signal_number);
    comm_post_notice(signal_number);
}

/* A signal soon after the first is the same event, told twice: Slurm signals every process of a step, and
 * torchrun and mpirun, which are among them, then signal their ranks. Who presses Ctrl-C is told so. */
static int is_same_event(int signal_number)
{
    double since_ms = clock_ms() - asked_ms;
    if (since_ms >= STOP_SAME_EVENT_MS) {
        return 0;
    }
    if (signal_number == SIGINT && atomic_load(&stop_signal) == SIGINT) {
        error_print("SIGINT came twice within %d s and counts once: the run writes a snapshot and ends; "
                    "SIGINT after that time ends it at once",
                    STOP_SAME_EVENT_MS / 1000);
    }
    return 1;
}

/* The thread that takes all signals. An mpirun that is told to end wakes its ranks by SIGCONT, sends SIGTERM
 * a second later (or when its odls_base_sigkill_timeout is over) and SIGKILL as long after that. So the time
 * to write a snapshot in begins with SIGCONT; and the SIGTERM that follows is no second wish, however long
 * after the first signal it comes. */
static void *take_signals(void *unused)
{
    (void)unused;
    sigset_t set;
    awaited_signals(&set);
    int is_announced = 0;
    for (;;) {
        siginfo_t from;
        int signal_number = sigwaitinfo(&set, &from);
        if (signal_number < 0) {
            CHECK(errno == EINTR, "cannot wait for signals: %s", strerror(errno));
        } else if (signal_number == SIGCONT) {
            if (from.si_code == SI_USER && from.si_pid == launcher) {
                is_announced = 1;
                if (!atomic_load(&stop_signal)) {
                    ask_for_end(SIGTERM, 1);
                }
            }
        } else if (is_announced && signal_number == SIGTERM) {
            is_announced = 0;
        } else if (signal_number == SIGHUP && atomic_load(&stop_signal)) {
            continue; /* another part of the same terminal */
        } else if (atomic_load(&stop_signal)) {
            if (!is_same_event(signal_number)) {
                end_by_signal(signal_number);
            }
        } else {
            is_announced = signal_number == SIGHUP;
            ask_for_end(signal_number, 0);
        }
    }
    return NULL;
}

void stop_hold(void)
{
    if (getenv("OMPI_COMM_WORLD_SIZE")) {
        launcher = getppid();
    }
    sigset_t set;
    awaited_signals(&set);
    int failed = pthread_sigmask(SIG_BLOCK, &set, NULL);
    CHECK(!failed, "cannot block signals: %s", strerror(failed));
}

void stop_install(void)
{
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write, like a full disk */
    signal(SIGPIPE, SIG_IGN); /* and so is a console that nobody reads */
    stop_hold();
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, take_signals, NULL);
    CHECK(!failed, "cannot start a thread: %s", strerror(failed));
    pthread_detach(thread);
}

void stop_in_order(void)
{
    atomic_store(&is_orderly, 1);
}

void stop_post_failure(void)
{
    comm_post_notice(STOP_FAILED);
}

int stop_requested(void)
{
    return comm_notice();
}

const char *stop_signal_name(int signal_number)
{
    return signal_number == SIGUSR1   ? "SIGUSR1"
           : signal_number == SIGTERM ? "SIGTERM"
           : signal_number == SIGHUP  ? "SIGHUP"
                                      : "SIGINT";
}
