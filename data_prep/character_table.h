/* The characters of a text that is read once. While it is read each new character gets the next number,
 * whichever thread meets it first; at the end the characters are sorted, as nanoGPT has them, and the numbers
 * in the shards are changed to those.
 */
#ifndef DATA_PREP_CHARACTER_TABLE_H
#define DATA_PREP_CHARACTER_TABLE_H

#include "llmc/base/error.h"
#include "llmc/text/characters.h"
#include "llmc/text/tokenizer.h"

/* Any number of threads may use one. */
typedef struct CharacterTable CharacterTable;

/* The caller frees. */
CharacterTable *character_table_create(void);
void character_table_free(CharacterTable *table);

/* Append the numbers of a text, which is UTF-8. -1 with *error when there are more than 65,536 characters. */
int character_table_encode(CharacterTable *table, TokenBuffer *out, const char *text, size_t bytes,
                           Error *error);

/* The vocabulary, and in tokens (CHARACTERS_MAX) what each number becomes. No thread encodes any more. The
 * caller frees the vocabulary. NULL with *error where there is no character. */
Characters *character_table_finish(const CharacterTable *table, uint16_t *tokens, Error *error);

#endif
