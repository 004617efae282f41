/* The two kinds of JSON values that need care when written: text and numbers. */
#ifndef LLMC_RUN_JSON_TEXT_H
#define LLMC_RUN_JSON_TEXT_H

#include <stdio.h>

/* A quoted string. Bytes that are not UTF-8 (in paths) are written as the characters U+0080 .. U+00FF, so
 * that every line of a log is valid JSON. */
void json_print_string(FILE *out, const char *text);

/* %.9g, which reads back exactly as fp32; null for what JSON cannot hold (NaN, infinity). */
void json_print_number(FILE *out, double value);

#endif
