#include "llmc/run/json_text.h"

#include <math.h>

/* Bytes of the UTF-8 character that starts here, or 0 if none does. */
static int character_bytes(const unsigned char *text)
{
    static const struct {
        unsigned char mask, lead;
        unsigned least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (int count = 1; count <= 4; count++) {
        if ((text[0] & forms[count - 1].mask) != forms[count - 1].lead) {
            continue;
        }
        unsigned code = text[0] & (unsigned char)~forms[count - 1].mask;
        for (int i = 1; i < count; i++) {
            if ((text[i] & 0xc0) != 0x80) {
                return 0; /* also where the text ends: NUL is no continuation */
            }
            code = code << 6 | (text[i] & 0x3fu);
        }
        int is_surrogate = code >= 0xd800 && code <= 0xdfff;
        return code >= forms[count - 1].least && code <= 0x10ffff && !is_surrogate ? count : 0;
    }
    return 0;
}

void json_print_string(FILE *out, const char *text)
{
    const unsigned char *next = (const unsigned char *)text;
    putc('"', out);
    while (*next) {
        int count = character_bytes(next);
        if (*next == '"' || *next == '\\') {
            fprintf(out, "\\%c", *next);
        } else if (*next < 0x20 || count == 0) {
            fprintf(out, "\\u%04x", *next);
        } else {
            fwrite(next, 1, (size_t)count, out);
        }
        next += count > 0 ? count : 1;
    }
    putc('"', out);
}

void json_print_number(FILE *out, double value)
{
    if (isfinite(value)) {
        fprintf(out, "%.9g", value);
    } else {
        fputs("null", out);
    }
}
