/* Words too long to be encoded in one go: window by window they have the same tokens, in bounded space. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llmc/text/bpe.h"

static Tokenizer *tokenizer;
static uint32_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * limit >> 32);
}

/* Runs of one thing, whose merges reach far; periods that no token has; and random text of few letters. */
static void fill_word(uint8_t *word, size_t bytes, int kind)
{
    static const char *const repeated[] = {
        " ", "\n",   "a",   "=",     "-",      "0",       "ab", "aab",      "\xe4\xb8\xad",
        "_", "\r\n", "\t ", "====-", "aaaaa ", "*******", "ha", "\xc2\xa0", "abcabd"};
    enum { REPEATED = sizeof(repeated) / sizeof(repeated[0]) };
    for (size_t i = 0; i < bytes; i++) {
        if (kind < REPEATED) {
            word[i] = (uint8_t)repeated[kind][i % strlen(repeated[kind])];
        } else {
            const char *const letters[] = {" \n", "ab", "=-_", "eatin shro", " \t\n\r"};
            const char *some = letters[kind % 5];
            word[i] = (uint8_t)some[random_below((uint32_t)strlen(some))];
        }
    }
}

enum { KINDS = 28 };

static void check(const uint8_t *word, size_t bytes, size_t window_bytes, int kind)
{
    uint16_t *expected = malloc(bytes * sizeof(*expected));
    uint16_t *found = malloc(bytes * sizeof(*found));
    BpeScratch scratch = {0};
    size_t count = bpe_encode(&scratch, expected, tokenizer, word, bytes);
    size_t found_count = bpe_encode_windows(&scratch, found, tokenizer, word, bytes, window_bytes);
    if (count != found_count || memcmp(expected, found, count * sizeof(*found)) != 0) {
        fail_msg("kind %d, %zu bytes by windows of %zu: expected %zu tokens, found %zu or others", kind,
                 bytes, window_bytes, count, found_count);
    }
    bpe_scratch_release(&scratch);
    free(expected);
    free(found);
}

static void test_windows_change_no_token(void **state)
{
    (void)state;
    enum { WORD_BYTES = 12000 };
    uint8_t *word = malloc(WORD_BYTES);
    for (int kind = 0; kind < KINDS; kind++) {
        fill_word(word, WORD_BYTES, kind);
        for (size_t window_bytes = TOKEN_BYTES_MAX + 1; window_bytes < WORD_BYTES; window_bytes += 401) {
            check(word, WORD_BYTES - random_below(300), window_bytes, kind);
        }
    }
    free(word);
}

/* Both ways of many megabytes, and the space they take. */
static void test_space_is_bounded(void **state)
{
    (void)state;
    enum { WORD_BYTES = 9 << 20, SYMBOLS_MAX = 3 << 20 };
    static const int kinds[] = {0, 2, 21};
    uint8_t *word = malloc(WORD_BYTES);
    uint16_t *whole = malloc(WORD_BYTES * sizeof(*whole));
    uint16_t *found = malloc(WORD_BYTES * sizeof(*found));
    for (int i = 0; i < 3; i++) {
        fill_word(word, WORD_BYTES, kinds[i]);
        BpeScratch scratch = {0};
        size_t count = bpe_encode(&scratch, found, tokenizer, word, WORD_BYTES);
        if (scratch.symbols_capacity > SYMBOLS_MAX) {
            fail_msg("kind %d: expected space for at most %d symbols, found %zu", kinds[i], SYMBOLS_MAX,
                     scratch.symbols_capacity);
        }
        size_t whole_count = bpe_encode_windows(&scratch, whole, tokenizer, word, WORD_BYTES, WORD_BYTES);
        assert_int_equal(count, whole_count);
        assert_memory_equal(found, whole, count * sizeof(*whole));
        bpe_scratch_release(&scratch);
    }
    free(word);
    free(whole);
    free(found);
}

static int create(void **state)
{
    (void)state;
    tokenizer = tokenizer_create();
    return 0;
}

static int release(void **state)
{
    (void)state;
    tokenizer_free(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_change_no_token),
        cmocka_unit_test(test_space_is_bounded),
    };
    return cmocka_run_group_tests(tests, create, release);
}
