/* A folder that one process at a time writes to. The lock is one of the system's on the file FOLDER/.lock,
 * which says who holds it; it ends with the process, however that ends, and on NFS the server knows it. Where
 * a file system has no locks, the file alone tells of a process that lives on this host.
 */
#ifndef LLMC_BASE_FOLDER_LOCK_H
#define LLMC_BASE_FOLDER_LOCK_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Owned by the caller: FOLDER_LOCK_NONE, take, release. */
typedef struct FolderLock {
    int descriptor; /* -1: not held */
    int is_weak;    /* the file system has no locks */
    char path[PATH_BYTES_MAX];
} FolderLock;

#define FOLDER_LOCK_NONE ((FolderLock){.descriptor = -1})

enum { FOLDER_IN_USE = -2 };

/* Take the lock of a folder, which must be there; while another process holds it, wait for wait_ms. 0,
 * FOLDER_IN_USE with *error naming the process, its host and since when, or -1 with *error where the file
 * cannot be made. */
int folder_lock_take(FolderLock *lock, const char *folder, double wait_ms, Error *error);

/* Whether another process holds it now. */
int folder_lock_is_held(const char *folder);
/* Put a mark on a lock that is held; and whether a folder's lock, whoever holds it, has this mark: processes
 * on several machines learn so whether their folders of one name are one. */
void folder_lock_mark(const FolderLock *lock, uint64_t mark);
int folder_lock_has_mark(const char *folder, uint64_t mark);

/* Does nothing when it is not held. The file goes. */
void folder_lock_release(FolderLock *lock);

#ifdef __cplusplus
}
#endif
#endif
