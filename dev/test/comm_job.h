/* A job of real processes on this machine, started as torchrun would: ranks of `test_comm worker`. */
#ifndef DEV_TEST_COMM_JOB_H
#define DEV_TEST_COMM_JOB_H

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/test/scratch.h"
#include "dev/test/time_scale.h"
#include "llmc/base/clock.h"

enum { JOB_RANKS_MAX = 8, JOB_DEADLINE_S = 100, JOB_ERROR_BYTES = 4096 };

typedef struct Job {
    int count, port;
    const char *scenario, *argument;
    int timeout_s;     /* COMM_TIMEOUT on a quiet machine, or 0 */
    int first_process; /* jobs that run at once: names of their files begin here */
    pid_t pids[JOB_RANKS_MAX];
    int out; /* what the ranks print */
    int out_write;
} Job;

/* A port that was free a moment ago. */
static inline int job_free_port(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(any);
    int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(descriptor, (struct sockaddr *)&any, sizeof(any)) != 0 ||
        getsockname(descriptor, (struct sockaddr *)&any, &bytes) != 0) {
        fail_msg("no free port");
    }
    close(descriptor);
    return ntohs(any.sin_port);
}

static inline char *job_error_path(int process)
{
    char name[32];
    snprintf(name, sizeof(name), "stderr.%d", process);
    return scratch_path(name);
}

static inline void job_set(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

/* Process `process` of the job, which says that it is `rank` of `count`. */
static inline void job_start_one(Job *job, int process, int rank, int count)
{
    char *error_path = job_error_path(job->first_process + process);
    job->pids[process] = fork();
    if (job->pids[process] == 0) {
        job_set("RANK", rank);
        job_set("WORLD_SIZE", count);
        job_set("MASTER_PORT", job->port);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        if (job->timeout_s) {
            job_set("COMM_TIMEOUT", job->timeout_s * time_scale());
        }
        if (dup2(job->out_write, STDOUT_FILENO) >= 0 && freopen(error_path, "w", stderr)) {
            execl("/proc/self/exe", "test_comm", "worker", job->scenario, job->argument, (char *)NULL);
        }
        _exit(127);
    }
}

static inline void job_init(Job *job, int count, const char *scenario, const char *argument)
{
    int ends[2];
    *job = (Job){.count = count, .port = job_free_port(), .scenario = scenario, .argument = argument};
    assert_int_equal(pipe(ends), 0);
    job->out = ends[0];
    job->out_write = ends[1];
}

static inline void job_start(Job *job)
{
    for (int rank = 0; rank < job->count; rank++) {
        job_start_one(job, rank, rank, job->count);
    }
}

static inline void job_fail(Job *job, const char *what)
{
    for (int i = 0; i < job->count; i++) {
        size_t bytes;
        unsigned char *text = scratch_read(job_error_path(job->first_process + i), &bytes);
        fprintf(stderr, "# process %d: %.*s\n", i, (int)bytes, text);
        free(text);
        if (job->pids[i] > 0) {
            kill(job->pids[i], SIGKILL);
            waitpid(job->pids[i], NULL, 0);
        }
    }
    fail_msg("%s", what);
}

/* Until every rank has said that it is ready. */
static inline void job_wait_ready(Job *job)
{
    double end_ms = clock_ms() + JOB_DEADLINE_S * 1e3 * time_scale();
    int ready_count = 0;
    while (ready_count < job->count) {
        struct pollfd one = {.fd = job->out, .events = POLLIN};
        char text[256];
        if (poll(&one, 1, 100) > 0) {
            ssize_t bytes = read(job->out, text, sizeof(text));
            for (ssize_t i = 0; i < bytes; i++) {
                ready_count += text[i] == '\n';
            }
        }
        if (clock_ms() > end_ms) {
            job_fail(job, "the ranks did not get ready");
        }
    }
}

/* The exit code of a process; 128 + the signal that ended it. */
static inline int job_wait(Job *job, int process)
{
    double end_ms = clock_ms() + JOB_DEADLINE_S * 1e3 * time_scale();
    int status;
    while (waitpid(job->pids[process], &status, WNOHANG) == 0) {
        if (clock_ms() > end_ms) {
            char text[64];
            snprintf(text, sizeof(text), "process %d did not end", process);
            job_fail(job, text);
        }
        usleep(2000);
    }
    job->pids[process] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Takes out the lines by which a rank says that it waits for others: how many depends on the machine. */
static inline void job_drop_waiting(char *text)
{
    for (char *line = text; *line;) {
        char *end = strchr(line, '\n'), *next = end ? end + 1 : line + strlen(line);
        char *found = strstr(line, " waits for ");
        if (found && found < next) {
            memmove(line, next, strlen(next) + 1);
        } else {
            line = next;
        }
    }
}

/* Its standard error must be exactly one line that holds these texts (or, without any, nothing), but for
 * those that say that it waits. */
static inline void job_expect_error(Job *job, int process, const char *first, const char *second)
{
    size_t bytes;
    int line_count = 0;
    char *text = (char *)scratch_read(job_error_path(job->first_process + process), &bytes);
    text[bytes] = 0;
    job_drop_waiting(text);
    for (size_t i = 0; text[i]; i++) {
        line_count += text[i] == '\n';
    }
    int expected = first ? 1 : 0;
    if (line_count != expected || (first && !strstr(text, first)) || (second && !strstr(text, second))) {
        char what[JOB_ERROR_BYTES];
        snprintf(what, sizeof(what), "process %d: expected %d line with \"%s\" and \"%s\", found %d: %.3000s",
                 process, expected, first ? first : "", second ? second : "", line_count, text);
        job_fail(job, what);
    }
    free(text);
}

/* Whether a process has said that, so far. */
static inline int job_has_text(Job *job, int process, const char *expected)
{
    size_t bytes;
    if (access(job_error_path(job->first_process + process), F_OK) != 0) {
        return 0;
    }
    char *text = (char *)scratch_read(job_error_path(job->first_process + process), &bytes);
    text[bytes] = 0;
    int has_text = strstr(text, expected) != NULL;
    free(text);
    return has_text;
}

/* Until a process has said both. */
static inline void job_wait_text(Job *job, int process, const char *first, const char *second)
{
    double end_ms = clock_ms() + JOB_DEADLINE_S * 1e3 * time_scale();
    while (!job_has_text(job, process, first) || !job_has_text(job, process, second)) {
        if (clock_ms() > end_ms) {
            job_fail(job, second);
        }
        usleep(5000);
    }
}

static inline void job_expect(Job *job, int process, int exit_code, const char *first, const char *second)
{
    int found = job_wait(job, process);
    job_expect_error(job, process, first, second);
    if (found != exit_code) {
        char what[64];
        snprintf(what, sizeof(what), "process %d: expected exit code %d, found %d", process, exit_code,
                 found);
        job_fail(job, what);
    }
}

static inline void job_release(Job *job)
{
    close(job->out);
    close(job->out_write);
}

#endif
