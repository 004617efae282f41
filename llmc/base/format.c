#include "llmc/base/format.h"

const char *format_count(char *buffer, int64_t number)
{
    char reversed[FORMAT_COUNT_BYTES];
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int used = 0;
    int digits = 0;
    do {
        if (digits > 0 && digits % 3 == 0) {
            reversed[used++] = ',';
        }
        reversed[used++] = (char)('0' + rest % 10);
        rest /= 10;
        digits++;
    } while (rest > 0);
    char *out = buffer;
    if (number < 0) {
        *out++ = '-';
    }
    while (used > 0) {
        *out++ = reversed[--used];
    }
    *out = '\0';
    return buffer;
}

/* Bytes of the UTF-8 character that begins here; 0 if none does. */
static int character_bytes(const unsigned char *text)
{
    int count = text[0] < 0x80 ? 1 : text[0] >= 0xc2 && text[0] < 0xe0 ? 2 : (text[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (count == 4 && (text[0] < 0xf0 || text[0] > 0xf4)) {
        return 0;
    }
    for (int i = 1; i < count; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0; /* also where the text ends: NUL is no continuation */
        }
    }
    return count;
}

void format_printable(char *text)
{
    unsigned char *next = (unsigned char *)text;
    while (*next) {
        int count = character_bytes(next);
        int is_control = *next < 0x20 || *next == 0x7f || (*next == 0xc2 && count == 2 && next[1] < 0xa0);
        if (*next == '\n' || *next == '\r' || *next == '\t') {
            *next = ' ';
        } else if (count == 0 || is_control) {
            for (int i = 0; i < (count > 0 ? count : 1); i++) {
                next[i] = '?';
            }
        }
        next += count > 0 ? count : 1;
    }
}
