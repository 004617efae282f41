/* Vocabularies of characters: the two files that hold one, and everything that is nearly one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/test/meta_pickles.h"
#include "llmc/base/memory.h"
#include "llmc/text/characters.h"

static const uint32_t some[] = {'\n', ' ', '!', 'a', 0xe9, 0xff, 0x4e2d, 0x1f600};
enum { SOME = sizeof(some) / sizeof(some[0]) };

#define PICKLE(protocol) meta_pickle_##protocol, sizeof(meta_pickle_##protocol)

static void check_some(Characters *characters, const Error *error)
{
    if (!characters) {
        fail_msg("%s", error->text);
    }
    assert_int_equal(characters_count(characters), SOME);
    for (int i = 0; i < SOME; i++) {
        assert_int_equal(characters_code_point(characters, i), some[i]);
        assert_int_equal(characters_find(characters, some[i]), i);
    }
    characters_free(characters);
}

/* ---- encoding ------------------------------------------------------------------------------------------ */

static void test_both_ways(void **state)
{
    (void)state;
    Error error;
    const char text[] = "a\n\xc3\xa9\xe4\xb8\xad \xf0\x9f\x98\x80!\xc3\xbf";
    const int32_t expected[] = {3, 0, 4, 6, 1, 7, 2, 5};
    int32_t tokens[sizeof(text)];
    Characters *characters = characters_create(some, SOME, &error);
    assert_int_equal(characters_encode(tokens, characters, text, strlen(text), &error), SOME);
    assert_memory_equal(tokens, expected, sizeof(expected));
    char back[64], *next = back;
    for (int i = 0; i < SOME; i++) {
        next += characters_token_bytes(characters, tokens[i], next);
    }
    assert_int_equal(next - back, strlen(text));
    assert_memory_equal(back, text, strlen(text));
    assert_int_equal(characters_token_bytes(characters, SOME, back), 0);
    assert_int_equal(characters_token_bytes(characters, -1, back), 0);
    assert_int_equal(characters_find(characters, 'b'), -1);
    assert_int_equal(characters_encode(tokens, characters, "aaxa", 4, &error), -1);
    assert_string_equal(error.text, "expected characters of the vocabulary of 8, found 'x' (U+0078)");
    assert_int_equal(characters_encode(tokens, characters, "a\ta", 3, &error), -1);
    assert_string_equal(error.text, "expected characters of the vocabulary of 8, found U+0009");
    assert_int_equal(characters_encode(tokens, characters, "aa\xc3", 3, &error), -1);
    assert_string_equal(error.text, "expected UTF-8 text, found byte 0xc3 at byte 2");
    characters_free(characters);
}

static void test_what_is_no_vocabulary(void **state)
{
    (void)state;
    Error error;
    const uint32_t twice[] = {'a', 'b', 'a'}, surrogate[] = {'a', 0xd800}, beyond[] = {0x110000};
    assert_null(characters_create(twice, 3, &error));
    assert_string_equal(error.text, "expected each character once, found U+0061 twice");
    assert_null(characters_create(surrogate, 2, &error));
    assert_non_null(strstr(error.text, "found U+D800, which is none"));
    assert_null(characters_create(beyond, 1, &error));
    assert_null(characters_create(some, 0, &error));
    assert_null(characters_create(some, CHARACTERS_MAX + 1, &error));
}

static void test_the_same(void **state)
{
    (void)state;
    const uint32_t other[] = {' ', '\n', '!', 'a', 0xe9, 0xff, 0x4e2d, 0x1f600};
    Characters *a = characters_create(some, SOME, NULL), *b = characters_copy(a);
    Characters *c = characters_create(other, SOME, NULL), *d = characters_create(some, SOME - 1, NULL);
    assert_true(characters_are_same(a, b) && characters_are_same(NULL, NULL));
    assert_int_equal(characters_hash(a), characters_hash(b));
    assert_false(characters_are_same(a, c) || characters_are_same(a, d) || characters_are_same(a, NULL));
    assert_true(characters_hash(a) != characters_hash(c) && characters_hash(NULL) == 0);
    assert_null(characters_copy(NULL));
    characters_free(a);
    characters_free(b);
    characters_free(c);
    characters_free(d);
}

/* ---- characters.json ----------------------------------------------------------------------------------- */

/* Every character that JSON escapes, and the largest vocabulary. */
static void test_json_both_ways(void **state)
{
    (void)state;
    Error error;
    uint32_t *code_points = malloc(CHARACTERS_MAX * sizeof(*code_points));
    for (int i = 0; i < CHARACTERS_MAX; i++) {
        code_points[i] = (uint32_t)(i < 0xd800 ? i : i + 0x800);
    }
    for (int count = 1; count <= CHARACTERS_MAX; count = count == 300 ? CHARACTERS_MAX : count + 1) {
        Characters *characters = characters_create(code_points, count, &error);
        char *text = characters_to_json(characters);
        assert_true(strlen(text) < CHARACTERS_FILE_BYTES_MAX);
        Characters *back = characters_parse_json(text, strlen(text), &error);
        assert_true(characters_are_same(characters, back));
        characters_free(back);
        characters_free(characters);
        memory_free(text);
    }
    free(code_points);
    Characters *characters = characters_create(some, SOME, &error);
    char *text = characters_to_json(characters);
    assert_string_equal(
        text, "{\"tokenizer\":\"char\",\"characters\":[\"\\n\",\" \",\"!\",\"a\",\"\xc3\xa9\",\"\xc3"
              "\xbf\",\"\xe4\xb8\xad\",\"\xf0\x9f\x98\x80\"]}\n");
    for (size_t bytes = 0; bytes + 2 < strlen(text); bytes++) { /* cut */
        assert_null(characters_parse_json(text, bytes, &error));
    }
    check_some(characters_parse_json(text, strlen(text), &error), &error);
    memory_free(text);
    characters_free(characters);
}

static void test_json_that_is_none(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"", "expected a vocabulary as JSON"},
        {"[\"a\"]", "found another one"},
        {"{\"tokenizer\":\"char\"}", "found another one"},
        {"{\"characters\":[\"a\"]}", "found another one"},
        {"{\"tokenizer\":\"char\",\"characters\":[\"a\"],\"more\":1}", "found another one"},
        {"{\"tokenizer\":\"char\",\"characters\":{\"a\":0}}", "found another one"},
        {"{\"tokenizer\":\"gpt2\",\"characters\":[\"a\"]}", "tokenizer: expected \"char\", found \"gpt2\""},
        {"{\"tokenizer\":\"char\\u0000\",\"characters\":[\"a\"]}", "tokenizer: expected \"char\""},
        {"{\"tokenizer\":1,\"characters\":[\"a\"]}", "found another one"},
        {"{\"tokenizer\":\"char\",\"characters\":[]}", "expected 1 to 65536 characters, found 0"},
        {"{\"tokenizer\":\"char\",\"characters\":[\"a\",\"\"]}", "for token 1, found an empty one"},
        {"{\"tokenizer\":\"char\",\"characters\":[\"a\",\"bc\"]}", "for token 1, found another string"},
        {"{\"tokenizer\":\"char\",\"characters\":[\"a\",7]}", "for token 1, found another kind of value"},
        {"{\"tokenizer\":\"char\",\"characters\":[\"a\",\"b\",\"a\"]}", "found U+0061 twice"},
        {"{\"tokenizer\":\"char\",\"tokenizer\":\"char\",\"characters\":[\"a\"]}", "duplicate"},
        {"{\"tokenizer\":\"char\",\"characters\":[\"a\"]} x", "expected a vocabulary as JSON"},
        {"{\"tokenizer\":\"char\",\"characters\":[\"\\ud800\"]}", "expected a vocabulary as JSON"},
        {"{\"a\":0,\"b\":1}", "found another one"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        Error error = {.text = ""};
        Characters *characters = characters_parse_json(rows[i].text, strlen(rows[i].text), &error);
        if (characters || !strstr(error.text, rows[i].expected)) {
            fail_msg("%s: expected \"%s\", found \"%s\"", rows[i].text, rows[i].expected, error.text);
        }
    }
}

/* ---- meta.pkl ------------------------------------------------------------------------------------------ */

static void test_pickles_of_python(void **state)
{
    (void)state;
    Error error;
    check_some(characters_parse_pickle(PICKLE(3), &error), &error);
    check_some(characters_parse_pickle(PICKLE(4), &error), &error);
    check_some(characters_parse_pickle(PICKLE(5), &error), &error);
    assert_null(characters_parse_pickle(PICKLE(2), &error));
    assert_non_null(strstr(error.text, "expected a pickle of protocol 3, 4 or 5"));
}

/* Each byte that is cut, added or changed: refused, or a vocabulary of as many characters. */
static void check_damaged(const unsigned char *good, size_t bytes)
{
    Error error;
    unsigned char *data = malloc(bytes + 1);
    memcpy(data, good, bytes);
    data[bytes] = '.';
    assert_null(characters_parse_pickle(data, bytes + 1, &error));
    assert_non_null(strstr(error.text, "more behind it"));
    for (size_t cut = 0; cut < bytes; cut++) {
        assert_null(characters_parse_pickle(data, cut, &error));
    }
    int accepted = 0;
    for (size_t i = 0; i < bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            data[i] ^= (unsigned char)(1 << bit);
            Characters *characters = characters_parse_pickle(data, bytes, &error);
            if (characters) {
                accepted++;
                assert_int_equal(characters_count(characters), SOME);
            }
            characters_free(characters);
            data[i] = good[i];
        }
    }
    /* The protocol's number; a character's own bits, which is then another one; the length of a frame. */
    assert_in_range(accepted, 1, 8 * bytes / 4);
    free(data);
}

static void test_damaged_pickles(void **state)
{
    (void)state;
    check_damaged(PICKLE(3));
    check_damaged(PICKLE(4));
    check_damaged(PICKLE(5));
}

/* Pickles of other things, most of which would run code where they are loaded. */
static void test_foreign_pickles(void **state)
{
    (void)state;
#define ROW(text, expected)                                                                                  \
    {                                                                                                        \
        text, sizeof(text) - 1, expected                                                                     \
    }
    static const struct {
        const char *data;
        size_t bytes;
        const char *expected;
    } rows[] = {
        ROW("", "protocol 3, 4 or 5"),
        ROW("\x80\x04.", "expected one dictionary"),
        ROW("\x80\x04}\x94.", "expected vocab_size, itos and stoi"),
        ROW("\x80\x04\x8c\x02os\x94", "expected one character"),
        ROW("\x80\x03"
            "cos\nsystem\n",
            "GLOBAL, which loads code at byte 2"),
        ROW("\x80\x04}\x94\x93", "STACK_GLOBAL, which loads code at byte 4"),
        ROW("\x80\x04}R", "REDUCE, which runs code at byte 3"),
        ROW("\x80\x04}b", "BUILD, which runs code"),
        ROW("\x80\x04\x81", "NEWOBJ, which runs code"),
        ROW("\x80\x04(ios\nsystem\n", "INST, which runs code"),
        ROW("\x80\x04]\x94.", "EMPTY_LIST"),
        ROW("\x80\x04N.", "NONE"),
        ROW("\x80\x04}}}}.", "expected three dictionaries, found a fourth"),
        ROW("\x80\x04K\x01K\x02s", "expected a key and a value"),
        ROW("\x80\x04}K\x01u", "expected a mark before the items"),
        ROW("\x80\x04}(K\x01u", "expected keys and values for a dictionary"),
        ROW("\x80\x04K\x01(K\x01K\x02u", "expected keys and values for a dictionary"),
        ROW("\x80\x04(\x94", "expected a note of the last value"),
        ROW("\x80\x04}q\x07", "under the next number"),
        ROW("\x80\x04}h\x00", "expected a number of the memo"),
        ROW("\x80\x04J\xff\xff\xff\xff", "expected numbers up to 65536"),
        ROW("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff.", "expected a frame that fits"),
        ROW("\x80\x04X\xff\xff\xff\xff", "expected a whole pickle"),
        ROW("\x80\x04\xfe.", "opcode 0xfe at byte 2"),
        ROW("PK\x03\x04", "protocol 3, 4 or 5"),
    };
#undef ROW
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        Error error = {.text = ""};
        Characters *characters =
            characters_parse_pickle((const unsigned char *)rows[i].data, rows[i].bytes, &error);
        if (characters || !strstr(error.text, rows[i].expected)) {
            fail_msg("row %zu: expected \"%s\", found \"%s\"", i, rows[i].expected, error.text);
        }
    }
}

/* Dictionaries of the right opcodes and wrong content. */
static void test_pickles_that_contradict_themselves(void **state)
{
    (void)state;
#define BEGIN "\x80\x04}("
#define SIZE(n) "\x8c\x0avocab_sizeK" n
#define ITOS(entries) "\x8c\x04itos}(" entries "u"
#define STOI(entries) "\x8c\x04stoi}(" entries "u"
#define A                                                                                                    \
    "\x8c\x01"                                                                                               \
    "a"
#define B                                                                                                    \
    "\x8c\x01"                                                                                               \
    "b"
#define ROW(text, expected)                                                                                  \
    {                                                                                                        \
        text, sizeof(text) - 1, expected                                                                     \
    }
    static const struct {
        const char *data;
        size_t bytes;
        const char *expected; /* NULL: accepted */
    } rows[] = {
        ROW(BEGIN SIZE("\x02") ITOS("K\x00" A "K\x01" B) STOI(A "K\x00" B "K\x01") "u.", NULL),
        ROW(BEGIN SIZE("\x02") ITOS("K\x00" A "K\x01" B) STOI(B "K\x01" A "K\x00") "u.", NULL),
        ROW(BEGIN SIZE("\x03") ITOS("K\x00" A "K\x01" B) STOI(A "K\x00" B "K\x01") "u.",
            "vocab_size=3 entries"),
        ROW(BEGIN SIZE("\x02") ITOS("K\x00" A) STOI(A "K\x00" B "K\x01") "u.", "found 1 and 2"),
        ROW(BEGIN SIZE("\x02") ITOS("K\x00" A "K\x01" B) STOI(A "K\x01" B "K\x00") "u.",
            "to be the same table"),
        ROW(BEGIN SIZE("\x02") ITOS("K\x00" A "K\x00" B) STOI(A "K\x00" B "K\x01") "u.",
            "to be the same table"),
        ROW(BEGIN SIZE("\x02") ITOS("K\x00" A "K\x01" A) STOI(A "K\x00" A "K\x01") "u.", "U+0061 twice"),
        ROW(BEGIN SIZE("\x02") ITOS("K\x00" A "K\x02" B) STOI(A "K\x00" B "K\x02") "u.",
            "below vocab_size=2"),
        ROW(BEGIN SIZE("\x02") ITOS(A "K\x00" B "K\x01") STOI(A "K\x00" B "K\x01") "u.", "in itos"),
        ROW(BEGIN SIZE("\x01") ITOS("K\x00" A) "u.", "another dictionary"),
        ROW(BEGIN ITOS("K\x00" A) STOI(A "K\x00") "u.", "another dictionary"),
        ROW(BEGIN SIZE("\x01") SIZE("\x01") ITOS("K\x00" A) STOI(A "K\x00") "u.", "another dictionary"),
        ROW(BEGIN SIZE("\x01") ITOS("K\x00" A) STOI(A "K\x00") "K\x01K\x02u.", "another dictionary"),
    };
#undef ROW
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        Error error = {.text = ""};
        Characters *characters =
            characters_parse_pickle((const unsigned char *)rows[i].data, rows[i].bytes, &error);
        if (!characters != (rows[i].expected != NULL) ||
            (rows[i].expected && !strstr(error.text, rows[i].expected))) {
            fail_msg("row %zu: expected \"%s\", found \"%s\"", i,
                     rows[i].expected ? rows[i].expected : "none", error.text);
        }
        characters_free(characters);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_what_is_no_vocabulary),
        cmocka_unit_test(test_the_same),
        cmocka_unit_test(test_json_both_ways),
        cmocka_unit_test(test_json_that_is_none),
        cmocka_unit_test(test_pickles_of_python),
        cmocka_unit_test(test_damaged_pickles),
        cmocka_unit_test(test_foreign_pickles),
        cmocka_unit_test(test_pickles_that_contradict_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
