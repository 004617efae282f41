#include "llmc/run/config_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/run/number_text.h"
#include "llmc/run/option_table.h"

static int look_up(ExpressionValue *value, const char *name, size_t name_bytes, const void *context)
{
    int index = option_find(name, name_bytes);
    if (index < 0) {
        return 0;
    }
    const OptionSpec *spec = &option_specs[index];
    const char *field = (const char *)context + spec->offset;
    switch (spec->kind) {
    case OPTION_BOOL:
        value->kind = EXPRESSION_BOOL;
        value->integer = *(const int *)field;
        return 1;
    case OPTION_INTEGER:
        value->kind = EXPRESSION_INTEGER;
        value->integer = *(const int64_t *)field;
        return 1;
    case OPTION_NUMBER:
        value->kind = EXPRESSION_NUMBER;
        value->number = *(const double *)field;
        return 1;
    case OPTION_TEXT:
        value->kind = EXPRESSION_TEXT;
        snprintf(value->text, sizeof(value->text), "%s", field);
        return 1;
    case OPTION_CHOICE:
        return 0; /* spelled otherwise in nanoGPT */
    }
    return 0;
}

/* The fewest digits that read back as the same number. */
static void print_number(char value[OPTION_TEXT_BYTES], double number)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(value, OPTION_TEXT_BYTES, "%.*g", digits, number);
        if (strtod(value, NULL) == number) {
            return;
        }
    }
}

static const char *kind_name(const ExpressionValue *found)
{
    static const char *const names[] = {[EXPRESSION_INTEGER] = "a number",
                                        [EXPRESSION_NUMBER] = "a number",
                                        [EXPRESSION_BOOL] = "True or False",
                                        [EXPRESSION_TEXT] = "text",
                                        [EXPRESSION_NONE] = "None"};
    return names[found->kind];
}

static int take_bool(char value[OPTION_TEXT_BYTES], const ExpressionValue *found)
{
    int is_bool = found->kind == EXPRESSION_BOOL ||
                  (found->kind == EXPRESSION_INTEGER && (found->integer == 0 || found->integer == 1));
    snprintf(value, OPTION_TEXT_BYTES, "%s", found->integer ? "True" : "False");
    return is_bool;
}

static int take_number(char value[OPTION_TEXT_BYTES], const ExpressionValue *found)
{
    if (found->kind == EXPRESSION_INTEGER) {
        snprintf(value, OPTION_TEXT_BYTES, "%" PRId64, found->integer);
        return 1;
    }
    print_number(value, found->number);
    return found->kind == EXPRESSION_NUMBER;
}

int config_value_read(char value[OPTION_TEXT_BYTES], const Options *options, int index, const char *text,
                      Error *error)
{
    ExpressionValue found = {.kind = EXPRESSION_NONE};
    if (expression_evaluate(&found, text, look_up, options, error) != 0) {
        return -1;
    }
    OptionKind kind = index < 0 ? OPTION_BOOL : option_specs[index].kind;
    int is_right;
    const char *expected;
    if (kind == OPTION_BOOL) {
        is_right = take_bool(value, &found);
        expected = "True or False";
    } else if (kind == OPTION_INTEGER || kind == OPTION_NUMBER) {
        is_right = take_number(value, &found);
        expected = "a number";
    } else {
        is_right = found.kind == EXPRESSION_TEXT;
        memcpy(value, found.text, is_right ? strlen(found.text) + 1 : 0);
        expected = "text in quotes";
    }
    return is_right ? 0 : error_set(error, "expected %s, found %s", expected, kind_name(&found));
}

void config_value_reckon(char value[OPTION_TEXT_BYTES], const Options *options, int index)
{
    Error error;
    ExpressionValue found = {.kind = EXPRESSION_NONE};
    OptionKind kind = index < 0 ? OPTION_TEXT : option_specs[index].kind;
    int is_number = kind == OPTION_INTEGER || kind == OPTION_NUMBER;
    NumberText literal;
    const char *digits = value + (value[0] == '-' || value[0] == '+');
    size_t literal_bytes = number_text_read(&literal, digits);
    if (literal_bytes > 0 && digits[literal_bytes] == '\0') {
        return; /* errors then show it as it was written */
    }
    if (is_number && expression_evaluate(&found, value, look_up, options, &error) == 0 &&
        (found.kind == EXPRESSION_INTEGER || found.kind == EXPRESSION_NUMBER)) {
        take_number(value, &found);
    }
}
_Static_assert((int)EXPRESSION_TEXT_BYTES == (int)OPTION_TEXT_BYTES, "a text fits into an option");
