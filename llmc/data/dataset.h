/* Token shards as one training set. A shard is llm.c's file (256 int32 header: 20240520, 1, count; then
 * uint16 tokens) or nanoGPT's headerless uint16, told apart by magic and size. Shards stay open; only what
 * is used is read.
 *
 * The set is W windows of T+1 tokens: window w of a shard starts at token w*T, and none crosses a shard's
 * end.
 */
#ifndef LLMC_DATA_DATASET_H
#define LLMC_DATA_DATASET_H

#include <stdint.h>

#include "llmc/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DataSet DataSet;

/* `pattern` is a path or a glob ("data/openwebtext/train*.bin"); shards are taken in the order of their
 * names: all those that were there before tokenize replaced them, or all that it put in their place. NULL
 * with *error naming the file, what was expected and found, and the way out. The caller frees. */
DataSet *data_set_open(const char *pattern, int window_tokens, Error *error); /* window_tokens = T */
void data_set_free(DataSet *set);

/* Are the open shards still those that the pattern names? Not once tokenize has replaced them. */
int data_set_is_current(const DataSet *set);

int64_t data_set_windows(const DataSet *set); /* W, at least 1 */
int64_t data_set_tokens(const DataSet *set);
int data_set_shards(const DataSet *set);
/* The name of a shard as users know it, 0 <= shard < data_set_shards. Belongs to the set. */
const char *data_set_path(const DataSet *set, int shard);
/* The largest of the first tokens of the first shard, of at most `count` (*looked: of how many). -1 with
 * *error when they cannot be read. */
int data_set_largest_token(const DataSet *set, int64_t count, int64_t *looked, Error *error);
/* Hash of names (without folders), sizes and token counts. */
uint64_t data_set_fingerprint(const DataSet *set);

/* Window w as T inputs and T targets. -1 with *error naming the file, and the position of a token that
 * is >= vocab_size, or what was found when the file was cut since it was opened. Any thread may call it. */
int data_set_window(const DataSet *set, int64_t window, int vocab_size, int32_t *tokens, int32_t *targets,
                    Error *error);

#ifdef __cplusplus
}
#endif
#endif
