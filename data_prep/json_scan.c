#include "data_prep/json_scan.h"

#include <stdint.h>
#include <string.h>

NumberState json_number_after(NumberState state, char c)
{
    int is_digit = c >= '0' && c <= '9';
    int is_e = c == 'e' || c == 'E';
    switch (state) {
    case NUMBER_MINUS:
        return c == '0' ? NUMBER_ZERO : is_digit ? NUMBER_DIGITS : NUMBER_OVER;
    case NUMBER_ZERO:
        return c == '.' ? NUMBER_POINT : is_e ? NUMBER_E : NUMBER_OVER;
    case NUMBER_DIGITS:
        return is_digit ? NUMBER_DIGITS : c == '.' ? NUMBER_POINT : is_e ? NUMBER_E : NUMBER_OVER;
    case NUMBER_POINT:
        return is_digit ? NUMBER_FRACTION : NUMBER_OVER;
    case NUMBER_FRACTION:
        return is_digit ? NUMBER_FRACTION : is_e ? NUMBER_E : NUMBER_OVER;
    case NUMBER_E:
        return is_digit ? NUMBER_EXPONENT : c == '+' || c == '-' ? NUMBER_E_SIGN : NUMBER_OVER;
    case NUMBER_E_SIGN:
    case NUMBER_EXPONENT:
        return is_digit ? NUMBER_EXPONENT : NUMBER_OVER;
    case NUMBER_OVER:
        break;
    }
    return NUMBER_OVER;
}

size_t json_plain_bytes(const char *text, const char *end)
{
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t highs = 0x80 * ones;
    const char *next = text;
    while (end - next >= 8) {
        uint64_t bytes;
        memcpy(&bytes, next, sizeof(bytes));
        uint64_t quote = bytes ^ '"' * ones;
        uint64_t backslash = bytes ^ '\\' * ones;
        uint64_t special =
            ((bytes - 0x20 * ones) & ~bytes) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash);
        if (special & highs) {
            break;
        }
        next += 8;
    }
    while (next < end && (unsigned char)*next >= 0x20 && *next != '"' && *next != '\\') {
        next++;
    }
    return (size_t)(next - text);
}
