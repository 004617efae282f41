#define _GNU_SOURCE
#include "llmc/run/prompt.h"

#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/text/tokenizer.h"

enum { START_BYTES_MAX = 1 << 24 };

/* The text that samples start with, in a block that the caller frees; NULL with *error. */
static char *read_start(size_t *bytes, const Options *options, Error *error)
{
    char *text = NULL;
    if (strncmp(options->start, "FILE:", 5) == 0) {
        text = file_read(options->start + 5, START_BYTES_MAX, bytes, error);
        if (!text) {
            error_prefix(error, "start");
            return NULL;
        }
    } else {
        *bytes = strlen(options->start);
        text = memory_alloc(*bytes + 1, 1, "start");
        memcpy(text, options->start, *bytes + 1);
    }
    if (*bytes == 0) {
        memory_free(text);
        error_set(error, "%.500s: expected text to start from, found an empty file", options->start);
        return NULL;
    }
    return text;
}

/* Tokens of a text, at most one a byte, into `tokens`. `<|endoftext|>` is the special token, as in nanoGPT's
 * sample.py. Returns how many. */
static int64_t encode(int32_t *tokens, const Tokenizer *tokenizer, const char *text, size_t bytes)
{
    static const char name[] = "<|endoftext|>";
    const size_t name_bytes = sizeof(name) - 1;
    Encoder *encoder = encoder_create(tokenizer);
    int64_t count = 0;
    for (const char *end = text + bytes; text < end;) {
        const char *special = memmem(text, (size_t)(end - text), name, name_bytes);
        TokenBuffer piece = {0};
        encoder_encode(encoder, &piece, text, (size_t)((special ? special : end) - text));
        for (size_t i = 0; i < piece.count; i++) {
            tokens[count++] = piece.tokens[i];
        }
        token_buffer_release(&piece);
        if (special) {
            tokens[count++] = TOKENIZER_EOT;
        }
        text = special ? special + name_bytes : end;
    }
    encoder_free(encoder);
    return count;
}

static int check_tokens(const Prompt *prompt, int vocab_size, Error *error)
{
    for (int64_t i = 0; i < prompt->count; i++) {
        if (prompt->tokens[i] >= vocab_size) {
            return error_set(error,
                             "start: token %d is beyond the model's vocab_size=%d; choose another start",
                             prompt->tokens[i], vocab_size);
        }
    }
    return 0;
}

int prompt_init(Prompt *prompt, const Options *options, const Characters *characters, Error *error)
{
    size_t bytes;
    char *text = read_start(&bytes, options, error);
    if (!text) {
        return -1;
    }
    prompt->characters = characters;
    prompt->tokens = memory_alloc(bytes, sizeof(int32_t), "start tokens");
    int status = 0;
    if (characters) {
        prompt->count = characters_encode(prompt->tokens, characters, text, bytes, error);
        status = prompt->count < 0 ? error_prefix(error, "start") : 0;
    } else {
        Tokenizer *tokenizer = tokenizer_create();
        prompt->count = encode(prompt->tokens, tokenizer, text, bytes);
        tokenizer_free(tokenizer);
        status = check_tokens(prompt, (int)options->vocab_size, error);
    }
    memory_free(text);
    if (status != 0) {
        prompt_release(prompt);
    }
    return status;
}

void prompt_release(Prompt *prompt)
{
    memory_free(prompt->tokens);
    *prompt = (Prompt){0};
}
