#define _GNU_SOURCE
#include "llmc/base/folder_lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "llmc/base/clock.h"

enum { RECORD_BYTES = 256, HOST_BYTES = 64, POLL_MS = 20 };

/* "process 4711 on node7 since 2026-01-31 23:59:59 UTC" */
static void describe_self(char record[RECORD_BYTES])
{
    char host[HOST_BYTES] = "", since[32];
    time_t now = time(NULL);
    struct tm parts;
    gethostname(host, sizeof(host) - 1);
    gmtime_r(&now, &parts);
    strftime(since, sizeof(since), "%Y-%m-%d %H:%M:%S UTC", &parts);
    snprintf(record, RECORD_BYTES, "process %d on %s since %s", (int)getpid(), host, since);
}

/* What the file says of its holder. Another program may have written it: only what can be printed is
 * taken. */
static void read_record(char record[RECORD_BYTES], int descriptor)
{
    ssize_t bytes = pread(descriptor, record, RECORD_BYTES - 1, 0);
    size_t used = 0;
    while (bytes > 0 && used < (size_t)bytes && isascii(record[used]) && isprint(record[used])) {
        used++;
    }
    record[used] = '\0';
}

static void write_record(int descriptor)
{
    char record[RECORD_BYTES];
    describe_self(record);
    size_t bytes = strlen(record);
    record[bytes] = '\n';
    /* Where the disk is full the holder stays unknown; the lock holds without it. */
    if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, record, bytes + 1, 0) < 0) {
        return;
    }
}

/* Whether a record names a process that lives on this host. */
static int is_record_alive(const char *record)
{
    char host[HOST_BYTES] = "", own_host[HOST_BYTES] = "";
    int process = 0;
    gethostname(own_host, sizeof(own_host) - 1);
    return sscanf(record, "process %d on %63s since", &process, host) == 2 && process > 0 &&
           process != (int)getpid() && strcmp(host, own_host) == 0 &&
           (kill(process, 0) == 0 || errno == EPERM);
}

/* Whether the path still names the open file: a holder before may have removed it. */
static int is_still_there(const FolderLock *lock)
{
    struct stat open_file, named;
    return fstat(lock->descriptor, &open_file) == 0 && lstat(lock->path, &named) == 0 &&
           open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

static void drop(FolderLock *lock)
{
    close(lock->descriptor);
    lock->descriptor = -1;
}

/* A lock of this open file, which no other descriptor of this process can end. Kernels and file systems that
 * do not have it may have the older kind. Returns 0, 1 when another holds it, or -1: there are none. */
static int lock_file(int descriptor)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(descriptor, F_OFD_SETLK, &whole) == 0) {
        return 0;
    }
    if (errno != EAGAIN && errno != EACCES) {
        whole = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(descriptor, F_SETLK, &whole) == 0) {
            return 0;
        }
    }
    return errno == EAGAIN || errno == EACCES ? 1 : -1;
}

/* As folder_lock_take does, without waiting; 1 when the file went away meanwhile. */
static int try_once(FolderLock *lock, const char *folder, Error *error)
{
    char record[RECORD_BYTES];
    lock->descriptor = file_open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW, error);
    if (lock->descriptor < 0) {
        return -1;
    }
    int status = lock_file(lock->descriptor);
    read_record(record, lock->descriptor);
    if (status == 1 || (status < 0 && is_record_alive(record))) {
        drop(lock);
        error_set(error,
                  "%s: in use by %s; wait until it ends, stop it (kill -USR1 saves its work), or choose "
                  "another folder",
                  folder, record[0] ? record : "another process");
        return FOLDER_IN_USE;
    }
    if (!is_still_there(lock)) {
        drop(lock);
        return 1;
    }
    lock->is_weak = status < 0;
    write_record(lock->descriptor);
    return 0;
}

int folder_lock_take(FolderLock *lock, const char *folder, double wait_ms, Error *error)
{
    double deadline_ms = clock_ms() + wait_ms;
    *lock = FOLDER_LOCK_NONE;
    if (path_join(lock->path, folder, ".lock", error) != 0) {
        return -1;
    }
    for (;;) {
        int status = try_once(lock, folder, error);
        if (status <= 0 && (status != FOLDER_IN_USE || clock_ms() >= deadline_ms)) {
            return status;
        }
        if (status == FOLDER_IN_USE) {
            nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000}, NULL);
        }
    }
}

int folder_lock_is_held(const char *folder)
{
    char path[PATH_BYTES_MAX], record[RECORD_BYTES];
    int descriptor = path_join(path, folder, ".lock", NULL) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (descriptor < 0) {
        return 0;
    }
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int is_known = fcntl(descriptor, F_OFD_GETLK, &whole) == 0;
    read_record(record, descriptor);
    close(descriptor);
    return is_known ? whole.l_type != F_UNLCK : is_record_alive(record);
}

/* A line of its own, after the record. */
static void print_mark(char text[RECORD_BYTES], uint64_t mark)
{
    snprintf(text, RECORD_BYTES, "\nmark %016" PRIx64 "\n", mark);
}

void folder_lock_mark(const FolderLock *lock, uint64_t mark)
{
    char text[RECORD_BYTES];
    struct stat status;
    print_mark(text, mark);
    if (fstat(lock->descriptor, &status) == 0 &&
        pwrite(lock->descriptor, text, strlen(text), status.st_size) > 0) {
        fsync(lock->descriptor);
    }
}

int folder_lock_has_mark(const char *folder, uint64_t mark)
{
    char path[PATH_BYTES_MAX], wanted[RECORD_BYTES], found[4 * RECORD_BYTES];
    print_mark(wanted, mark);
    int descriptor =
        path_join(path, folder, ".lock", NULL) == 0 ? file_open(path, O_RDONLY | O_NOFOLLOW, NULL) : -1;
    if (descriptor < 0) {
        return 0;
    }
    ssize_t bytes = pread(descriptor, found, sizeof(found) - 1, 0);
    close(descriptor);
    found[bytes > 0 ? bytes : 0] = '\0';
    return strstr(found, wanted) != NULL;
}

void folder_lock_release(FolderLock *lock)
{
    if (lock->descriptor >= 0) {
        if (is_still_there(lock)) {
            unlink(lock->path);
        }
        drop(lock);
    }
}
