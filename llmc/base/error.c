#define _GNU_SOURCE
#include "llmc/base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "llmc/base/format.h"

static const char *program_name = "train_gpt2";
static int rank_number = -1;
static char rank_host[64];
static void (*abort_hook)(int exit_code);
static void (*line_hook)(void);
static void (*end_hook)(int exit_code, const char *text);
static pthread_mutex_t last_line_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_line[512];
static pthread_mutex_t way_out_lock = PTHREAD_MUTEX_INITIALIZER;
static char way_out[ERROR_WAY_OUT_BYTES] = "no snapshot was written yet; run again";

int error_set(Error *error, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
        error->may_pass = 0;
    }
    return -1;
}

static int reason_may_pass(int reason)
{
    static const int passing[] = {EIO,   ESTALE, EMFILE,    ENFILE,   ENOMEM,  EAGAIN,  EINTR,     ENODEV,
                                  ENXIO, ENOLCK, ETIMEDOUT, ENOTCONN, EREMOTE, ENOLINK, EREMOTEIO, ENOBUFS};
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        if (reason == passing[i]) {
            return 1;
        }
    }
    return 0;
}

int error_set_system(Error *error, int reason, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        int written = vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
        if (written >= 0 && (size_t)written < sizeof(error->text)) {
            snprintf(error->text + written, sizeof(error->text) - (size_t)written, ": %s", strerror(reason));
        }
        error->may_pass = reason_may_pass(reason);
    }
    return -1;
}

int error_exit_code(const Error *error)
{
    return error->may_pass ? EXIT_FAULT : EXIT_FAILED;
}

int error_prefix(Error *error, const char *format, ...)
{
    if (error) {
        char old_text[sizeof(error->text)];
        memcpy(old_text, error->text, sizeof(old_text));
        va_list arguments;
        va_start(arguments, format);
        int written = vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
        if (written >= 0 && (size_t)written < sizeof(error->text)) {
            snprintf(error->text + written, sizeof(error->text) - (size_t)written, ": %s", old_text);
        }
    }
    return -1;
}

void error_set_program(const char *name)
{
    program_name = name;
}

void error_set_rank(int rank, const char *host)
{
    rank_number = rank;
    snprintf(rank_host, sizeof(rank_host), "%s", host);
}

void error_set_way_out(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&way_out_lock);
    vsnprintf(way_out, sizeof(way_out), format, arguments);
    pthread_mutex_unlock(&way_out_lock);
    va_end(arguments);
}

void error_way_out(char text[ERROR_WAY_OUT_BYTES])
{
    pthread_mutex_lock(&way_out_lock);
    memcpy(text, way_out, sizeof(way_out));
    pthread_mutex_unlock(&way_out_lock);
}

void error_set_abort_hook(void (*hook)(int exit_code))
{
    abort_hook = hook;
}

void error_set_line_hook(void (*hook)(void))
{
    line_hook = hook;
}

static void call_line_hook(void)
{
    if (line_hook) {
        line_hook();
    }
}

void error_set_end_hook(void (*hook)(int exit_code, const char *text))
{
    end_hook = hook;
}

void error_tell_end(int exit_code, const char *text)
{
    static atomic_flag is_told = ATOMIC_FLAG_INIT;
    char line[sizeof(last_line)];
    if (!end_hook || atomic_flag_test_and_set(&is_told)) {
        return;
    }
    pthread_mutex_lock(&last_line_lock);
    snprintf(line, sizeof(line), "%s", text ? text : last_line);
    pthread_mutex_unlock(&last_line_lock);
    end_hook(exit_code, line);
}

enum { FLUSH_TRIES = 100 };

/* The first thread to fail goes on; what the others would say follows from it, and they wait for the end. A
 * failure of the hook itself ends the process with the first one's code. */
static void claim_end(int exit_code)
{
    static atomic_flag is_claimed = ATOMIC_FLAG_INIT;
    static _Thread_local int claimed_code = -1;
    if (claimed_code >= 0) {
        _exit(claimed_code);
    }
    while (atomic_flag_test_and_set(&is_claimed)) {
        pause();
    }
    claimed_code = exit_code;
}

/* Not by exit(): that would run the destructors of libraries which other threads are using, and a crash
 * there would take the place of the exit code. A thread that is stuck in printf keeps the lock: it is not
 * waited for long. */
static void __attribute__((noreturn)) end_program(int exit_code)
{
    int tries = 0;
    call_line_hook();
    while (ftrylockfile(stdout) != 0 && ++tries < FLUSH_TRIES) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (tries < FLUSH_TRIES) {
        fflush_unlocked(stdout);
        funlockfile(stdout);
    }
    error_tell_end(exit_code, NULL);
    if (abort_hook) {
        abort_hook(exit_code);
    }
    _exit(exit_code);
}

/* A line is printed by one write, so that lines of several ranks do not mix. It may hold names of files and
 * what other machines sent: nothing of that may steer a terminal. */
static void print_line(char *line)
{
    format_printable(line);
    call_line_hook();
    pthread_mutex_lock(&last_line_lock);
    snprintf(last_line, sizeof(last_line), "%s", line);
    pthread_mutex_unlock(&last_line_lock);
    fprintf(stderr, "%s\n", line);
}

/* What every line begins with. Where there are ranks each says which it is: the GPU that failed, or the file
 * that is not there, is on one of many machines. Returns the bytes written. */
static size_t print_speaker(char *line, size_t line_bytes)
{
    int used = rank_number < 0
                   ? snprintf(line, line_bytes, "%s: ", program_name)
                   : snprintf(line, line_bytes, "%s: [rank %d %s] ", program_name, rank_number, rank_host);
    return (size_t)used < line_bytes ? (size_t)used : line_bytes - 1;
}

static void print_text(const char *format, va_list arguments)
{
    char line[2048];
    size_t used = print_speaker(line, sizeof(line));
    vsnprintf(line + used, sizeof(line) - used, format, arguments);
    print_line(line);
}

void error_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_text(format, arguments);
    va_end(arguments);
}

void error_exit(int exit_code, const char *format, ...)
{
    claim_end(exit_code);
    va_list arguments;
    va_start(arguments, format);
    print_text(format, arguments);
    va_end(arguments);
    end_program(exit_code);
}

void error_exit_silently(int exit_code)
{
    claim_end(exit_code);
    end_program(exit_code);
}

void check_failed(const char *file, int line_number, const char *format, ...)
{
    claim_end(EXIT_FAILED);
    char line[2048];
    size_t used = print_speaker(line, sizeof(line));
    used += (size_t)snprintf(line + used, sizeof(line) - used, "%s:%d: ", file, line_number);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof(line) - used, format, arguments);
    va_end(arguments);
    print_line(line);
    end_program(EXIT_FAILED);
}
