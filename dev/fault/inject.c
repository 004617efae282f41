/* Makes calls of the C library fail, for programs that are started with this library in LD_PRELOAD.
 *   FAULT=CALL:N:ACTION[:on]  the N-th CALL (from 1) meets ACTION; with `on` all later ones too
 *   FAULT_PROGRAM=NAME        only in the program of this name (default: in all)
 *   FAULT_RANK=R              only in the process whose RANK is R
 *   FAULT_UNDER=FOLDER        calls on files count only for files in this folder (default: all)
 *   FAULT_COUNTS=FILE         a file that receives how often each call was made, and whether the fault came
 * CALL is a name of call_names. ACTION is the name of an errno (EIO: the call does nothing and fails), short
 * (it does half of what was asked for), before and after (SIGKILL at that moment), torn (half, then SIGKILL).
 * Writes to descriptors 1 and 2 are the call `console`.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dev/fault/calls.h"

enum { DESCRIPTORS_MAX = 4096 };

typedef enum Strike { STRIKE_NONE, STRIKE_FAIL, STRIKE_SHORT, STRIKE_TORN, STRIKE_AFTER } Strike;

static FaultCounts own_counts;
static FaultCounts *counts = &own_counts;
static int is_armed; /* this process is the one */
static int call_wanted = -1;
static int64_t number_wanted;
static int goes_on;
static int is_before;
static Strike strike_wanted;
static int error_wanted;
static char under[PATH_MAX];
static size_t under_bytes;
static _Atomic unsigned char is_under_descriptor[DESCRIPTORS_MAX];

#define NEXT(name)                                                                                           \
    static __typeof__(name) *next;                                                                           \
    if (!next) {                                                                                             \
        next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);                                                  \
    }

/* ---- set-up ---------------------------------------------------------------------------------------------*/

static _Noreturn void misuse(const char *what, const char *value)
{
    fprintf(stderr, "fault: %s: %s\n", what, value);
    abort();
}

static void parse_fault(const char *text)
{
    char call[32], action[32], on[8] = "";
    long long number;
    if (sscanf(text, "%31[^:]:%lld:%31[^:]:%7s", call, &number, action, on) < 3 || number < 1) {
        misuse("expected CALL:N:ACTION", text);
    }
    for (int i = 0; i < CALLS_COUNT; i++) {
        call_wanted = strcmp(call, call_names[i]) == 0 ? i : call_wanted;
    }
    number_wanted = number;
    goes_on = strcmp(on, "on") == 0;
    strike_wanted = strcmp(action, "short") == 0   ? STRIKE_SHORT
                    : strcmp(action, "torn") == 0  ? STRIKE_TORN
                    : strcmp(action, "after") == 0 ? STRIKE_AFTER
                                                   : STRIKE_FAIL;
    is_before = strcmp(action, "before") == 0;
    for (int i = 1; strike_wanted == STRIKE_FAIL && !is_before && i < 200; i++) {
        const char *name = strerrorname_np(i);
        error_wanted = name && strcmp(name, action) == 0 ? i : error_wanted;
    }
    if (call_wanted < 0 || (strike_wanted == STRIKE_FAIL && !is_before && !error_wanted)) {
        misuse("unknown call or action", text);
    }
}

__attribute__((constructor)) static void set_up(void)
{
    const char *fault = getenv("FAULT");
    const char *program = getenv("FAULT_PROGRAM");
    const char *rank = getenv("FAULT_RANK");
    const char *own_rank = getenv("RANK");
    const char *file = getenv("FAULT_COUNTS");
    const char *folder = getenv("FAULT_UNDER");
    if ((program && strcmp(program, program_invocation_short_name) != 0) ||
        (rank && strcmp(rank, own_rank ? own_rank : "0") != 0)) {
        return;
    }
    if (folder && !realpath(folder, under)) {
        misuse("no such folder", folder);
    }
    under_bytes = strlen(under);
    if (file) {
        int descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        void *map = MAP_FAILED;
        if (descriptor >= 0 && ftruncate(descriptor, sizeof(FaultCounts)) == 0) {
            map = mmap(NULL, sizeof(FaultCounts), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        }
        if (map == MAP_FAILED) {
            misuse("cannot map", file);
        }
        counts = map;
        close(descriptor);
    }
    if (fault) {
        parse_fault(fault);
    }
    is_armed = 1;
}

/* ---- which calls count ----------------------------------------------------------------------------------*/

/* One more of this call: what happens to it? Sets errno where it fails. */
static Strike strike(int call)
{
    if (!is_armed) {
        return STRIKE_NONE;
    }
    int64_t number = atomic_fetch_add(&counts->made[call], 1) + 1;
    if (call != call_wanted || (goes_on ? number < number_wanted : number != number_wanted)) {
        return STRIKE_NONE;
    }
    counts->fired = 1;
    if (is_before) {
        kill(getpid(), SIGKILL);
    }
    if (strike_wanted == STRIKE_FAIL) {
        errno = error_wanted;
    }
    return strike_wanted;
}

static int is_under_path(int folder, const char *path)
{
    if (under_bytes == 0) {
        return 1;
    }
    if (path && path[0] == '/') {
        return strncmp(path, under, under_bytes) == 0;
    }
    if (folder != AT_FDCWD) {
        return folder >= 0 && folder < DESCRIPTORS_MAX && is_under_descriptor[folder];
    }
    char present[PATH_MAX];
    return getcwd(present, sizeof(present)) && strncmp(present, under, under_bytes) == 0;
}

static Strike strike_path(int call, int folder, const char *path)
{
    return is_armed && is_under_path(folder, path) ? strike(call) : STRIKE_NONE;
}

static Strike strike_descriptor(int call, int descriptor)
{
    int counts_here = descriptor >= 0 && descriptor < DESCRIPTORS_MAX && is_under_descriptor[descriptor];
    return is_armed && (under_bytes == 0 || counts_here) ? strike(call) : STRIKE_NONE;
}

/* A descriptor that an open returned. */
static int opened(int descriptor, int is_under)
{
    if (descriptor >= 0 && descriptor < DESCRIPTORS_MAX) {
        is_under_descriptor[descriptor] = (unsigned char)is_under;
    }
    return descriptor;
}

/* SIGKILL where the strike asks for it after the call; errno stays. */
static void finish(Strike now)
{
    if (now == STRIKE_AFTER || now == STRIKE_TORN) {
        kill(getpid(), SIGKILL);
    }
}

static size_t part(Strike now, size_t bytes)
{
    return (now == STRIKE_SHORT || now == STRIKE_TORN) && bytes > 1 ? bytes / 2 : bytes;
}

/* A call that has no half. */
#define WHOLE(type, name, failure, strike_call, arguments, ...)                                              \
    type name arguments                                                                                      \
    {                                                                                                        \
        NEXT(name)                                                                                           \
        Strike now = strike_call;                                                                            \
        if (now == STRIKE_FAIL) {                                                                            \
            return failure;                                                                                  \
        }                                                                                                    \
        type result = next(__VA_ARGS__);                                                                     \
        finish(now);                                                                                         \
        return result;                                                                                       \
    }

/* ---- files ----------------------------------------------------------------------------------------------*/

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                                           \
    int name(const char *path, int flags, ...)                                                               \
    {                                                                                                        \
        NEXT(name)                                                                                           \
        va_list arguments;                                                                                   \
        va_start(arguments, flags);                                                                          \
        mode_t mode = mode_of(flags, arguments);                                                             \
        va_end(arguments);                                                                                   \
        Strike now = strike_path(CALL_OPEN, AT_FDCWD, path);                                                 \
        if (now == STRIKE_FAIL) {                                                                            \
            return -1;                                                                                       \
        }                                                                                                    \
        int descriptor = opened(next(path, flags, mode), is_under_path(AT_FDCWD, path));                     \
        finish(now);                                                                                         \
        return descriptor;                                                                                   \
    }
#define OPENAT(name)                                                                                         \
    int name(int folder, const char *path, int flags, ...)                                                   \
    {                                                                                                        \
        NEXT(name)                                                                                           \
        va_list arguments;                                                                                   \
        va_start(arguments, flags);                                                                          \
        mode_t mode = mode_of(flags, arguments);                                                             \
        va_end(arguments);                                                                                   \
        Strike now = strike_path(CALL_OPEN, folder, path);                                                   \
        if (now == STRIKE_FAIL) {                                                                            \
            return -1;                                                                                       \
        }                                                                                                    \
        int descriptor = opened(next(folder, path, flags, mode), is_under_path(folder, path));               \
        finish(now);                                                                                         \
        return descriptor;                                                                                   \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                                          \
    FILE *name(const char *path, const char *mode)                                                           \
    {                                                                                                        \
        NEXT(name)                                                                                           \
        Strike now = strike_path(CALL_OPEN, AT_FDCWD, path);                                                 \
        if (now == STRIKE_FAIL) {                                                                            \
            return NULL;                                                                                     \
        }                                                                                                    \
        FILE *file = next(path, mode);                                                                       \
        if (file) {                                                                                          \
            opened(fileno(file), is_under_path(AT_FDCWD, path));                                             \
        }                                                                                                    \
        finish(now);                                                                                         \
        return file;                                                                                         \
    }
FOPEN(fopen)
FOPEN(fopen64)

WHOLE(DIR *, opendir, NULL, strike_path(CALL_OPENDIR, AT_FDCWD, path), (const char *path), path)
WHOLE(DIR *, fdopendir, NULL, strike_descriptor(CALL_OPENDIR, descriptor), (int descriptor), descriptor)
WHOLE(struct dirent *, readdir, NULL, strike(CALL_READDIR), (DIR * folder), folder)
WHOLE(struct dirent64 *, readdir64, NULL, strike(CALL_READDIR), (DIR * folder), folder)

static int call_of_write(int descriptor)
{
    return descriptor == 1 || descriptor == 2 ? CALL_CONSOLE : CALL_WRITE;
}

static Strike strike_write(int descriptor)
{
    int call = call_of_write(descriptor);
    return call == CALL_CONSOLE ? strike(call) : strike_descriptor(call, descriptor);
}

static Strike strike_file(FILE *file)
{
    int descriptor = file ? fileno(file) : -1;
    return descriptor == 1 || descriptor == 2 ? strike(CALL_CONSOLE)
                                              : strike_descriptor(CALL_FLUSH, descriptor);
}

/* What the C library's own buffers hold is written inside of it: here is where that fails. */
WHOLE(int, fflush, EOF, strike_file(file), (FILE * file), file)

#define TRANSFER(type, name, strike_call, arguments, ...)                                                    \
    type name arguments                                                                                      \
    {                                                                                                        \
        NEXT(name)                                                                                           \
        Strike now = strike_call;                                                                            \
        if (now == STRIKE_FAIL) {                                                                            \
            return -1;                                                                                       \
        }                                                                                                    \
        bytes = part(now, bytes);                                                                            \
        type result = next(__VA_ARGS__);                                                                     \
        finish(now);                                                                                         \
        return result;                                                                                       \
    }
TRANSFER(ssize_t, read, strike_descriptor(CALL_READ, descriptor), (int descriptor, void *data, size_t bytes),
         descriptor, data, bytes)
TRANSFER(ssize_t, pread, strike_descriptor(CALL_PREAD, descriptor),
         (int descriptor, void *data, size_t bytes, off_t offset), descriptor, data, bytes, offset)
TRANSFER(ssize_t, pread64, strike_descriptor(CALL_PREAD, descriptor),
         (int descriptor, void *data, size_t bytes, off64_t offset), descriptor, data, bytes, offset)
TRANSFER(ssize_t, write, strike_write(descriptor), (int descriptor, const void *data, size_t bytes),
         descriptor, data, bytes)
TRANSFER(ssize_t, pwrite, strike_descriptor(CALL_PWRITE, descriptor),
         (int descriptor, const void *data, size_t bytes, off_t offset), descriptor, data, bytes, offset)
TRANSFER(ssize_t, pwrite64, strike_descriptor(CALL_PWRITE, descriptor),
         (int descriptor, const void *data, size_t bytes, off64_t offset), descriptor, data, bytes, offset)

WHOLE(ssize_t, writev, -1, strike_write(descriptor), (int descriptor, const struct iovec *parts, int count),
      descriptor, parts, count)
WHOLE(int, fsync, -1, strike_descriptor(CALL_FSYNC, descriptor), (int descriptor), descriptor)
WHOLE(int, fdatasync, -1, strike_descriptor(CALL_FSYNC, descriptor), (int descriptor), descriptor)
WHOLE(int, ftruncate, -1, strike_descriptor(CALL_TRUNCATE, descriptor), (int descriptor, off_t bytes),
      descriptor, bytes)
WHOLE(int, ftruncate64, -1, strike_descriptor(CALL_TRUNCATE, descriptor), (int descriptor, off64_t bytes),
      descriptor, bytes)
WHOLE(int, flock, -1, strike_descriptor(CALL_LOCK, descriptor), (int descriptor, int operation), descriptor,
      operation)
WHOLE(int, rename, -1, strike_path(CALL_RENAME, AT_FDCWD, from), (const char *from, const char *to), from, to)
WHOLE(int, renameat, -1, strike_path(CALL_RENAME, from_folder, from),
      (int from_folder, const char *from, int to_folder, const char *to), from_folder, from, to_folder, to)
WHOLE(int, renameat2, -1, strike_path(CALL_RENAME, from_folder, from),
      (int from_folder, const char *from, int to_folder, const char *to, unsigned flags), from_folder, from,
      to_folder, to, flags)
WHOLE(int, link, -1, strike_path(CALL_LINK, AT_FDCWD, from), (const char *from, const char *to), from, to)
WHOLE(int, linkat, -1, strike_path(CALL_LINK, from_folder, from),
      (int from_folder, const char *from, int to_folder, const char *to, int flags), from_folder, from,
      to_folder, to, flags)
WHOLE(int, unlink, -1, strike_path(CALL_UNLINK, AT_FDCWD, path), (const char *path), path)
WHOLE(int, unlinkat, -1, strike_path(CALL_UNLINK, folder, path), (int folder, const char *path, int flags),
      folder, path, flags)
WHOLE(int, rmdir, -1, strike_path(CALL_UNLINK, AT_FDCWD, path), (const char *path), path)
WHOLE(int, remove, -1, strike_path(CALL_UNLINK, AT_FDCWD, path), (const char *path), path)
WHOLE(int, mkdir, -1, strike_path(CALL_MKDIR, AT_FDCWD, path), (const char *path, mode_t mode), path, mode)
WHOLE(int, mkdirat, -1, strike_path(CALL_MKDIR, folder, path), (int folder, const char *path, mode_t mode),
      folder, path, mode)
WHOLE(char *, mkdtemp, NULL, strike_path(CALL_MKDIR, AT_FDCWD, pattern), (char *pattern), pattern)
WHOLE(int, chmod, -1, strike_path(CALL_CHMOD, AT_FDCWD, path), (const char *path, mode_t mode), path, mode)
WHOLE(int, fchmod, -1, strike_descriptor(CALL_CHMOD, descriptor), (int descriptor, mode_t mode), descriptor,
      mode)
WHOLE(int, stat, -1, strike_path(CALL_STAT, AT_FDCWD, path), (const char *path, struct stat *status), path,
      status)
WHOLE(int, lstat, -1, strike_path(CALL_STAT, AT_FDCWD, path), (const char *path, struct stat *status), path,
      status)
WHOLE(int, fstat, -1, strike_descriptor(CALL_STAT, descriptor), (int descriptor, struct stat *status),
      descriptor, status)
WHOLE(int, fstatat, -1, strike_path(CALL_STAT, folder, path),
      (int folder, const char *path, struct stat *status, int flags), folder, path, status, flags)
WHOLE(int, access, -1, strike_path(CALL_STAT, AT_FDCWD, path), (const char *path, int mode), path, mode)
WHOLE(char *, realpath, NULL, strike_path(CALL_STAT, AT_FDCWD, path), (const char *path, char *out), path,
      out)

int close(int descriptor)
{
    NEXT(close)
    Strike now = strike_descriptor(CALL_CLOSE, descriptor);
    int reason = errno;
    opened(descriptor, 0);
    int result = next(descriptor); /* a close that fails has closed all the same */
    finish(now);
    if (now == STRIKE_FAIL) {
        errno = reason;
        return -1;
    }
    return result;
}

/* ---- memory ---------------------------------------------------------------------------------------------*/

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

#define ALLOCATE(allocation)                                                                                 \
    Strike now = strike(CALL_MALLOC);                                                                        \
    void *block = now == STRIKE_FAIL ? NULL : allocation;                                                    \
    finish(now);

void *malloc(size_t bytes)
{
    ALLOCATE(__libc_malloc(bytes))
    return block;
}

void *calloc(size_t count, size_t bytes)
{
    ALLOCATE(__libc_calloc(count, bytes))
    return block;
}

void *realloc(void *old, size_t bytes)
{
    ALLOCATE(__libc_realloc(old, bytes))
    return block;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    ALLOCATE(__libc_memalign(alignment, bytes))
    return block;
}

void *memalign(size_t alignment, size_t bytes)
{
    ALLOCATE(__libc_memalign(alignment, bytes))
    return block;
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    ALLOCATE(__libc_memalign(alignment, bytes))
    *out = block;
    return block ? 0 : ENOMEM;
}

#define MMAP(name, offset_type)                                                                              \
    void *name(void *address, size_t bytes, int protection, int flags, int descriptor, offset_type offset)   \
    {                                                                                                        \
        NEXT(name)                                                                                           \
        Strike now = strike(CALL_MMAP);                                                                      \
        if (now == STRIKE_FAIL) {                                                                            \
            return MAP_FAILED;                                                                               \
        }                                                                                                    \
        void *result = next(address, bytes, protection, flags, descriptor, offset);                          \
        finish(now);                                                                                         \
        return result;                                                                                       \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *),
                   void *argument)
{
    NEXT(pthread_create)
    Strike now = strike(CALL_THREAD);
    if (now == STRIKE_FAIL) {
        return error_wanted;
    }
    int result = next(thread, attributes, begin, argument);
    finish(now);
    return result;
}

/* ---- sockets --------------------------------------------------------------------------------------------*/

WHOLE(int, socket, -1, strike(CALL_SOCKET), (int domain, int type, int protocol), domain, type, protocol)
WHOLE(int, bind, -1, strike(CALL_BIND), (int s, const struct sockaddr *address, socklen_t bytes), s, address,
      bytes)
WHOLE(int, listen, -1, strike(CALL_BIND), (int s, int backlog), s, backlog)
WHOLE(int, setsockopt, -1, strike(CALL_BIND),
      (int s, int level, int name, const void *value, socklen_t bytes), s, level, name, value, bytes)
WHOLE(int, connect, -1, strike(CALL_CONNECT), (int s, const struct sockaddr *address, socklen_t bytes), s,
      address, bytes)
WHOLE(int, accept, -1, strike(CALL_ACCEPT), (int s, struct sockaddr *address, socklen_t *bytes), s, address,
      bytes)
WHOLE(int, accept4, -1, strike(CALL_ACCEPT), (int s, struct sockaddr *address, socklen_t *bytes, int flags),
      s, address, bytes, flags)
TRANSFER(ssize_t, send, strike(CALL_SEND), (int s, const void *data, size_t bytes, int flags), s, data, bytes,
         flags)
TRANSFER(ssize_t, recv, strike(CALL_RECEIVE), (int s, void *data, size_t bytes, int flags), s, data, bytes,
         flags)
WHOLE(ssize_t, sendmsg, -1, strike(CALL_SEND), (int s, const struct msghdr *message, int flags), s, message,
      flags)
WHOLE(ssize_t, recvmsg, -1, strike(CALL_RECEIVE), (int s, struct msghdr *message, int flags), s, message,
      flags)
WHOLE(int, poll, -1, strike(CALL_POLL), (struct pollfd * polled, nfds_t count, int timeout_ms), polled, count,
      timeout_ms)
