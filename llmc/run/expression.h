/* Python's expressions, as far as config files use them: numbers (600_000, 6e5), text in quotes, True, False,
 * None, names, + - * / // % ** and brackets, int() and float(). Source: The Python Language Reference, 6.
 */
#ifndef LLMC_RUN_EXPRESSION_H
#define LLMC_RUN_EXPRESSION_H

#include <stddef.h>
#include <stdint.h>

#include "llmc/base/error.h"

enum { EXPRESSION_TEXT_BYTES = 4096 };

typedef enum ExpressionKind {
    EXPRESSION_INTEGER,
    EXPRESSION_NUMBER,
    EXPRESSION_BOOL, /* integer is 0 or 1 */
    EXPRESSION_TEXT,
    EXPRESSION_NONE
} ExpressionKind;

typedef struct ExpressionValue {
    ExpressionKind kind;
    int64_t integer;
    double number;
    char text[EXPRESSION_TEXT_BYTES]; /* UTF-8, or whatever bytes the file holds; no NUL within */
} ExpressionValue;

/* What a name stands for: 1 with *value, or 0 where it is unknown. */
typedef int ExpressionLookup(ExpressionValue *value, const char *name, size_t name_bytes,
                             const void *context);

/* The value of the whole of `text`, which ends with a NUL. lookup may be NULL: no name is known. For any
 * bytes: 0, or -1 with *error telling what was expected and what was found. */
int expression_evaluate(ExpressionValue *value, const char *text, ExpressionLookup *lookup,
                        const void *context, Error *error);

/* The text literal that `text` begins with, of Python's kinds '' "" ''' """ and r''. *rest is what follows
 * it. -1 with *error. `out` has room for EXPRESSION_TEXT_BYTES; its bytes are counted in *out_bytes. */
int expression_read_text(char *out, size_t *out_bytes, const char **rest, const char *text, Error *error);

/* How many bytes a text literal's beginning has at `text` (prefix and quotes), 0 where none begins. */
size_t expression_text_opening(const char *text);

#endif
