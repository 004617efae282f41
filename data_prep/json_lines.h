/* JSON Lines, strictly (RFC 8259), as a stream: each line is an object whose "text", or what another key
 * names, is a document. Text comes
 * out as it is met, so a line may be longer than memory. Bytes that are not UTF-8 pass as they are; a
 * repeated key, a lone surrogate or anything after the object is an error.
 */
#ifndef DATA_PREP_JSON_LINES_H
#define DATA_PREP_JSON_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "data_prep/json_keys.h"
#include "llmc/base/error.h"

enum { JSON_DEPTH_MAX = 1000, JSON_LINE_KEYS_MAX = 1 << 20, JSON_TOKEN_BYTES_MAX = 32 };

typedef enum JsonEvent {
    JSON_NEED_INPUT,  /* all input is used */
    JSON_OUTPUT_FULL, /* at least 4 free bytes are needed to go on */
    JSON_TEXT_BEGINS,
    JSON_TEXT_ENDS,
    JSON_ERROR
} JsonEvent;

typedef struct JsonLines {
    int64_t line; /* of the byte that is read next, from 1 */
    int state;
    int string_use;
    int has_text;
    int depth;
    uint8_t is_object[JSON_DEPTH_MAX + 1];
    uint32_t object_serial[JSON_DEPTH_MAX + 1];
    uint32_t objects_count;
    JsonKeys keys;
    uint64_t key_hash;
    const char *text_key; /* "text" */
    size_t text_key_bytes;
    size_t key_count;
    int key_is_text;                  /* so far */
    char token[JSON_TOKEN_BYTES_MAX]; /* of a number or literal, or escape, so far */
    int token_bytes;
    int number_state;
    uint32_t escape_digits;
    uint32_t escape_value;
    uint32_t high_surrogate; /* 0, or waiting for its other half */
    int string_is_value_of_text;
} JsonLines;

/* text_key: of the document, borrowed. */
void json_lines_init(JsonLines *parser, const char *text_key);
void json_lines_release(JsonLines *parser);

/* Read from *input up to input_end, write text from *output up to output_end; both move on. The error names
 * line, what was expected and what was found, not the file. */
JsonEvent json_lines_next(JsonLines *parser, const char **input, const char *input_end, char **output,
                          char *output_end, Error *error);

/* The input has ended: is it whole? Returns 0, or -1 with *error set. */
int json_lines_finish(JsonLines *parser, Error *error);

#endif
