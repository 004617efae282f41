/* What json_lines.c asks of single characters: where a number may go on or end, where a string is plain. */
#ifndef DATA_PREP_JSON_SCAN_H
#define DATA_PREP_JSON_SCAN_H

#include <stddef.h>

/* RFC 8259's number as a machine; those that may be the last are marked. */
typedef enum NumberState {
    NUMBER_MINUS,
    NUMBER_ZERO,   /* may end */
    NUMBER_DIGITS, /* may end */
    NUMBER_POINT,
    NUMBER_FRACTION, /* may end */
    NUMBER_E,
    NUMBER_E_SIGN,
    NUMBER_EXPONENT, /* may end */
    NUMBER_OVER
} NumberState;

/* The state after one more character; NUMBER_OVER where it does not belong to the number. */
NumberState json_number_after(NumberState state, char c);

/* How many of the bytes from text on stand for themselves in a string. */
size_t json_plain_bytes(const char *text, const char *end);

#endif
