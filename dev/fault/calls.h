/* The calls that inject.c can make fail, and what it counts. */
#ifndef DEV_FAULT_CALLS_H
#define DEV_FAULT_CALLS_H

#include <stdatomic.h>
#include <stdint.h>

typedef enum Call {
    CALL_OPEN,
    CALL_OPENDIR,
    CALL_READDIR,
    CALL_READ,
    CALL_PREAD,
    CALL_WRITE,
    CALL_PWRITE,
    CALL_FLUSH,
    CALL_CONSOLE,
    CALL_FSYNC,
    CALL_TRUNCATE,
    CALL_LOCK,
    CALL_RENAME,
    CALL_LINK,
    CALL_UNLINK,
    CALL_MKDIR,
    CALL_CHMOD,
    CALL_STAT,
    CALL_CLOSE,
    CALL_MALLOC,
    CALL_MMAP,
    CALL_THREAD,
    CALL_SOCKET,
    CALL_BIND,
    CALL_CONNECT,
    CALL_ACCEPT,
    CALL_SEND,
    CALL_RECEIVE,
    CALL_POLL,
    CALLS_COUNT
} Call;

static const char *const call_names[CALLS_COUNT] = {
    "open",     "opendir", "readdir", "read", "pread",   "write",  "pwrite", "flush",   "console", "fsync",
    "truncate", "lock",    "rename",  "link", "unlink",  "mkdir",  "chmod",  "stat",    "close",   "malloc",
    "mmap",     "thread",  "socket",  "bind", "connect", "accept", "send",   "receive", "poll",
};

/* A file of FAULT_COUNTS, as it lies in memory. */
typedef struct FaultCounts {
    _Atomic int64_t made[CALLS_COUNT];
    _Atomic int64_t fired; /* 1 once the fault came */
} FaultCounts;

#endif
