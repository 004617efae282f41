#define _GNU_SOURCE
#include "llmc/run/stop.h"

#include <signal.h>
#include <string.h>

#include "llmc/base/error.h"

static volatile sig_atomic_t stop_signal; /* the only thing that a handler can set */

static void handle(int signal_number)
{
    if (stop_signal) { /* the second one: what the system does by default, once this handler returns */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    stop_signal = signal_number;
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
}

int stop_requested(void)
{
    return stop_signal;
}

const char *stop_signal_name(int signal_number)
{
    return signal_number == SIGUSR1 ? "SIGUSR1" : signal_number == SIGTERM ? "SIGTERM" : "SIGINT";
}
