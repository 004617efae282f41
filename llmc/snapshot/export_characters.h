/* The tokenizer of a model of characters, in the files that others read: tokenizer.json and
 * tokenizer_config.json for transformers' AutoTokenizer, characters.json for this program. */
#ifndef LLMC_SNAPSHOT_EXPORT_CHARACTERS_H
#define LLMC_SNAPSHOT_EXPORT_CHARACTERS_H

#include "llmc/text/characters.h"

/* A small file. text belongs to who frees it with memory_free. */
typedef struct ExportText {
    const char *name;
    char *text;
} ExportText;

enum { EXPORT_CHARACTERS_FILES = 3 };

/* block_size: the longest text that the model takes. */
void export_characters_init(ExportText files[EXPORT_CHARACTERS_FILES], const Characters *characters,
                            int block_size);
void export_characters_release(ExportText files[EXPORT_CHARACTERS_FILES]);

#endif
