#define _GNU_SOURCE
#include "llmc/run/ending.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/folder_lock.h"

enum { LINE_BYTES = 640, WRITE_MS_MAX = 2000 };

typedef enum Standing { STRANGER, MEMBER, OWNER } Standing;

/* The run that this process is part of: there is one. */
static struct {
    char folder[PATH_BYTES_MAX], path[PATH_BYTES_MAX], lock_path[PATH_BYTES_MAX];
    atomic_int standing;
    char line[LINE_BYTES]; /* handed to the thread that writes */
    pthread_mutex_t lock;  /* guards is_written */
    pthread_cond_t changed;
    int is_written;
} ending = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* One write of less than a page: a reader sees the whole line or, without its end, that it is not whole yet.
 * A file that cannot be written is done without: the exit code says the same. */
static void write_line(void)
{
    int standing = atomic_load(&ending.standing);
    if (standing == STRANGER && folder_lock_is_held(ending.folder)) {
        return;
    }
    if (standing == OWNER) {
        unlink(ending.path);
    }
    int file = open(ending.path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0) {
        ssize_t bytes = write(file, ending.line, strlen(ending.line));
        (void)bytes;
        close(file);
    }
}

static void *write_aside(void *unused)
{
    (void)unused;
    write_line();
    pthread_mutex_lock(&ending.lock);
    ending.is_written = 1;
    pthread_cond_broadcast(&ending.changed);
    pthread_mutex_unlock(&ending.lock);
    return NULL;
}

/* By a thread of its own: this one must end the process also when the file system does not answer. */
static void leave_line(int exit_code, const char *text)
{
    snprintf(ending.line, sizeof(ending.line) - 1, "%d %s", exit_code, text);
    strcat(ending.line, "\n");
    pthread_t thread;
    if (pthread_create(&thread, NULL, write_aside, NULL) != 0) {
        return;
    }
    pthread_detach(thread);
    double end_ms = clock_ms() + WRITE_MS_MAX;
    pthread_mutex_lock(&ending.lock);
    while (!ending.is_written && clock_wait(&ending.changed, &ending.lock, end_ms) == 0) {
    }
    pthread_mutex_unlock(&ending.lock);
}

void ending_init(const char *out_dir)
{
    if (path_join(ending.path, out_dir, ENDING_FILE, NULL) != 0) {
        return;
    }
    snprintf(ending.folder, sizeof(ending.folder), "%s", out_dir);
    clock_condition_init(&ending.changed);
    error_set_end_hook(leave_line);
}

/* By name: once the lock is released there is no such file, or it is another run's, which also lives now. */
static void *beat(void *unused)
{
    (void)unused;
    for (;;) {
        nanosleep(
            &(struct timespec){.tv_sec = ENDING_BEAT_MS / 1000, .tv_nsec = ENDING_BEAT_MS % 1000 * 1000000L},
            NULL);
        utimensat(AT_FDCWD, ending.lock_path, NULL, 0);
    }
    return NULL;
}

void ending_own(const char *lock_path)
{
    if (!ending.path[0] || atomic_exchange(&ending.standing, OWNER) == OWNER) {
        return;
    }
    unlink(ending.path);
    snprintf(ending.lock_path, sizeof(ending.lock_path), "%s", lock_path);
    pthread_t thread;
    if (pthread_create(&thread, NULL, beat, NULL) == 0) {
        pthread_detach(thread);
    }
}

void ending_join(void)
{
    int before = STRANGER;
    atomic_compare_exchange_strong(&ending.standing, &before, MEMBER);
}
