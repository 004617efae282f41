/* Files: read whole, mapped, or written so that a reader sees either the old file or the whole new one.
 * Every function fills an Error that names the path and the system's reason.
 */
#ifndef LLMC_BASE_FILE_H
#define LLMC_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PATH_BYTES_MAX = 4096 };

/* Open a regular file, with open's flags, which may include O_CREAT. Whatever else has that name (a folder, a
 * FIFO, a device, a link to nothing) is an error that says what was found, at once: nothing is waited for.
 * Returns the descriptor, which the caller closes, or -1 with *error and errno set. */
int file_open(const char *path, int flags, Error *error);

/* A read-only view of a file. Owned by the caller, who releases it. An empty file has bytes 0 and data NULL.
 */
typedef struct MappedFile {
    const unsigned char *data;
    uint64_t bytes;
} MappedFile;

/* Nothing is read until it is touched. Returns 0, or -1 with *error set. */
int mapped_file_init(MappedFile *file, const char *path, Error *error);
void mapped_file_release(MappedFile *file);

/* A file to be read at any place, by several threads. What another program cuts off while it is open becomes
 * an error, where a page of a mapped file would end the process by SIGBUS. Owned by the caller, who releases
 * it. */
typedef struct OpenFile {
    int descriptor;
    uint64_t bytes; /* when it was opened */
} OpenFile;

/* Nothing is read yet. Raises the limit on open files as far as it goes when that is met. */
int open_file_init(OpenFile *file, const char *path, Error *error);
/* Once after each open_file_init that returned 0. */
void open_file_release(OpenFile *file);
/* Exactly these bytes, or -1 with *error set; `path` is for the message. */
int open_file_read_at(const OpenFile *file, void *data, uint64_t offset, size_t bytes, const char *path,
                      Error *error);

/* Read a whole file of at most bytes_max bytes into a block that ends with an extra NUL; the caller frees it
 * with memory_free. Returns NULL with *error set when the file is missing, unreadable or larger. */
char *file_read(const char *path, size_t bytes_max, size_t *bytes, Error *error);

/* A file under construction: written under a temporary name beside its final one, which appears only on
 * commit. The temporary name, PATH.tmp.RANDOM, is of a file that was not there before. Owned by the caller,
 * who ends it with commit or discard. */
typedef struct AtomicFile {
    int descriptor; /* -1 once ended */
    char path[PATH_BYTES_MAX];
    char temporary_path[PATH_BYTES_MAX];
} AtomicFile;

int atomic_file_init(AtomicFile *file, const char *path, Error *error);
/* Writes all bytes, or fails with the reason (disk full and the like). */
int atomic_file_write(AtomicFile *file, const void *data, size_t bytes, Error *error);
/* Overwrite bytes at an offset already written (a header whose counts are known last). */
int atomic_file_write_at(AtomicFile *file, uint64_t offset, const void *data, size_t bytes, Error *error);
/* fsync the file, which stays open under its temporary name. */
int atomic_file_sync(AtomicFile *file, Error *error);
/* fsync the file, rename it, fsync its folder. On failure the temporary file is removed. */
int atomic_file_commit(AtomicFile *file, Error *error);
/* Remove the temporary file. Does nothing after commit. */
void atomic_file_discard(AtomicFile *file);

/* Make a folder and its parents, durably (an existing folder is fine). */
int folder_create(const char *path, Error *error);
/* fsync a folder, so that renames and deletions in it are durable. */
int folder_sync(const char *path, Error *error);

int path_exists(const char *path);
int path_is_folder(const char *path);
/* Join into a buffer of PATH_BYTES_MAX; a path that does not fit is an error. */
int path_join(char *path, const char *folder, const char *name, Error *error);

/* Called on the first line of main. Descriptors 0, 1 and 2 that whoever started the program has closed are
 * opened: else the next file, a snapshot, would get the number of stdout, and console lines would be written
 * into it. Reading and writing them still fails, as it does for a closed one. */
void file_reserve_standard(void);

/* Let this process have as many descriptors as the system allows: data sets of many shards and jobs of many
 * ranks need more than the usual 1,024. Returns whether there is room that was not there. */
int file_raise_descriptor_limit(void);

#ifdef __cplusplus
}
#endif
#endif
