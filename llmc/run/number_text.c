#include "llmc/run/number_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { LITERAL_BYTES = 128 };
#define EXACT_MAX 9007199254740992.0 /* 2^53 */

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits of which single underscores may part two. Appends them to `plain`; returns the bytes read. */
static size_t read_digits(char *plain, size_t *used, const char *text)
{
    size_t i = 0;
    while (is_digit(text[i]) || (i > 0 && text[i] == '_' && is_digit(text[i - 1]) && is_digit(text[i + 1]))) {
        if (text[i] != '_' && *used + 1 < LITERAL_BYTES) {
            plain[(*used)++] = text[i];
        } else if (text[i] != '_') {
            *used = LITERAL_BYTES; /* too long, which the caller sees */
        }
        i++;
    }
    return i;
}

static void append(char *plain, size_t *used, char c)
{
    if (*used + 1 < LITERAL_BYTES) {
        plain[(*used)++] = c;
    }
}

size_t number_text_read(NumberText *out, const char *text)
{
    char plain[LITERAL_BYTES + 1];
    size_t used = 0;
    size_t whole = read_digits(plain, &used, text);
    size_t at = whole;
    int is_integer = 1;
    if (text[at] == '.' && (whole > 0 || is_digit(text[at + 1]))) {
        append(plain, &used, '.');
        at += 1 + read_digits(plain, &used, text + at + 1);
        is_integer = 0;
    }
    if (at == 0) {
        return 0;
    }
    size_t sign = text[at + (text[at] != '\0')] == '-' || text[at + (text[at] != '\0')] == '+';
    if ((text[at] == 'e' || text[at] == 'E') && is_digit(text[at + 1 + sign])) {
        append(plain, &used, 'e');
        if (sign) {
            append(plain, &used, text[at + 1]);
        }
        at += 1 + sign;
        at += read_digits(plain, &used, text + at);
        is_integer = 0;
    }
    if (used + 1 >= LITERAL_BYTES) {
        return 0;
    }
    plain[used] = '\0';
    errno = 0;
    long long integer = is_integer ? strtoll(plain, NULL, 10) : 0;
    out->is_integer = is_integer && errno == 0;
    out->integer = out->is_integer ? integer : 0;
    out->number = strtod(plain, NULL);
    return at;
}

int number_text_integral(int64_t *out, double number)
{
    if (!(fabs(number) <= EXACT_MAX) || number != floor(number)) {
        return 0;
    }
    *out = (int64_t)number;
    return 1;
}
