/* HellaSwag items as tokens, from either of the files in which it comes:
 *   llm.c's hellaswag_val.bin: a header of 256 int32 (20240522, 1, items, bytes of the longest item); then
 *     each item as uint16: 65535, its bytes, its number, label, 4, and the context and the four endings, each
 *     as a count and its tokens. All little-endian.  Source: llm.c, dev/data/data_common.py.
 *   the published hellaswag_val.jsonl: a line of JSON an item, of which ctx, endings and label are read. An
 *     ending is tokenised with a space before it.  Source: github.com/rowanz/hellaswag.
 */
#ifndef LLMC_RUN_HELLASWAG_FILE_H
#define LLMC_RUN_HELLASWAG_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/text/tokenizer.h"

enum { HELLASWAG_ENDINGS = 4, HELLASWAG_MAGIC = 20240522 };

/* A context and the endings that may follow it, of one token or more each. They lie one after the other in
 * the set's tokens. */
typedef struct HellaSwagItem {
    int64_t first_token; /* of the context */
    int32_t context_tokens;
    int32_t ending_tokens[HELLASWAG_ENDINGS];
    int32_t label; /* the right ending, 0 .. 3 */
} HellaSwagItem;

/* Owned by the caller: zero it, hellaswag_parse or hellaswag_open, hellaswag_release. */
typedef struct HellaSwagSet {
    HellaSwagItem *items; /* in the order of the file */
    int64_t count, capacity;
    TokenBuffer tokens;
} HellaSwagSet;

/* Items of a file's bytes, which end with an extra NUL. For any bytes: 0 and one item or more, or -1 with
 * *error naming path and item or line, and the set empty. */
int hellaswag_parse(HellaSwagSet *set, Encoder *encoder, const char *bytes, size_t count, const char *path,
                    Error *error);

/* The same of a file for a model of this vocabulary. -1 with *error. */
int hellaswag_open(HellaSwagSet *set, const char *path, int vocab_size, Error *error);
void hellaswag_release(HellaSwagSet *set);

/* The same for equal items only. */
uint64_t hellaswag_hash(const HellaSwagSet *set);

#endif
