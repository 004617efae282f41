/* Numbers as people read them. */
#ifndef LLMC_BASE_FORMAT_H
#define LLMC_BASE_FORMAT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FORMAT_COUNT_BYTES = 32 };

/* "1,234,567" in a buffer of FORMAT_COUNT_BYTES, which is returned. */
const char *format_count(char *buffer, int64_t number);

/* A text for one line of a terminal, in place: line breaks and tabs become spaces; other control characters,
 * and bytes that are not UTF-8, become `?`. */
void format_printable(char *text);

#ifdef __cplusplus
}
#endif
#endif
