/* GPT-2's vocabulary in the two files that transformers' tokenizer reads, from the merges that the program
 * embeds. */
#ifndef LLMC_SNAPSHOT_EXPORT_VOCABULARY_H
#define LLMC_SNAPSHOT_EXPORT_VOCABULARY_H

#include <stddef.h>

enum { EXPORT_VOCABULARY_TOKENS = 50257 };

/* merges.txt; belongs to the program. */
const char *export_merges(size_t *bytes);

/* vocab.json; the caller frees it with free(). */
char *export_vocabulary_json(void);

#endif
