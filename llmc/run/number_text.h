/* Numbers as people and Python write them: 600_000, 6e5, 1e-1, .5 */
#ifndef LLMC_RUN_NUMBER_TEXT_H
#define LLMC_RUN_NUMBER_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* One literal, without a sign. */
typedef struct NumberText {
    int is_integer;  /* written without a point and an exponent, and `integer` holds it */
    int64_t integer; /* 0 unless is_integer */
    double number;   /* may be infinite: 1e999 */
} NumberText;

/* Read the decimal literal that `text` begins with; underscores may stand between digits. Returns its
 * bytes, 0 where there is none. No signs, blanks, hexadecimal, inf or nan. */
size_t number_text_read(NumberText *out, const char *text);

/* Whether a number is an integer that a double holds exactly; then *out is it. */
int number_text_integral(int64_t *out, double number);

#endif
