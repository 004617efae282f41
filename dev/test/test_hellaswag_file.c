/* Both files of HellaSwag hold the same items; what is damaged or foreign is refused with file, place and
 * finding.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dev/test/scratch.h"
#include "llmc/run/hellaswag_file.h"

#define FOLDER "dev/test/hellaswag/"

enum { ITEMS = 20, HEADER_BYTES = 1024, VOCAB = 50257 };

static Tokenizer *tokenizer;
static Encoder *encoder;

static int create_encoder(void **state)
{
    tokenizer = tokenizer_create();
    encoder = encoder_create(tokenizer);
    return scratch_create(state);
}

static int free_encoder(void **state)
{
    encoder_free(encoder);
    tokenizer_free(tokenizer);
    return scratch_remove(state);
}

static void assert_text(const char *found, const char *expected)
{
    if (!strstr(found, expected)) {
        fail_msg("expected \"%s\", found \"%s\"", expected, found);
    }
}

/* The items of the .bin are what llm.c's own writer made of tiktoken's tokens. */
static void test_both_files_have_the_same_items(void **state)
{
    (void)state;
    HellaSwagSet llmc = {0}, json = {0};
    Error error;
    assert_int_equal(hellaswag_open(&llmc, FOLDER "items.bin", VOCAB, &error), 0);
    assert_int_equal(hellaswag_open(&json, FOLDER "items.jsonl", VOCAB, &error), 0);
    assert_int_equal(llmc.count, ITEMS);
    assert_int_equal(json.count, ITEMS);
    assert_int_equal(llmc.tokens.count, json.tokens.count);
    assert_memory_equal(llmc.tokens.tokens, json.tokens.tokens, json.tokens.count * sizeof(uint16_t));
    assert_memory_equal(llmc.items, json.items, ITEMS * sizeof(*json.items));
    assert_true(hellaswag_hash(&llmc) == hellaswag_hash(&json));
    json.items[7].label ^= 1;
    assert_true(hellaswag_hash(&llmc) != hellaswag_hash(&json));
    hellaswag_release(&llmc);
    hellaswag_release(&json);
}

/* ---- JSON lines ---------------------------------------------------------------------------------------- */

#define ENDINGS "\"endings\":[\"a\",\"b\",\"c\",\"d\"]"
#define GOOD "{\"ctx\":\"x\"," ENDINGS ",\"label\":2}\n"

static void test_json_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected; /* NULL: it is right */
    } cases[] = {
        {GOOD, NULL},
        {GOOD GOOD "\n  \n" GOOD, NULL},
        {"\n" GOOD, NULL},
        {"{\"ctx\":\"x\"," ENDINGS ",\"label\":2}", NULL},
        {"{\"ctx\":\"x\"," ENDINGS ",\"label\":\"3\",\"ind\":4}\r\n", NULL},
        {GOOD "{\"ctx\":\"x\"," ENDINGS ",\"lab", "file:2: not JSON: "},
        {GOOD "\n\n{\"ctx\":\"x\"", "file:4: not JSON: "},
        {GOOD "[1]\n", "file:2: expected an object with ctx, endings and label, found an array"},
        {GOOD "{\"ctx\":\"x\",\"ctx\":\"y\"," ENDINGS ",\"label\":2}", "file:2: not JSON: duplicate"},
        {"{\"ctx\":\"x\\u0000y\"," ENDINGS ",\"label\":2}", "file:1: not JSON: "},
        {"{\"ctx\":\"x\xff\"," ENDINGS ",\"label\":2}", "file:1: not JSON: "},
        {"{\"text\":\"x\"}", "file:1: ctx: expected text, found none"},
        {"{\"ctx\":7," ENDINGS ",\"label\":2}", "file:1: ctx: expected text, found an integer"},
        {"{\"ctx\":\"\"," ENDINGS ",\"label\":2}", "file:1: ctx: expected text, found an empty string"},
        {"{\"ctx\":\"x\",\"label\":2}", "file:1: endings: expected an array of 4 strings, found none"},
        {"{\"ctx\":\"x\",\"endings\":\"abcd\",\"label\":2}",
         "endings: expected an array of 4 strings, found a"},
        {"{\"ctx\":\"x\",\"endings\":[\"a\",\"b\",\"c\"],\"label\":2}",
         "file:1: endings: expected 4, found 3"},
        {"{\"ctx\":\"x\",\"endings\":[\"a\",\"b\",\"c\",\"d\",\"e\"],\"label\":2}",
         "endings: expected 4, found 5"},
        {"{\"ctx\":\"x\",\"endings\":[\"a\",\"b\",null,\"d\"],\"label\":2}",
         "expected 4 strings, found null"},
        {"{\"ctx\":\"x\"," ENDINGS "}",
         "file:1: label: expected 0 to 3, found none (HellaSwag's test split has"},
        {"{\"ctx\":\"x\"," ENDINGS ",\"label\":4}", "file:1: label: expected 0 to 3, found 4"},
        {GOOD "{\"ctx\":\"x\"," ENDINGS ",\"label\":-1}", "file:2: label: expected 0 to 3, found -1"},
        {"{\"ctx\":\"x\"," ENDINGS ",\"label\":\"\"}",
         "file:1: label: expected 0 to 3, found another string"},
        {"{\"ctx\":\"x\"," ENDINGS ",\"label\":1.0}", "file:1: label: expected 0 to 3, found a number"},
        {"",
         "file: expected HellaSwag, as lines of JSON or as llm.c's file (magic 20240522), found an empty"},
        {"\n\n", "file: expected HellaSwag, as lines of JSON or"},
        {"[" GOOD "]", "found a JSON array; take hellaswag_val.jsonl"},
        {"ctx,endings,label\n", "found another file; take"},
        {"\x1f\x8b\x08\x08xxxx", "found a gzip archive (gunzip it)"},
        {"PAR1xxxx", "found a Parquet file"},
        {"\x88\xd8\x34\x01xxxx", "found a shard of tokens"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        HellaSwagSet set = {0};
        Error error = {.text = ""};
        int status = hellaswag_parse(&set, encoder, cases[i].text, strlen(cases[i].text), "file", &error);
        if (!cases[i].expected && status != 0) {
            fail_msg("case %zu: %s", i, error.text);
        } else if (cases[i].expected) {
            assert_int_equal(status, -1);
            assert_text(error.text, cases[i].expected);
            assert_true(set.count == 0 && !set.items && !set.tokens.tokens);
        }
        hellaswag_release(&set);
    }
}

/* ---- llm.c's file -------------------------------------------------------------------------------------- */

/* One word of the file's bytes is changed, or its end is cut off or added to. */
static void test_damaged_llmc_files(void **state)
{
    (void)state;
    enum { FIRST = HEADER_BYTES, WHOLE = 1 << 20 };
    static const struct {
        int place, value; /* of an uint16 */
        int end;          /* bytes that are kept; WHOLE + n: n more */
        const char *expected;
    } cases[] = {
        {0, 0, WHOLE, "found another file"},
        {4, 2, WHOLE, "file: expected version 1 of llm.c's HellaSwag file, found version 2"},
        {8, 0, WHOLE, "file: expected one item or more, found 0 in the header"},
        {8, 19, WHOLE, "file: too long: header promises 19 items, after which"},
        {8, 21, WHOLE, "file: item 20 of 0 .. 20: truncated: the file ends there"},
        {10, 0xffff, WHOLE, "file: expected one item or more, found -65516"},
        {12, 100, WHOLE, "expected an even number of bytes from 30 to 100, found"},
        {FIRST, 65534, WHOLE,
         "file: item 0 of 0 .. 19: expected the mark 65535 and the number 0, found 65534 and 0"},
        {FIRST + 2, 29, WHOLE, "file: item 0 of 0 .. 19: expected an even number of bytes from 30 to"},
        {FIRST + 2, 28, WHOLE, "file: item 0 of 0 .. 19: expected an even number of bytes from 30 to"},
        {FIRST + 2, 65534, WHOLE, "file: item 0 of 0 .. 19: expected an even number of bytes from 30 to"},
        {FIRST + 4, 1, WHOLE, "expected the mark 65535 and the number 0, found 65535 and 1"},
        {FIRST + 6, 4, WHOLE,
         "file: item 0 of 0 .. 19: expected a label from 0 to 3 of 4 endings, found label 4 of 4"},
        {FIRST + 8, 5, WHOLE, "expected a label from 0 to 3 of 4 endings, found label 0 of 5 endings"},
        {FIRST + 10, 0, WHOLE, "file: item 0 of 0 .. 19: the context has 0 tokens"},
        {FIRST + 10, 6000, WHOLE, "file: item 0 of 0 .. 19: the context has 6000 tokens, and the item holds"},
        {FIRST + 10, 14, WHOLE, "file: item 0 of 0 .. 19: ending 0 has"},
        {4, 1, 3, "found another file"},
        {4, 1, 900, "file: truncated: expected a header of 1024 bytes, found 900"},
        {4, 1, HEADER_BYTES, "file: item 0 of 0 .. 19: truncated: the file ends there; copy it again"},
        {4, 1, HEADER_BYTES + 40, "file: item 0 of 0 .. 19: truncated: the file ends in it; copy it again"},
        {4, 1, WHOLE - 1, "file: item 19 of 0 .. 19: truncated: the file ends in it"},
        {4, 1, WHOLE + 1, "file: too long: header promises 20 items, after which 1 bytes follow"},
        {4, 1, WHOLE + 2, "file: too long: header promises 20 items, after which 2 bytes follow"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t bytes;
        unsigned char *whole = scratch_read(FOLDER "items.bin", &bytes);
        size_t kept = cases[i].end < WHOLE / 2 ? (size_t)cases[i].end : bytes + (size_t)cases[i].end - WHOLE;
        unsigned char *data = calloc(1, bytes + 16);
        memcpy(data, whole, bytes);
        data[cases[i].place] = (unsigned char)cases[i].value;
        data[cases[i].place + 1] = (unsigned char)(cases[i].value >> 8);
        HellaSwagSet set = {0};
        Error error = {.text = ""};
        if (hellaswag_parse(&set, encoder, (char *)data, kept, "file", &error) != -1) {
            fail_msg("case %zu is taken", i);
        }
        assert_text(error.text, cases[i].expected);
        assert_true(set.count == 0 && !set.items && !set.tokens.tokens);
        free(data);
        free(whole);
    }
}

static void refuse(const char *path, int vocab_size, const char *expected)
{
    HellaSwagSet set = {0};
    Error error = {.text = ""};
    assert_int_equal(hellaswag_open(&set, path, vocab_size, &error), -1);
    assert_text(error.text, expected);
    assert_null(set.items);
}

static void test_files(void **state)
{
    (void)state;
    refuse("nope.jsonl", VOCAB, "hellaswag: nope.jsonl: cannot open");
    refuse(FOLDER, VOCAB, "hellaswag: " FOLDER);
    refuse(FOLDER "items.jsonl", 256,
           "hellaswag: " FOLDER "items.jsonl: item 0 has token 582: expected tokens below vocab_size=256; ");
    refuse(FOLDER "expected.txt", VOCAB,
           "hellaswag: " FOLDER "expected.txt: expected HellaSwag, as lines of");
    refuse(scratch_write("cut.jsonl", GOOD GOOD, 2 * sizeof(GOOD) - 8), VOCAB, "cut.jsonl:2: not JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_files_have_the_same_items), cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_damaged_llmc_files), cmocka_unit_test(test_files)};
    return cmocka_run_group_tests(tests, create_encoder, free_encoder);
}
