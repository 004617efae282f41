/* The tokenizer against tiktoken's ids (tokenizer_sample.h), a slow and simple one, and itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dev/test/tokenizer_sample.h"
#include "llmc/base/memory.h"
#include "llmc/text/bpe.h"
#include "llmc/text/pattern.h"
#include "llmc/text/tokenizer.h"
#include "llmc/text/vocabulary.h"

enum {
    SWEEP_BLOCK = 0x1000,
    CODE_POINTS = 0x110000,
    TEXTS_COUNT = sizeof(sample_texts) / sizeof(sample_texts[0])
};

static Tokenizer *tokenizer;

static int setup(void **state)
{
    (void)state;
    tokenizer = tokenizer_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_free(tokenizer);
    return 0;
}

static uint64_t fnv(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x100000001b3u;
}

#define FNV_BEGIN 0xcbf29ce484222325u

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * limit >> 32);
}

static void assert_same_tokens(const uint16_t *found, size_t found_count, const uint16_t *expected,
                               size_t expected_count, const char *what)
{
    for (size_t i = 0; i < found_count && i < expected_count; i++) {
        if (found[i] != expected[i]) {
            fail_msg("%s: token %zu: expected %d, found %d", what, i, expected[i], found[i]);
        }
    }
    if (found_count != expected_count) {
        fail_msg("%s: expected %zu tokens, found %zu", what, expected_count, found_count);
    }
}

/* A text in a block of its own size, so that a sanitizer sees every byte read behind it. */
static void encode_exactly(Encoder *encoder, TokenBuffer *out, const void *text, size_t bytes)
{
    char *block = malloc(bytes ? bytes : 1);
    memcpy(block, text, bytes);
    out->count = 0;
    encoder_encode(encoder, out, block, bytes);
    free(block);
}

static void test_ids_are_those_of_tiktoken(void **state)
{
    (void)state;
    Encoder *encoder = encoder_create(tokenizer);
    TokenBuffer tokens = {0};
    const uint16_t *expected = sample_ids;
    for (int i = 0; i < TEXTS_COUNT; i++) {
        char what[64];
        snprintf(what, sizeof(what), "text %d: %.40s", i, sample_texts[i].text);
        encode_exactly(encoder, &tokens, sample_texts[i].text, (size_t)sample_texts[i].bytes);
        assert_same_tokens(tokens.tokens, tokens.count, expected, (size_t)sample_texts[i].tokens, what);
        expected += sample_texts[i].tokens;
    }
    assert_int_equal(expected - sample_ids, sizeof(sample_ids) / sizeof(sample_ids[0]));
    token_buffer_release(&tokens);
    encoder_free(encoder);
}

static int utf8_encode(char *out, uint32_t point)
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    int bytes = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    out[0] = (char)((0xf00 >> bytes & 0xff) | point);
    return bytes;
}

/* "acc's  c1cthe cc", in which a character's class decides where words end. */
static size_t sweep_text(char text[64], uint32_t point)
{
    static const char *const parts[] = {"a", "'s  ", "1", "the ", "", ""};
    size_t used = 0;
    for (int i = 0; i < 6; i++) {
        memcpy(text + used, parts[i], strlen(parts[i]));
        used += strlen(parts[i]);
        if (i < 5) {
            used += (size_t)utf8_encode(text + used, point);
        }
    }
    return used;
}

static void test_ids_of_every_character(void **state)
{
    (void)state;
    Encoder *encoder = encoder_create(tokenizer);
    TokenBuffer tokens = {0};
    for (uint32_t first = 0; first < CODE_POINTS; first += SWEEP_BLOCK) {
        uint64_t hash = FNV_BEGIN;
        for (uint32_t point = first; point < first + SWEEP_BLOCK; point++) {
            if (point >= 0xd800 && point < 0xe000) {
                continue;
            }
            char text[64];
            size_t bytes = sweep_text(text, point);
            tokens.count = 0;
            encoder_encode(encoder, &tokens, text, bytes);
            for (size_t i = 0; i < tokens.count; i++) {
                hash = fnv(hash, tokens.tokens[i]);
            }
        }
        if (hash != sweep_hashes[first / SWEEP_BLOCK]) {
            fail_msg("characters from U+%04x: expected hash %016llx, found %016llx", first,
                     (unsigned long long)sweep_hashes[first / SWEEP_BLOCK], (unsigned long long)hash);
        }
    }
    token_buffer_release(&tokens);
    encoder_free(encoder);
}

static void test_class_of_every_code_point(void **state)
{
    (void)state;
    uint64_t hash = FNV_BEGIN;
    for (uint32_t point = 0; point < CODE_POINTS; point++) {
        char text[4];
        int bytes;
        int written = utf8_encode(text, point);
        const uint8_t *begin = (const uint8_t *)text;
        hash = fnv(hash, (uint64_t)pattern_class(&tokenizer->pattern, begin, begin + written, &bytes));
    }
    if (hash != classes_hash) {
        fail_msg("expected hash %016llx, found %016llx", (unsigned long long)classes_hash,
                 (unsigned long long)hash);
    }
}

/* Bytes that are no character are of no class, one by one; so the choice is the same on every path. */
static void test_class_of_what_is_no_character(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int bytes;
        CharClass class;
    } cases[] = {
        {"\xc0\xa0", 1, CLASS_OTHER},
        {"\xc1\x81", 1, CLASS_OTHER},
        {"\xe0\x80\xa0", 1, CLASS_OTHER},
        {"\xf0\x80\x80\xa0", 1, CLASS_OTHER},
        {"\xed\xa0\x80", 1, CLASS_OTHER},
        {"\xf4\x90\x80\x80", 1, CLASS_OTHER},
        {"\xf5\x80\x80\x80", 1, CLASS_OTHER},
        {"\x80", 1, CLASS_OTHER},
        {"\xc3", 1, CLASS_OTHER},
        {"\xe4\xb8", 1, CLASS_OTHER},
        {"\xe3\x80\x80", 3, CLASS_SPACE},
        {"\xf0\x90\x8c\xb0", 4, CLASS_LETTER},
        {"\xc2\xbd", 2, CLASS_NUMBER},
        {"\xf0\x9f\x98\x80", 4, CLASS_OTHER},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint8_t *text = (const uint8_t *)cases[i].text;
        int bytes;
        CharClass class = pattern_class(&tokenizer->pattern, text, text + strlen(cases[i].text), &bytes);
        if (class != cases[i].class || bytes != cases[i].bytes) {
            fail_msg("case %zu: expected class %d of %d bytes, found class %d of %d", i, cases[i].class,
                     cases[i].bytes, class, bytes);
        }
    }
}

/* What the proof in bpe.c rests on: a token that is a word by itself becomes that token. */
static void test_every_token_encodes_to_itself(void **state)
{
    (void)state;
    BpeScratch scratch = {0};
    for (int token = 0; token < TOKENIZER_EOT; token++) {
        size_t bytes;
        const char *text = tokenizer_token_bytes(tokenizer, token, &bytes);
        uint16_t out[TOKEN_BYTES_MAX];
        size_t count = bpe_encode(&scratch, out, tokenizer, (const uint8_t *)text, bytes);
        if (count != 1 || out[0] != token) {
            fail_msg("token %d: expected itself, found %zu tokens, the first %d", token, count, out[0]);
        }
    }
    bpe_scratch_release(&scratch);
}

static void test_token_bytes(void **state)
{
    (void)state;
    size_t bytes;
    assert_memory_equal(tokenizer_token_bytes(tokenizer, 262, &bytes), " the", 4);
    assert_int_equal(bytes, 4);
    assert_memory_equal(tokenizer_token_bytes(tokenizer, TOKENIZER_EOT, &bytes), "<|endoftext|>", 13);
    assert_int_equal(bytes, 13);
    assert_null(tokenizer_token_bytes(tokenizer, TOKENIZER_VOCAB, &bytes));
    assert_int_equal(bytes, 0);
    assert_null(tokenizer_token_bytes(tokenizer, -1, &bytes));
}

/* The definition: again and again the earliest merge, the leftmost of equal ones. */
static size_t encode_slowly(uint16_t *out, const uint8_t *word, size_t bytes)
{
    size_t count = bytes;
    for (size_t i = 0; i < bytes; i++) {
        out[i] = tokenizer->byte_tokens[word[i]];
    }
    for (;;) {
        uint32_t best = NOT_A_MERGE;
        size_t place = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t merged = merged_token(tokenizer, out[i], out[i + 1]);
            if (merged < best) {
                best = merged;
                place = i;
            }
        }
        if (best == NOT_A_MERGE) {
            return count;
        }
        out[place] = (uint16_t)best;
        count--;
        memmove(out + place + 1, out + place + 2, (count - place - 1) * sizeof(*out));
    }
}

/* The fast paths against the general one: word by word, each without the cache. */
static size_t encode_word_by_word(uint16_t *out, const uint8_t *text, size_t bytes)
{
    size_t count = 0;
    const uint8_t *end = text + bytes;
    while (text < end) {
        const uint8_t *word_end = pattern_word_end(&tokenizer->pattern, text, end);
        count += encode_slowly(out + count, text, (size_t)(word_end - text));
        text = word_end;
    }
    return count;
}

/* Text of a few kinds of pieces at a time, so that runs and edges of all lengths come up. */
static size_t random_text(uint8_t *text, size_t bytes_max)
{
    static const char *const pieces[] = {
        "a",
        "b",
        "e",
        "t",
        "the",
        "S",
        "'",
        "s",
        "'s",
        "'ll",
        "'ve",
        " ",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "1",
        "22",
        ".",
        ",",
        "-",
        "=",
        "\xc3\xa9",
        "e\xcc\x81",
        "\xd0\xb6",
        "\xe4\xb8\xad",
        "\xe6\x96\x87",
        "\xf0\x9f\x98\x80",
        "\xe3\x80\x80",
        "\xc2\xa0",
        "\xd9\xa3",
        "\xe2\x80\x94",
        "\xff",
        "\x80",
        "\xc2",
        "\xe4\xb8",
        "\xed\xa0\x80",
    };
    size_t bytes = random_below((uint32_t)bytes_max + 1);
    size_t i = 0;
    while (i < bytes) {
        const char *kinds[3];
        for (int k = 0; k < 3; k++) {
            kinds[k] = pieces[random_below(sizeof(pieces) / sizeof(pieces[0]))];
        }
        for (uint32_t left = 1 + random_below(60); left > 0 && i < bytes; left--) {
            const char *piece = kinds[random_below(3)];
            for (const char *c = piece; *c && i < bytes; c++) {
                text[i++] = random_below(500) == 0 ? (uint8_t)random_below(256) : (uint8_t)*c;
            }
        }
    }
    return bytes;
}

static void test_fast_paths_are_the_definition(void **state)
{
    (void)state;
    enum { TEXT_BYTES_MAX = 700 };
    uint8_t text[TEXT_BYTES_MAX];
    uint16_t expected[TEXT_BYTES_MAX];
    Encoder *encoder = encoder_create(tokenizer);
    TokenBuffer tokens = {0};
    for (int i = 0; i < 10000; i++) {
        char what[32];
        snprintf(what, sizeof(what), "random text %d", i);
        size_t bytes = random_text(text, TEXT_BYTES_MAX);
        encode_exactly(encoder, &tokens, text, bytes);
        size_t count = encode_word_by_word(expected, text, bytes);
        assert_same_tokens(tokens.tokens, tokens.count, expected, count, what);
    }
    token_buffer_release(&tokens);
    encoder_free(encoder);
}

static void test_random_bytes_survive(void **state)
{
    (void)state;
    enum { TEXT_BYTES = 100000 };
    uint8_t *text = malloc(TEXT_BYTES);
    for (int i = 0; i < TEXT_BYTES; i++) {
        text[i] = (uint8_t)random_below(i < TEXT_BYTES / 2 ? 256 : 128);
    }
    Encoder *encoder = encoder_create(tokenizer);
    TokenBuffer tokens = {0};
    encode_exactly(encoder, &tokens, text, TEXT_BYTES);
    size_t done = 0;
    for (size_t i = 0; i < tokens.count; i++) {
        size_t bytes;
        const char *token = tokenizer_token_bytes(tokenizer, tokens.tokens[i], &bytes);
        assert_true(done + bytes <= TEXT_BYTES);
        assert_memory_equal(token, text + done, bytes);
        done += bytes;
    }
    assert_int_equal(done, TEXT_BYTES);
    free(text);
    token_buffer_release(&tokens);
    encoder_free(encoder);
}

static void test_cuts_change_nothing(void **state)
{
    (void)state;
    enum { TEXT_BYTES_MAX = 400 };
    uint8_t text[TEXT_BYTES_MAX];
    Encoder *encoder = encoder_create(tokenizer);
    TokenBuffer whole = {0};
    TokenBuffer parts = {0};
    int cuts_count = 0;
    for (int i = 0; i < 20000; i++) {
        size_t bytes = random_text(text, TEXT_BYTES_MAX);
        size_t seen = bytes > 0 ? 1 + random_below((uint32_t)bytes) : 0;
        size_t cut = text_cut(tokenizer, (const char *)text, seen);
        assert_true(cut == 0 || cut < seen);
        cuts_count += cut > 0;
        encode_exactly(encoder, &whole, text, bytes);
        parts.count = 0;
        encoder_encode(encoder, &parts, (const char *)text, cut);
        encoder_encode(encoder, &parts, (const char *)text + cut, bytes - cut);
        assert_same_tokens(parts.tokens, parts.count, whole.tokens, whole.count, "text in two parts");
    }
    assert_true(cuts_count > 10000);
    assert_int_equal(text_cut(tokenizer, "word word", 9), 4);
    assert_int_equal(text_cut(tokenizer, "a caf\xc3", 6), 1); /* what follows may be a letter */
    assert_int_equal(text_cut(tokenizer, "a caf\xc3\xa9s, s", 12), 8);
    assert_int_equal(text_cut(tokenizer, "aaaaaaaaa", 9), 0);
    token_buffer_release(&whole);
    token_buffer_release(&parts);
    encoder_free(encoder);
}

/* A long word of each kind that could go wrong: `kind` chooses how it is filled. */
static void fill_word(uint8_t *word, size_t bytes, int kind)
{
    static const char *const repeated[] = {"a", "=", "ab", "\xe4\xb8\xad", "aab", "\n", "0", "th"};
    for (size_t i = 0; i < bytes; i++) {
        if (kind < 8) {
            word[i] = (uint8_t)repeated[kind][i % strlen(repeated[kind])];
        } else {
            word[i] = (uint8_t)('a' + random_below(kind == 8 ? 26 : 2));
        }
    }
}

enum { WORD_KINDS = 10 };

static void test_long_words_are_the_definition(void **state)
{
    (void)state;
    enum { WORD_BYTES = 1500 };
    uint8_t word[WORD_BYTES];
    uint16_t expected[WORD_BYTES];
    uint16_t found[WORD_BYTES];
    BpeScratch scratch = {0};
    for (int kind = 0; kind < WORD_KINDS; kind++) {
        fill_word(word, WORD_BYTES, kind);
        for (size_t bytes = 40; bytes < WORD_BYTES; bytes += bytes < 70 ? 1 : 97) {
            char what[64];
            snprintf(what, sizeof(what), "word of kind %d, %zu bytes", kind, bytes);
            size_t count = encode_slowly(expected, word, bytes);
            size_t found_count = bpe_encode(&scratch, found, tokenizer, word, bytes);
            assert_same_tokens(found, found_count, expected, count, what);
        }
    }
    bpe_scratch_release(&scratch);
}

static void test_megabyte_words_in_linear_time(void **state)
{
    (void)state;
    enum { WORD_BYTES = 1 << 20, STEPS_PER_BYTE = 6 };
    uint8_t *word = malloc(WORD_BYTES);
    for (int kind = 0; kind < WORD_KINDS; kind++) {
        fill_word(word, WORD_BYTES, kind);
        Encoder *encoder = encoder_create(tokenizer);
        TokenBuffer tokens = {0};
        encoder_encode(encoder, &tokens, (const char *)word, WORD_BYTES);
        uint64_t steps = encoder_steps(encoder);
        if (steps > (uint64_t)WORD_BYTES * STEPS_PER_BYTE) {
            fail_msg("kind %d: expected at most %d steps a byte, found %.1f", kind, STEPS_PER_BYTE,
                     (double)steps / WORD_BYTES);
        }
        token_buffer_release(&tokens);
        encoder_free(encoder);
    }
    free(word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_are_those_of_tiktoken),
        cmocka_unit_test(test_ids_of_every_character),
        cmocka_unit_test(test_class_of_every_code_point),
        cmocka_unit_test(test_class_of_what_is_no_character),
        cmocka_unit_test(test_every_token_encodes_to_itself),
        cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_fast_paths_are_the_definition),
        cmocka_unit_test(test_random_bytes_survive),
        cmocka_unit_test(test_cuts_change_nothing),
        cmocka_unit_test(test_long_words_are_the_definition),
        cmocka_unit_test(test_megabyte_words_in_linear_time),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
