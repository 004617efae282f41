/* Text as it is drawn: whole characters come out at once, halves wait, and no byte is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "llmc/text/tokenizer.h"

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * limit >> 32);
}

/* Characters of all lengths, and beginnings and ends of some. */
static size_t random_text(uint8_t *text, size_t bytes_max)
{
    static const uint8_t bytes[] = {'a',  0xc3, 0xa9, 0xe4, 0xb8, 0xad, 0xf0, 0x9f,
                                    0x98, 0x80, 0xed, 0xa0, 0xff, 0xf4, 0x90};
    size_t count = random_below((uint32_t)bytes_max + 1);
    uint32_t at = 0;
    for (size_t i = 0; i < count; i++) {
        at = random_below(4) == 0 ? random_below(sizeof(bytes)) : (at + 1) % (uint32_t)sizeof(bytes);
        text[i] = bytes[at];
    }
    return count;
}

static void test_stream_holds_back_half_characters(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80z\xff\xe4\xb8"
                               "b\xf0\x9f\x98";
    size_t bytes = sizeof(text) - 1;
    TextStream stream = {0};
    char out[64];
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        used += text_stream_push(&stream, out + used, text + i, 1);
        /* What has come out so far ends where a character ends. */
        int is_inside =
            (i == 1) || (i >= 3 && i <= 4) || (i >= 6 && i <= 8) || (i >= 12 && i <= 13) || i >= 15;
        assert_int_equal(used == i + 1, !is_inside);
    }
    assert_int_equal(stream.held_count, 3);
    used += text_stream_finish(&stream, out + used);
    assert_int_equal(used, bytes);
    assert_memory_equal(out, text, bytes);
    assert_int_equal(text_stream_finish(&stream, out), 0);
}

static void test_stream_passes_any_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint8_t text[64];
        size_t bytes = random_text(text, sizeof(text));
        char out[80];
        size_t used = 0;
        TextStream stream = {0};
        for (size_t done = 0; done < bytes;) {
            size_t count = random_below(9);
            count = count < bytes - done ? count : bytes - done;
            used += text_stream_push(&stream, out + used, (const char *)text + done, count);
            done += count;
            assert_true(stream.held_count <= 3);
        }
        used += text_stream_finish(&stream, out + used);
        assert_int_equal(used, bytes);
        assert_memory_equal(out, text, bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_holds_back_half_characters),
        cmocka_unit_test(test_stream_passes_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
