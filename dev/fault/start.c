/* Starts a program once or as several ranks, with a launcher's manners, for run.sh.
 *   start COUNT LIMIT PATIENCE [NAME=VALUE]... COMMAND...
 * COUNT 1: one process, its words in the files stdout and stderr. More: RANK and WORLD_SIZE are set, and the
 * words are in stdout.R and stderr.R. Who has not ended after LIMIT seconds is killed. When one process has
 * failed, the others have PATIENCE seconds to find out; then they get SIGTERM, and as many seconds later are
 * killed too. Prints what each ended with: the exit code, 128 + signal, or 124 for who was killed here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"

enum { RANKS_MAX = 16, HUNG = 124, SIGNALLED = 128 };

typedef struct Process {
    pid_t id;
    int has_ended;
    int is_killed; /* by this program */
    int status;
} Process;

static void redirect(int descriptor, const char *name, int rank, int count)
{
    char path[64];
    snprintf(path, sizeof(path), count > 1 ? "%s.%d" : "%s", name, rank);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CHECK(file >= 0 && dup2(file, descriptor) == descriptor, "%s: %s", path, strerror(errno));
    close(file);
}

/* The leading NAME=VALUE of `words` are for this process. */
static void become(char **words, int rank, int count, const sigset_t *mask)
{
    redirect(STDOUT_FILENO, "stdout", rank, count);
    redirect(STDERR_FILENO, "stderr", rank, count);
    if (count > 1) {
        char text[16];
        snprintf(text, sizeof(text), "%d", rank);
        setenv("RANK", text, 1);
        snprintf(text, sizeof(text), "%d", count);
        setenv("WORLD_SIZE", text, 1);
    }
    while (*words && strchr(*words, '=') && (*words)[0] != '-') {
        putenv(*words++);
    }
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(words[0], words);
    _exit(127);
}

/* Note who has ended. Returns how many live on. */
static int reap(Process *processes, int count, int *has_failed)
{
    int status, living = 0;
    for (int i = 0; i < count; i++) {
        Process *process = &processes[i];
        if (!process->has_ended && waitpid(process->id, &status, WNOHANG) == process->id) {
            process->has_ended = 1;
            process->status = WIFSIGNALED(status) ? SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
            process->status = process->is_killed ? HUNG : process->status;
            *has_failed |= process->status != 0;
        }
        living += !process->has_ended;
    }
    return living;
}

static void signal_all(Process *processes, int count, int signal_number)
{
    for (int i = 0; i < count; i++) {
        if (!processes[i].has_ended) {
            processes[i].is_killed |= signal_number == SIGKILL;
            kill(-processes[i].id, signal_number);
        }
    }
}

static void watch(Process *processes, int count, double limit_ms, double patience_ms, const sigset_t *child)
{
    double begin_ms = clock_ms(), failed_ms = 0;
    int is_told = 0, has_failed = 0;
    while (reap(processes, count, &has_failed) > 0) {
        double now_ms = clock_ms();
        failed_ms = has_failed && failed_ms == 0 ? now_ms : failed_ms;
        if (has_failed && !is_told && now_ms - failed_ms > patience_ms) {
            signal_all(processes, count, SIGTERM);
            is_told = 1;
        }
        if (now_ms - begin_ms > limit_ms || (has_failed && now_ms - failed_ms > 2 * patience_ms)) {
            signal_all(processes, count, SIGKILL);
        }
        sigtimedwait(child, NULL, &(struct timespec){.tv_nsec = 20000000});
    }
}

int main(int argc, char **argv)
{
    error_set_program("start");
    int count = argc > 4 ? atoi(argv[1]) : 0;
    if (count < 1 || count > RANKS_MAX) {
        error_exit(EXIT_FAILED, "expected COUNT LIMIT PATIENCE [NAME=VALUE]... COMMAND...");
    }
    sigset_t child, before;
    Process processes[RANKS_MAX] = {0};
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    for (int i = 0; i < count; i++) {
        processes[i].id = fork();
        CHECK(processes[i].id >= 0, "cannot start a process: %s", strerror(errno));
        if (processes[i].id == 0) {
            become(argv + 4, i, count, &before);
        }
        setpgid(processes[i].id, processes[i].id);
    }
    watch(processes, count, 1000 * atof(argv[2]), 1000 * atof(argv[3]), &child);
    for (int i = 0; i < count; i++) {
        printf("%s%d", i ? " " : "", processes[i].status);
    }
    printf("\n");
    return 0;
}
