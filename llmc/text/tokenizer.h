/* GPT-2's byte-level BPE, both ways. The merges are embedded in the program. Exact ids for any bytes: text
 * that is not UTF-8 is tokens like any other, nothing is replaced or dropped. `<|endoftext|>` inside a text
 * is ordinary text: the special token is written only by who frames documents.  Source of the pattern:
 * openai/gpt-2, src/encoder.py.
 */
#ifndef LLMC_TEXT_TOKENIZER_H
#define LLMC_TEXT_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/base/error.h"

enum { TOKENIZER_EOT = 50256, TOKENIZER_VOCAB = 50257, TOKEN_BYTES_MAX = 128 };

/* Immutable after create: any number of threads may share one. */
typedef struct Tokenizer Tokenizer;

/* Never fails: the vocabulary is part of the program. The caller frees. */
Tokenizer *tokenizer_create(void);
void tokenizer_free(Tokenizer *tokenizer);

/* A growing array of ids. Zero it to begin; release when done. */
typedef struct TokenBuffer {
    uint16_t *tokens;
    size_t count;
    size_t capacity;
} TokenBuffer;

void token_buffer_release(TokenBuffer *buffer);

/* One for each thread that encodes: caches and scratch space that make it fast. The caller frees. */
typedef struct Encoder Encoder;
Encoder *encoder_create(const Tokenizer *tokenizer);
void encoder_free(Encoder *encoder);

/* Append the ids of a whole text. Time is linear in `bytes` but for a logarithm inside one very long word. */
void encoder_encode(Encoder *encoder, TokenBuffer *out, const char *text, size_t bytes);

/* Where a long text can be cut so that its parts, encoded one after the other, give the ids of the whole: the
 * last such position in [1, bytes), whatever follows these bytes; 0 where there is none. */
size_t text_cut(const Tokenizer *tokenizer, const char *text, size_t bytes);

/* Symbols and pairs of symbols that were looked at outside the cache since create: what the promise about
 * time is tested by. */
uint64_t encoder_steps(const Encoder *encoder);

/* The bytes of one token (of `<|endoftext|>` its name); NULL and 0 for ids outside the vocabulary. Not
 * NUL-terminated. */
const char *tokenizer_token_bytes(const Tokenizer *tokenizer, int token, size_t *bytes);

/* Text as it is drawn: bytes go in token by token, and come out as soon as they end on a whole UTF-8
 * character. */
typedef struct TextStream {
    unsigned char held[4];
    int held_count;
} TextStream;

/* Put held and new bytes that are whole characters into out (capacity bytes + 4); returns how many. Bytes
 * that can never become a character pass through as they are. */
size_t text_stream_push(TextStream *stream, char *out, const char *bytes, size_t count);
/* What is still held when the text ends (at most 3 bytes). */
size_t text_stream_finish(TextStream *stream, char *out);

#endif
