#define _GNU_SOURCE
#include "llmc/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "llmc/base/format.h"
#include "llmc/base/memory.h"

/* What lies at a path that cannot be used as a file. */
static const char *kind_name(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISLNK(mode)  ? "a link to nothing that is there"
                            : "a device";
}

/* O_NONBLOCK: opening a FIFO would wait for its other end. It changes nothing for a regular file. */
int file_open(const char *path, int flags, Error *error)
{
    struct stat status;
    int descriptor = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    int reason = errno;
    if (descriptor < 0 && (reason == ENOENT || reason == ENXIO || reason == EISDIR) &&
        lstat(path, &status) == 0 && !S_ISREG(status.st_mode) &&
        !(S_ISLNK(status.st_mode) && stat(path, &status) == 0)) {
        error_set(error, "%s: expected a regular file, found %s", path, kind_name(status.st_mode));
    } else if (descriptor < 0) {
        error_set_system(error, reason, "%s: cannot open", path);
    } else if (fstat(descriptor, &status) != 0) {
        reason = errno;
        error_set_system(error, reason, "%s: cannot open", path);
        close(descriptor);
        descriptor = -1;
    } else if (!S_ISREG(status.st_mode)) {
        error_set(error, "%s: expected a regular file, found %s", path, kind_name(status.st_mode));
        close(descriptor);
        descriptor = -1;
        reason = EINVAL;
    }
    errno = reason;
    return descriptor;
}

/* Open a regular file for reading and tell its size. Returns the descriptor, or -1 with *error set. */
static int open_regular(const char *path, uint64_t *bytes, Error *error)
{
    struct stat status;
    int descriptor = file_open(path, O_RDONLY, error);
    if (descriptor < 0) {
        return -1;
    }
    if (fstat(descriptor, &status) != 0) {
        int reason = errno;
        close(descriptor);
        return error_set_system(error, reason, "%s: cannot tell its size", path);
    }
    *bytes = (uint64_t)status.st_size;
    return descriptor;
}

int mapped_file_init(MappedFile *file, const char *path, Error *error)
{
    uint64_t bytes = 0;
    int descriptor = open_regular(path, &bytes, error);
    if (descriptor < 0) {
        return -1;
    }
    void *data = NULL;
    if (bytes > 0) {
        data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
        if (data == MAP_FAILED) {
            int reason = errno;
            close(descriptor);
            return error_set(error, "%s: cannot map %llu bytes: %s", path, (unsigned long long)bytes,
                             strerror(reason));
        }
    }
    close(descriptor);
    file->data = data;
    file->bytes = bytes;
    return 0;
}

void mapped_file_release(MappedFile *file)
{
    if (file->data) {
        munmap((void *)file->data, file->bytes);
    }
    file->data = NULL;
    file->bytes = 0;
}

void file_reserve_standard(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) {
            continue;
        }
        /* The lowest free number is this one. The wrong way round: what cannot be read or written is told. */
        int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (opened < 0 && open("/", O_PATH | O_DIRECTORY) < 0) {
            _exit(EXIT_FAILED); /* not even that: nothing can be opened, and nothing be said */
        }
    }
}

int file_raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) {
        return 0;
    }
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int open_file_init(OpenFile *file, const char *path, Error *error)
{
    errno = 0;
    file->descriptor = open_regular(path, &file->bytes, error);
    if (file->descriptor < 0 && errno == EMFILE && file_raise_descriptor_limit()) {
        file->descriptor = open_regular(path, &file->bytes, error);
    }
    return file->descriptor < 0 ? -1 : 0;
}

void open_file_release(OpenFile *file)
{
    close(file->descriptor);
    file->descriptor = -1;
}

static int error_cut(const OpenFile *file, const char *path, Error *error)
{
    char expected[FORMAT_COUNT_BYTES], found[FORMAT_COUNT_BYTES] = "fewer";
    struct stat status;
    if (fstat(file->descriptor, &status) == 0) {
        format_count(found, status.st_size);
    }
    return error_set(error,
                     "%s: was cut while in use: expected %s bytes, found %s; copy it again, or make it again",
                     path, format_count(expected, (int64_t)file->bytes), found);
}

int open_file_read_at(const OpenFile *file, void *data, uint64_t offset, size_t bytes, const char *path,
                      Error *error)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file->descriptor, (char *)data + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return error_set_system(error, errno, "%s: cannot read", path);
        }
        if (got == 0) {
            return error_cut(file, path, error);
        }
        done += (size_t)got;
    }
    return 0;
}

/* Read until `bytes` bytes or the end of the file. Returns the number read, or -1 with errno set. */
static ssize_t read_fully(int descriptor, char *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(descriptor, data + done, bytes - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return (ssize_t)done;
}

char *file_read(const char *path, size_t bytes_max, size_t *bytes, Error *error)
{
    uint64_t file_bytes = 0;
    int descriptor = open_regular(path, &file_bytes, error);
    if (descriptor < 0) {
        return NULL;
    }
    if (file_bytes > bytes_max) {
        close(descriptor);
        error_set(error, "%s: expected at most %zu bytes, found %llu", path, bytes_max,
                  (unsigned long long)file_bytes);
        return NULL;
    }
    char *data = memory_alloc((size_t)file_bytes + 1, 1, path);
    ssize_t got = read_fully(descriptor, data, (size_t)file_bytes);
    int reason = errno;
    close(descriptor);
    if (got != (ssize_t)file_bytes) {
        memory_free(data);
        error_set(error, "%s: cannot read: %s", path,
                  got < 0 ? strerror(reason) : "the file shrank while it was read");
        return NULL;
    }
    data[file_bytes] = '\0';
    *bytes = (size_t)file_bytes;
    return data;
}

/* 64 bits that no other process has: process ids repeat, in containers that share a folder above all. */
static uint64_t random_part(void)
{
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != (ssize_t)sizeof(bits)) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        bits = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 20 ^ (uint64_t)getpid() << 44;
    }
    return bits;
}

static pthread_once_t process_part_once = PTHREAD_ONCE_INIT;
static uint64_t process_part;

static void draw_process_part(void)
{
    process_part = random_part();
}

int atomic_file_init(AtomicFile *file, const char *path, Error *error)
{
    enum { TRIES = 8 };
    file->descriptor = -1;
    if (snprintf(file->path, sizeof(file->path), "%s", path) >= (int)sizeof(file->path)) {
        return error_set(error, "%.200s...: the path is longer than %d bytes", path, PATH_BYTES_MAX);
    }
    pthread_once(&process_part_once, draw_process_part);
    uint64_t part = process_part;
    for (int i = 0; i < TRIES && file->descriptor < 0; i++) {
        if (snprintf(file->temporary_path, sizeof(file->temporary_path), "%s.tmp.%016" PRIx64, path, part) >=
            (int)sizeof(file->temporary_path)) {
            return error_set(error, "%.200s...: the path is longer than %d bytes", path, PATH_BYTES_MAX);
        }
        file->descriptor =
            open(file->temporary_path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file->descriptor < 0 && errno != EEXIST) {
            break;
        }
        part = random_part(); /* where a file of that name was left behind */
    }
    return file->descriptor < 0 ? error_set(error, "%s: cannot create: %s", path, strerror(errno)) : 0;
}

int atomic_file_write(AtomicFile *file, const void *data, size_t bytes, Error *error)
{
    const char *next = data;
    while (bytes > 0) {
        ssize_t written = write(file->descriptor, next, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return error_set(error, "%s: cannot write: %s", file->path, strerror(errno));
        }
        next += written;
        bytes -= (size_t)written;
    }
    return 0;
}

int atomic_file_write_at(AtomicFile *file, uint64_t offset, const void *data, size_t bytes, Error *error)
{
    const char *next = data;
    while (bytes > 0) {
        ssize_t written = pwrite(file->descriptor, next, bytes, (off_t)offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return error_set(error, "%s: cannot write: %s", file->path, strerror(errno));
        }
        next += written;
        offset += (uint64_t)written;
        bytes -= (size_t)written;
    }
    return 0;
}

int atomic_file_sync(AtomicFile *file, Error *error)
{
    return fsync(file->descriptor) == 0
               ? 0
               : error_set(error, "%s: cannot write: %s", file->path, strerror(errno));
}

/* fsync the folder that holds a path. */
static int parent_sync(const char *path, Error *error)
{
    char folder[PATH_BYTES_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) {
        snprintf(folder, sizeof(folder), ".");
    } else if (slash == folder) {
        slash[1] = '\0';
    } else {
        *slash = '\0';
    }
    return folder_sync(folder, error);
}

int atomic_file_commit(AtomicFile *file, Error *error)
{
    int failed = fsync(file->descriptor) != 0;
    int reason = errno;
    if (close(file->descriptor) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    file->descriptor = -1;
    if (!failed && rename(file->temporary_path, file->path) != 0) {
        failed = 1;
        reason = errno;
    }
    if (failed) {
        unlink(file->temporary_path);
        return error_set(error, "%s: cannot write: %s", file->path, strerror(reason));
    }
    return parent_sync(file->path, error);
}

void atomic_file_discard(AtomicFile *file)
{
    if (file->descriptor >= 0) {
        close(file->descriptor);
        unlink(file->temporary_path);
        file->descriptor = -1;
    }
}

int folder_create(const char *path, Error *error)
{
    char partial[PATH_BYTES_MAX];
    if (snprintf(partial, sizeof(partial), "%s", path) >= (int)sizeof(partial)) {
        return error_set(error, "%.200s...: the path is longer than %d bytes", path, PATH_BYTES_MAX);
    }
    for (char *c = partial + 1;; c++) {
        if (*c != '/' && *c != '\0') {
            continue;
        }
        char end = *c;
        *c = '\0';
        int is_made = mkdir(partial, 0777) == 0;
        if (!is_made && !(errno == EEXIST || errno == EISDIR)) {
            return error_set(error, "%s: cannot create folder: %s", path, strerror(errno));
        }
        if (is_made && parent_sync(partial, error) != 0) { /* a power cut must not take it away again */
            return -1;
        }
        *c = end;
        if (end == '\0') {
            break;
        }
    }
    if (!path_is_folder(path)) {
        return error_set(error, "%s: expected a folder, found a file", path);
    }
    return 0;
}

int folder_sync(const char *path, Error *error)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0 && errno == EACCES) {
        return 0; /* a folder that may be written but not read */
    }
    if (descriptor < 0) {
        return error_set(error, "%s: cannot open folder: %s", path, strerror(errno));
    }
    int failed =
        fsync(descriptor) != 0 && errno != EINVAL; /* some file systems cannot sync folders: nothing to do */
    int reason = errno;
    close(descriptor);
    return failed ? error_set(error, "%s: cannot sync folder: %s", path, strerror(reason)) : 0;
}

int path_exists(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

int path_is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

int path_join(char *path, const char *folder, const char *name, Error *error)
{
    size_t folder_bytes = strlen(folder);
    const char *separator = folder_bytes == 0 || folder[folder_bytes - 1] == '/' ? "" : "/";
    if (snprintf(path, PATH_BYTES_MAX, "%s%s%s", folder, separator, name) >= PATH_BYTES_MAX) {
        return error_set(error, "%.200s...: the path is longer than %d bytes", folder, PATH_BYTES_MAX);
    }
    return 0;
}
