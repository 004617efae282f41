/* Text literals of Python. */
#include <string.h>

#include "llmc/run/expression.h"

static int is_quote(char c)
{
    return c == '\'' || c == '"';
}

/* r, R, u and U change nothing or turn escapes off; other prefixes (b, f) make no text that is known here. */
size_t expression_text_opening(const char *text)
{
    size_t prefix = text[0] != '\0' && strchr("rRuU", text[0]) && is_quote(text[1]);
    const char *quotes = text + prefix;
    if (!is_quote(quotes[0])) {
        return 0;
    }
    int is_triple = quotes[1] == quotes[0] && quotes[2] == quotes[0];
    return prefix + (is_triple ? 3 : 1);
}

typedef struct TextWriter {
    char *out;
    size_t bytes;
    int is_full;
} TextWriter;

static void put(TextWriter *writer, char c)
{
    if (writer->bytes + 1 < EXPRESSION_TEXT_BYTES) {
        writer->out[writer->bytes++] = c;
    } else {
        writer->is_full = 1;
    }
}

static void put_utf8(TextWriter *writer, uint32_t code)
{
    if (code < 0x80) {
        put(writer, (char)code);
        return;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char heads[] = {0, 0xc0, 0xe0, 0xf0};
    put(writer, (char)(heads[more] | code >> (6 * more)));
    for (int shift = 6 * (more - 1); shift >= 0; shift -= 6) {
        put(writer, (char)(0x80 | ((code >> shift) & 0x3f)));
    }
}

static int digit_value(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *place = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
    return place ? (int)(place - digits) : 16;
}

/* Up to `digits` digits of a base. Returns how many there are. */
static int read_code(uint32_t *code, const char *text, int digits, int base)
{
    int count = 0;
    for (*code = 0; count < digits && digit_value(text[count]) < base; count++) {
        *code = *code * (uint32_t)base + (uint32_t)digit_value(text[count]);
    }
    return count;
}

/* A code behind a backslash: \xhh, \uhhhh, \Uhhhhhhhh, \ooo. Returns its bytes without the backslash, or
 * -1. */
static int put_code(TextWriter *writer, const char *text, Error *error)
{
    static const struct {
        char letter;
        int digits;
    } rows[] = {{'x', 2}, {'u', 4}, {'U', 8}};
    uint32_t code = 0;
    int used = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (text[0] == rows[i].letter) {
            used = 1 + read_code(&code, text + 1, rows[i].digits, 16);
            if (used != 1 + rows[i].digits) {
                return error_set(error, "expected %d hexadecimal digits after \\%c", rows[i].digits, text[0]);
            }
        }
    }
    used = used ? used : read_code(&code, text, 3, 8);
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return error_set(error, "expected a character other than NUL, found \\%.*s", used, text);
    }
    put_utf8(writer, code);
    return used;
}

/* What follows a backslash. Returns its bytes, or -1. An unknown escape stands for itself, as in Python. */
static int put_escape(TextWriter *writer, const char *text, Error *error)
{
    static const char letters[] = "ntrabfv\\'\"";
    static const char meanings[] = "\n\t\r\a\b\f\v\\'\"";
    const char *place = text[0] ? strchr(letters, text[0]) : NULL;
    if (text[0] == '\n') {
        return 1;
    }
    if (place) {
        put(writer, meanings[place - letters]);
        return 1;
    }
    if (text[0] && (strchr("xuU", text[0]) || (text[0] >= '0' && text[0] <= '7'))) {
        return put_code(writer, text, error);
    }
    if (text[0] == 'N') {
        return error_set(error, "expected no \\N{..} in text; write the character itself");
    }
    put(writer, '\\');
    return 0;
}

int expression_read_text(char *out, size_t *out_bytes, const char **rest, const char *text, Error *error)
{
    size_t opening = expression_text_opening(text);
    int is_raw = text[0] == 'r' || text[0] == 'R';
    int is_triple = opening >= 3;
    char quote = text[opening - 1];
    const char *at = text + opening;
    TextWriter writer = {out, 0, 0};
    for (;;) {
        if (*at == '\0' || (*at == '\n' && !is_triple)) {
            return error_set(error, "expected a closing quote, found the end of the line");
        }
        if (*at == quote && (!is_triple || (at[1] == quote && at[2] == quote))) {
            break;
        }
        if (*at == '\\' && is_raw && at[1] != '\0') {
            put(&writer, *at++);
            put(&writer, *at++);
        } else if (*at == '\\') {
            int used = put_escape(&writer, at + 1, error);
            if (used < 0) {
                return -1;
            }
            at += 1 + used;
        } else {
            put(&writer, *at++);
        }
    }
    if (writer.is_full) {
        return error_set(error, "expected text of at most %d bytes, found more", EXPRESSION_TEXT_BYTES - 1);
    }
    out[writer.bytes] = '\0';
    *out_bytes = writer.bytes;
    *rest = at + (is_triple ? 3 : 1);
    return 0;
}
