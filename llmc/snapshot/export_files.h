/* The small files of a Hugging Face folder, beside model.safetensors: what the model is, how its tokens are
 * made, and a model card. They are one list, which is checked before the run and written at its end.
 */
#ifndef LLMC_SNAPSHOT_EXPORT_FILES_H
#define LLMC_SNAPSHOT_EXPORT_FILES_H

#include <stddef.h>

#include "llmc/base/error.h"
#include "llmc/model/shape.h"
#include "llmc/snapshot/export.h"

enum { EXPORT_FILES_MAX = 8 };

/* In the model card, and how it is told from a card that somebody has written. */
#define EXPORT_CARD_NAME "README.md"
#define EXPORT_CARD_MARK                                                                                     \
    "<!-- Written by train_gpt2, whose next export replaces it: remove this line to keep your text. -->"

typedef struct ExportFile {
    const char *name;
    char *text; /* owned: memory_free */
    size_t bytes;
} ExportFile;

typedef struct ExportFiles { /* in the order in which they are written */
    ExportFile items[EXPORT_FILES_MAX];
    int count;
} ExportFiles;

/* Whether tokens are GPT-2's: no other vocabulary is known, and the model has as many as it needs, 50,257.
 */
int export_is_gpt2_vocabulary(const ModelShape *shape, const Characters *characters);

/* config.json, generation_config.json, the files of the tokenizer if tokens are GPT-2's or characters,
 * README.md. `facts` may be NULL: nothing is known of the training. The caller releases. */
void export_files_init(ExportFiles *files, const ModelShape *shape, const Characters *characters,
                       const ExportFacts *facts);
void export_files_release(ExportFiles *files);

/* Add a file; takes over text, which is from memory_alloc. */
void export_files_add(ExportFiles *files, const char *name, char *text);

/* export_tokenizer.c: vocab.json, merges.txt, tokenizer.json, tokenizer_config.json. */
void export_files_add_tokenizer(ExportFiles *files, const ModelShape *shape);

/* export_characters.c: tokenizer.json and tokenizer_config.json for transformers' AutoTokenizer, and
 * characters.json for this program. */
void export_files_add_characters(ExportFiles *files, const ModelShape *shape, const Characters *characters);

/* Whether all of this and model.safetensors can be written: see export_check_hugging_face. */
int export_check_files(const char *folder, const ExportFiles *files, Error *error);

/* Before other files go into a folder of ours: remove those of a tokenizer that are not among them, since
 * they belong to a model that goes. */
void export_remove_stale(const char *folder, const ExportFiles *files);

/* Is this the name of the model card, and the card in the folder not one of ours? It is left as it is. */
int export_card_stays(const char *folder, const char *name);

/* export_card.c: the text of the model card, which the caller frees with memory_free. */
char *export_card(const ModelShape *shape, const Characters *characters, const ExportFacts *facts);

#endif
