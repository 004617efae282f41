#include "data_prep/clean.h"

#include <string.h>

#include "llmc/base/memory.h"

enum { NEWLINES_KEPT = 2 };

/* White space is what Python's str.isspace says. Bytes of a character that begins like one of those beyond
 * ASCII: 1 it is white space, 0 it is not, -1 more bytes are needed. */
static int is_wide_space(const char *text, size_t bytes)
{
    const uint8_t *byte = (const uint8_t *)text;
    if (bytes < 2) {
        return -1;
    }
    if (byte[0] == 0xc2) {
        return byte[1] == 0x85 || byte[1] == 0xa0;
    }
    int may_be = (byte[0] == 0xe1 && byte[1] == 0x9a) ||
                 (byte[0] == 0xe2 && byte[1] >= 0x80 && byte[1] <= 0x81) ||
                 (byte[0] == 0xe3 && byte[1] == 0x80);
    if (!may_be || bytes < 3) {
        return may_be ? -1 : 0;
    }
    if (byte[0] == 0xe1 || byte[0] == 0xe3) {
        return byte[2] == 0x80; /* U+1680, U+3000 */
    }
    if (byte[1] == 0x81) {
        return byte[2] == 0x9f; /* U+205F */
    }
    return (byte[2] >= 0x80 && byte[2] <= 0x8a) || byte[2] == 0xa8 || byte[2] == 0xa9 || byte[2] == 0xaf;
}

static int is_ascii_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r') || (byte >= 0x1c && byte <= 0x1f);
}

static int begins_wide_space(uint8_t byte)
{
    return byte == 0xc2 || (byte >= 0xe1 && byte <= 0xe3);
}

size_t clean_bytes_max(const Cleaner *cleaner, size_t bytes)
{
    return cleaner->spaces_bytes + cleaner->partial_bytes + bytes;
}

static void keep_space(Cleaner *cleaner, const char *text, size_t bytes)
{
    cleaner->newlines = *text == '\n' ? cleaner->newlines + 1 : 0;
    if (!cleaner->has_begun || cleaner->newlines > NEWLINES_KEPT) {
        return;
    }
    if (cleaner->spaces_bytes + bytes > cleaner->spaces_capacity) {
        size_t capacity = cleaner->spaces_capacity * 2 + 64;
        cleaner->spaces = memory_grow(cleaner->spaces, cleaner->spaces_bytes, capacity, 1, "white space");
        cleaner->spaces_capacity = capacity;
    }
    memcpy(cleaner->spaces + cleaner->spaces_bytes, text, bytes);
    cleaner->spaces_bytes += bytes;
}

/* Text that is no white space comes next: what was kept before it stays. */
static size_t put_spaces(Cleaner *cleaner, char *out)
{
    size_t bytes = cleaner->spaces_bytes;
    if (bytes > 0) {
        memcpy(out, cleaner->spaces, bytes);
    }
    cleaner->spaces_bytes = 0;
    cleaner->newlines = 0;
    cleaner->has_begun = 1;
    return bytes;
}

/* The character in `partial` is decided or goes on. Returns the bytes written. */
static size_t push_partial(Cleaner *cleaner, char *out)
{
    int is_space = is_wide_space(cleaner->partial, cleaner->partial_bytes);
    size_t wrote = 0;
    if (is_space == 1) {
        keep_space(cleaner, cleaner->partial, cleaner->partial_bytes);
    } else if (is_space == 0) {
        wrote = put_spaces(cleaner, out);
        memcpy(out + wrote, cleaner->partial, cleaner->partial_bytes);
        wrote += cleaner->partial_bytes;
    }
    cleaner->partial_bytes = is_space < 0 ? cleaner->partial_bytes : 0;
    return wrote;
}

size_t clean_push(Cleaner *cleaner, char *out, const char *text, size_t bytes)
{
    char *to = out;
    for (size_t i = 0; i < bytes;) {
        uint8_t byte = (uint8_t)text[i];
        /* A byte below 0x80 ends a character that is cut; what was kept of it is no white space. */
        if (cleaner->partial_bytes > 0 || begins_wide_space(byte)) {
            if (cleaner->partial_bytes > 0 && (byte & 0xc0) != 0x80) {
                to += put_spaces(cleaner, to);
                memcpy(to, cleaner->partial, cleaner->partial_bytes);
                to += cleaner->partial_bytes;
                cleaner->partial_bytes = 0;
                continue;
            }
            cleaner->partial[cleaner->partial_bytes++] = text[i++];
            to += push_partial(cleaner, to);
            continue;
        }
        if (is_ascii_space(byte)) {
            keep_space(cleaner, text + i, 1);
            i++;
            continue;
        }
        to += put_spaces(cleaner, to);
        size_t end = i + 1;
        while (end < bytes && !is_ascii_space((uint8_t)text[end]) && !begins_wide_space((uint8_t)text[end])) {
            end++;
        }
        memcpy(to, text + i, end - i);
        to += end - i;
        i = end;
    }
    return (size_t)(to - out);
}

size_t clean_end(Cleaner *cleaner, char *out)
{
    size_t wrote = 0;
    if (cleaner->partial_bytes > 0) { /* a cut character */
        wrote = put_spaces(cleaner, out);
        memcpy(out + wrote, cleaner->partial, cleaner->partial_bytes);
        wrote += cleaner->partial_bytes;
        cleaner->partial_bytes = 0;
    }
    cleaner->spaces_bytes = 0;
    cleaner->newlines = 0;
    cleaner->has_begun = 0;
    return wrote;
}

void clean_release(Cleaner *cleaner)
{
    memory_free(cleaner->spaces);
    *cleaner = (Cleaner){0};
}
