#include "llmc/snapshot/export_vocabulary.h"

#include <jansson.h>
#include <string.h>

#include "llmc/base/error.h"

/* Embedded by the Makefile from llmc/text/gpt2_vocab/vocab.bpe. */
extern const unsigned char vocabulary_merges[];
extern const unsigned long vocabulary_merges_bytes;

enum { BYTES = 256, SYMBOL_BYTES_MAX = 512, FIRST_SUBSTITUTE = 256 };

const char *export_merges(size_t *bytes)
{
    *bytes = vocabulary_merges_bytes;
    return (const char *)vocabulary_merges;
}

static void add_token(json_t *vocabulary, const char *symbol, size_t bytes)
{
    char token[SYMBOL_BYTES_MAX];
    CHECK(bytes < sizeof(token), "a merge of %zu bytes", bytes);
    memcpy(token, symbol, bytes);
    token[bytes] = '\0';
    json_int_t id = (json_int_t)json_object_size(vocabulary);
    CHECK(json_object_set_new(vocabulary, token, json_integer(id)) == 0, "token %s cannot be written as JSON",
          token);
}

/* GPT-2 writes a byte as the character of its Latin-1 code where that is printable. */
static int is_printable(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The first 256 tokens are the bytes: the printable ones in their order, then the others, which are written
 * as the characters from U+0100 on. All are below U+0800, so they have one or two bytes of UTF-8. */
static void add_bytes(json_t *vocabulary)
{
    int substitute = FIRST_SUBSTITUTE;
    for (int i = 0; i < 2 * BYTES; i++) {
        int byte = i % BYTES;
        if (is_printable(byte) != (i < BYTES)) {
            continue;
        }
        int character = i < BYTES ? byte : substitute++;
        char symbol[2] = {(char)character, 0};
        size_t bytes = 1;
        if (character >= 0x80) {
            symbol[0] = (char)(0xc0 | character >> 6);
            symbol[1] = (char)(0x80 | (character & 0x3f));
            bytes = 2;
        }
        add_token(vocabulary, symbol, bytes);
    }
}

/* Each merge "a b" makes the token "ab". The first line is a comment. */
static void add_merges(json_t *vocabulary)
{
    const char *line = (const char *)vocabulary_merges;
    const char *end = line + vocabulary_merges_bytes;
    while (line < end) {
        const char *line_end = memchr(line, '\n', (size_t)(end - line));
        line_end = line_end ? line_end : end;
        const char *space = memchr(line, ' ', (size_t)(line_end - line));
        if (space && strncmp(line, "#version", 8) != 0) {
            char symbol[SYMBOL_BYTES_MAX];
            size_t left = (size_t)(space - line);
            size_t right = (size_t)(line_end - space - 1);
            CHECK(left + right < sizeof(symbol), "a merge of %zu bytes", left + right);
            memcpy(symbol, line, left);
            memcpy(symbol + left, space + 1, right);
            add_token(vocabulary, symbol, left + right);
        }
        line = line_end + 1;
    }
}

char *export_vocabulary_json(void)
{
    json_t *vocabulary = json_object();
    CHECK(vocabulary, "out of memory for vocab.json");
    add_bytes(vocabulary);
    add_merges(vocabulary);
    add_token(vocabulary, "<|endoftext|>", strlen("<|endoftext|>"));
    CHECK(json_object_size(vocabulary) == EXPORT_VOCABULARY_TOKENS, "a vocabulary of %zu tokens",
          json_object_size(vocabulary));
    char *text = json_dumps(vocabulary, JSON_COMPACT);
    CHECK(text, "out of memory for vocab.json");
    json_decref(vocabulary);
    return text;
}
