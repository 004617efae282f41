/* One character of UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF). */
#ifndef LLMC_TEXT_UTF8_H
#define LLMC_TEXT_UTF8_H

#include <stdint.h>

/* Decode the character at text, text < end. Returns its bytes (1 to 4), or 0 where the bytes are none; then
 * *code_point means nothing. */
static inline int utf8_decode(uint32_t *code_point, const uint8_t *text, const uint8_t *end)
{
    uint32_t lead = text[0];
    if (lead < 0x80) {
        *code_point = lead;
        return 1;
    }
    if (lead < 0xc2 || end - text < 2 || (text[1] & 0xc0) != 0x80) {
        return 0;
    }
    uint32_t second = text[1] & 0x3fu;
    if (lead < 0xe0) {
        *code_point = (lead & 0x1f) << 6 | second;
        return 2;
    }
    if (end - text < 3 || (text[2] & 0xc0) != 0x80) {
        return 0;
    }
    uint32_t third = text[2] & 0x3fu;
    if (lead < 0xf0) {
        *code_point = (lead & 0x0f) << 12 | second << 6 | third;
        int is_character = *code_point >= 0x800 && (*code_point < 0xd800 || *code_point > 0xdfff);
        return is_character ? 3 : 0;
    }
    if (lead > 0xf4 || end - text < 4 || (text[3] & 0xc0) != 0x80) {
        return 0;
    }
    *code_point = (lead & 0x07) << 18 | second << 12 | third << 6 | (text[3] & 0x3fu);
    return *code_point >= 0x10000 && *code_point <= 0x10ffff ? 4 : 0;
}

/* How many bytes at text could still become a character when more follow: 1 to 3 if all bytes up to end are
 * the beginning of one, else 0. */
static inline int utf8_incomplete(const uint8_t *text, const uint8_t *end)
{
    static const uint8_t fillers[2][3] = {{0x80, 0x80, 0x80}, {0xbf, 0xbf, 0xbf}};
    int count = (int)(end - text);
    if (count < 1 || count > 3 || text[0] < 0xc2) {
        return 0;
    }
    for (int filler = 0; filler < 2; filler++) {
        uint8_t whole[6];
        for (int i = 0; i < count; i++) {
            whole[i] = text[i];
        }
        for (int i = 0; i < 3; i++) {
            whole[count + i] = fillers[filler][i];
        }
        uint32_t code_point;
        if (utf8_decode(&code_point, whole, whole + count + 3) > count) {
            return count;
        }
    }
    return 0;
}

#endif
