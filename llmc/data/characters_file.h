/* The vocabulary beside token shards: FOLDER/characters.json, which tokenize --tokenizer=char writes and
 * replaces together with the shards, or nanoGPT's FOLDER/meta.pkl. Where there is neither, tokens are
 * GPT-2's. */
#ifndef LLMC_DATA_CHARACTERS_FILE_H
#define LLMC_DATA_CHARACTERS_FILE_H

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/data/dataset.h"
#include "llmc/text/characters.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CHARACTERS_PICKLE "meta.pkl"

/* A vocabulary and the file that it was read from. Owned by the caller, who frees `characters`. */
typedef struct CharactersFile {
    Characters *characters; /* NULL for none */
    char path[PATH_BYTES_MAX];
} CharactersFile;

/* What lies in a folder ("" is the present one). None is no error. -1 with *error naming the file that is
 * damaged or something else, or both where they differ; nothing is to be freed then. */
int characters_file_find(CharactersFile *file, const char *folder, Error *error);

/* The one vocabulary of all folders that hold shards of the set. -1 with *error also when they differ. */
int characters_file_of_set(CharactersFile *file, const DataSet *set, Error *error);

#ifdef __cplusplus
}
#endif
#endif
