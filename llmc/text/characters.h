/* A vocabulary of characters: each token is one Unicode character. It stands beside token shards as
 * characters.json, which data_prep/tokenize --tokenizer=char writes, or as nanoGPT's meta.pkl; snapshots and
 * exported models carry it with them.
 *
 *     {"tokenizer":"char","characters":["\n"," ","!", ..]}        token i is the i-th character
 */
#ifndef LLMC_TEXT_CHARACTERS_H
#define LLMC_TEXT_CHARACTERS_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CHARACTERS_MAX = 65536,              /* tokens are uint16 */
    CHARACTERS_FILE_BYTES_MAX = 4 << 20, /* of a characters.json or a meta.pkl: more than the largest needs */
    CHARACTER_BYTES_MAX = 4
};

/* Immutable: any number of threads may share one. */
typedef struct Characters Characters;

/* Token i is code_points[i]. NULL with *error when there are none or too many, when one comes twice, or when
 * one is no character (a surrogate, or beyond U+10FFFF). The caller frees. */
Characters *characters_create(const uint32_t *code_points, int count, Error *error);
void characters_free(Characters *characters);
Characters *characters_copy(const Characters *characters); /* NULL stays NULL */

/* characters.json: exactly the two keys above. For any bytes: a vocabulary, or NULL with *error that says
 * what was expected and found, without the name of the file. */
Characters *characters_parse_json(const char *text, size_t bytes, Error *error);

/* nanoGPT's meta.pkl: a pickle (protocol 3, 4 or 5) of {'vocab_size': V, 'itos': {0: 'a', ..}, 'stoi': {'a':
 * 0, ..}}, as Python's pickle.dump writes it. Nothing else is understood, so nothing in it is ever run. NULL
 * with *error like characters_parse_json. Source: nanoGPT, data/shakespeare_char/prepare.py; the opcodes:
 * Python's pickletools. */
Characters *characters_parse_pickle(const unsigned char *data, size_t bytes, Error *error);

/* The text of characters.json, which the caller frees with memory_free. */
char *characters_to_json(const Characters *characters);

/* Append the character as a quoted JSON string, at most CHARACTER_JSON_BYTES; returns how many bytes. */
enum { CHARACTER_JSON_BYTES = 8 };
int character_print_json(char *out, uint32_t code_point);

int characters_count(const Characters *characters); /* V */
uint32_t characters_code_point(const Characters *characters, int token);
/* The token of a character, or -1. */
int characters_find(const Characters *characters, uint32_t code_point);
/* The UTF-8 of a token: returns its bytes, 0 for tokens that are none. */
int characters_token_bytes(const Characters *characters, int token, char bytes[CHARACTER_BYTES_MAX]);
/* Tokens of a UTF-8 text into tokens (as many as it has bytes at most). Returns how many, or -1 with *error
 * naming the first character that is not in the vocabulary, or the first byte that is no UTF-8. */
int64_t characters_encode(int32_t *tokens, const Characters *characters, const char *text, size_t bytes,
                          Error *error);

/* Both NULL, or the same characters with the same ids. */
int characters_are_same(const Characters *a, const Characters *b);
/* 0 for NULL. */
uint64_t characters_hash(const Characters *characters);

#ifdef __cplusplus
}
#endif
#endif
