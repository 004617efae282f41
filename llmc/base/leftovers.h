/* Temporary files that killed writers left beside a file: PATH.tmp and something. A writer that lives holds a
 * lock of its temporary file, which ends with the process. Where a file system has no locks, all stay.
 */
#ifndef LLMC_BASE_LEFTOVERS_H
#define LLMC_BASE_LEFTOVERS_H

#include "llmc/base/file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Remove what nobody holds of the temporary files of `path`. */
void leftovers_remove(const char *path);

/* The same, then atomic_file_init with the lock that keeps the new file from being taken for a leftover. */
int leftovers_replace(AtomicFile *file, const char *path, Error *error);

#ifdef __cplusplus
}
#endif
#endif
