/* How exported files are told from others. Readers of both formats pass over it: safetensors' metadata is
 * free text beside `format`, and llm.c reads the first 8 of its header's 256 integers. */
#ifndef LLMC_SNAPSHOT_EXPORT_MARK_H
#define LLMC_SNAPSHOT_EXPORT_MARK_H

#include <stdint.h>

#include "llmc/model/shape.h"
#include "llmc/text/characters.h"

#define EXPORT_MARK_KEY "exported_by"
#define EXPORT_MARK "train_gpt2"
enum { EXPORT_MARK_LLMC_INDEX = 255, EXPORT_MARK_LLMC = 0x32747067 /* "gpt2" */ };

/* config.json: what transformers' GPT2Config needs to build this model; the rest is its default. The tokens
 * that begin and end a text are named where they are GPT-2's. The caller frees it with free(). */
char *export_config_json(const ModelShape *shape, int is_gpt2_vocabulary);

/* Whether tokens are GPT-2's: no other vocabulary is known, and the model has as many as it needs. */
int export_is_gpt2_vocabulary(const ModelShape *shape, const Characters *characters);

/* Before a model of other tokens goes into a folder: remove the vocabulary of characters that an earlier
 * export of this program has left there. */
void export_remove_characters(const char *folder);

#endif
