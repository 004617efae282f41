/* The files to read, in their order: those that were named, and those of folders that were named. A folder's
 * entries come in the order of the bytes of their names, a folder's own entries in its place. Of a folder,
 * hidden entries, links to folders, what is no file, what is no text by its beginning, and the output of
 * tokenize itself are skipped, and told.
 */
#ifndef DATA_PREP_INPUT_FILES_H
#define DATA_PREP_INPUT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "data_prep/options.h"
#include "llmc/base/error.h"

/* Owned by the caller: input_files_init, input_files_release. */
typedef struct InputFiles {
    const char **paths; /* "-" for stdin; owned, as is each */
    size_t count;
    size_t capacity;
    size_t val_first; /* from here on they are for validation; count where none is */
    int64_t bytes;    /* of all; -1 where a pipe makes that unknown */
    int64_t skipped_count;
} InputFiles;

/* -1 with *error when one cannot be read, or a folder holds no text; release in any case. */
int input_files_init(InputFiles *files, const TokenizeOptions *options, Error *error);
void input_files_release(InputFiles *files);

#endif
