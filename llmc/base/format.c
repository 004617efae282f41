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
