/* Text of any bytes: the ids decode to the same bytes, do not depend on what was encoded before, nor on where
 * text_cut cuts; the stream of a sample passes every byte on.
 */
#include <string.h>

#include "dev/fuzz/fuzz.h"
#include "llmc/base/error.h"
#include "llmc/base/memory.h"
#include "llmc/text/tokenizer.h"

const char *const fuzz_words[] = {"'s",           "'ll",
                                  "'ve",          "  ",
                                  "\n",           "\r\n",
                                  "\xc3\xa9",     "\xe4\xb8\xad",
                                  "the",          "\xf0\x9f\x98\x80",
                                  "\xe3\x80\x80", " \'",
                                  "aaaa",         "12",
                                  "\xed\xa0\x80", NULL};

size_t fuzz_seed(uint8_t *data, int index)
{
    static const char *const seeds[] = {
        "it's they're we'll  'tis\n\n  x\t\r\n1 22 333 !?... (a)",
        ("na\xc3\xafve \xd0\xbf\xd1\x80\xd0\xb8 \xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c \xf0\x9f\x98\x80 "
         "\xe3\x80\x80 \xd9\xa3"),
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "\xff\xfe\xc0\x80\xf5\x80\x80\x80 \xe4\xb8",
    };
    if (index >= (int)(sizeof(seeds) / sizeof(seeds[0]))) {
        return 0;
    }
    memcpy(data, seeds[index], strlen(seeds[index]));
    return strlen(seeds[index]);
}

static void check_round_trip(const Tokenizer *tokenizer, const TokenBuffer *tokens, const uint8_t *data,
                             size_t bytes)
{
    TextStream stream = {0};
    size_t done = 0;
    char out[TOKEN_BYTES_MAX + 4];
    for (size_t i = 0; i <= tokens->count; i++) {
        size_t count;
        if (i < tokens->count) {
            size_t token_bytes;
            const char *token = tokenizer_token_bytes(tokenizer, tokens->tokens[i], &token_bytes);
            CHECK(token, "token %d", tokens->tokens[i]);
            count = text_stream_push(&stream, out, token, token_bytes);
        } else {
            count = text_stream_finish(&stream, out);
        }
        CHECK(done + count <= bytes && memcmp(out, data + done, count) == 0, "other bytes at %zu", done);
        done += count;
    }
    CHECK(done == bytes, "%zu bytes became %zu", bytes, done);
}

static void check_same(const TokenBuffer *a, const TokenBuffer *b, const char *what)
{
    CHECK(a->count == b->count &&
              (a->count == 0 || memcmp(a->tokens, b->tokens, a->count * sizeof(*a->tokens)) == 0),
          "%s: other tokens", what);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static Tokenizer *tokenizer;
    static Encoder *used; /* its cache has seen all inputs so far */
    if (!tokenizer) {
        tokenizer = tokenizer_create();
        used = encoder_create(tokenizer);
    }
    const char *text = (const char *)data;
    TokenBuffer whole = {0};
    TokenBuffer parts = {0};
    encoder_encode(used, &whole, text, bytes);
    check_round_trip(tokenizer, &whole, data, bytes);

    size_t seen = bytes - bytes / 3;
    size_t cut = text_cut(tokenizer, text, seen);
    CHECK(cut == 0 || cut < seen, "cut at %zu of %zu", cut, seen);
    Encoder *fresh = encoder_create(tokenizer);
    encoder_encode(fresh, &parts, text, cut);
    encoder_encode(fresh, &parts, text + cut, bytes - cut);
    check_same(&parts, &whole, "cut");
    CHECK(encoder_steps(fresh) <= 64 * (uint64_t)bytes + 64, "%llu steps for %zu bytes",
          (unsigned long long)encoder_steps(fresh), bytes);
    encoder_free(fresh);
    token_buffer_release(&whole);
    token_buffer_release(&parts);
    return 0;
}
