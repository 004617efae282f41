/* Python's expressions in config files. The values are those that Python 3 gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/run/expression.h"
#include "llmc/run/number_text.h"

/* What a value is, on one line. */
static void describe(char *out, size_t out_bytes, const ExpressionValue *value)
{
    switch (value->kind) {
    case EXPRESSION_INTEGER:
        snprintf(out, out_bytes, "integer %" PRId64, value->integer);
        break;
    case EXPRESSION_NUMBER:
        snprintf(out, out_bytes, "number %.17g", value->number);
        break;
    case EXPRESSION_BOOL:
        snprintf(out, out_bytes, "bool %" PRId64, value->integer);
        break;
    case EXPRESSION_TEXT:
        snprintf(out, out_bytes, "text %s", value->text);
        break;
    case EXPRESSION_NONE:
        snprintf(out, out_bytes, "none");
        break;
    }
}

/* Expressions, and what Python 3 makes of them. */
static const char *const python_values[][2] = {
    {"5 * 8", "integer 40"},
    {"600_000", "integer 600000"},
    {"6e5", "number 600000"},
    {"1e-1", "number 0.10000000000000001"},
    {".5", "number 0.5"},
    {"5.", "number 5"},
    {"1_0.2_5e+0_1", "number 102.5"},
    {"-3", "integer -3"},
    {"- -3", "integer 3"},
    {"+4", "integer 4"},
    {"2 + 3 * 4", "integer 14"},
    {"(2 + 3) * 4", "integer 20"},
    {"7 // 2", "integer 3"},
    {"-7 // 2", "integer -4"},
    {"7 // -2", "integer -4"},
    {"-7 % 3", "integer 2"},
    {"7 % -3", "integer -2"},
    {"-7.5 // 2", "number -4"},
    {"-7.5 % 2", "number 0.5"},
    {"7 / 2", "number 3.5"},
    {"8 / 2", "number 4"},
    {"2 ** 10", "integer 1024"},
    {"2 ** 3 ** 2", "integer 512"},
    {"-2 ** 2", "integer -4"},
    {"2 ** -1", "number 0.5"},
    {"(-1) ** 3", "integer -1"},
    {"0 ** 0", "integer 1"},
    {"1 ** 9223372036854775807", "integer 1"},
    {"(-1) ** 9223372036854775806", "integer 1"},
    {"int(3.9)", "integer 3"},
    {"int(-3.9)", "integer -3"},
    {"float(3)", "number 3"},
    {"int(0.5e6 / (12 * 1024))", "integer 40"},
    {"9223372036854775807", "integer 9223372036854775807"},
    {"-9223372036854775807 - 1", "integer -9223372036854775808"},
    {"3e-5 * 10", "number 0.00030000000000000003"},
    {"0.1 + 0.2", "number 0.30000000000000004"},
    {"12*1024*5*8", "integer 491520"},
    {"True", "bool 1"},
    {"False", "bool 0"},
    {"None", "none"},
    {"'text'", "text text"},
    {"\"te'xt\"", "text te'xt"},
    {"'a' 'b' \"c\"", "text abc"},
    {"'a' + \"b\" + 'c'", "text abc"},
    {"('a' + 'b') + ('c')", "text abc"},
    {"'tab\\tline\\nback\\\\slash \\'q\\' \"d\"'", "text tab\tline\nback\\slash 'q' \"d\""},
    {"\"\\x41\\u00e9\\U0001F600\\101\\7\"", "text A\303\251\360\237\230\200A\007"},
    {"'\\d \\w'", "text \\d \\w"},
    {"r'\\d\\n'", "text \\d\\n"},
    {"u'\303\274'", "text \303\274"},
    {"'''three\nlines'''", "text three\nlines"},
    {"\"\"\"a\"b\"\"\"", "text a\"b"},
    {"''", "text "},
    {"'a#b;c'", "text a#b;c"},
};

static void test_values_are_pythons(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(python_values) / sizeof(python_values[0]); i++) {
        ExpressionValue value;
        Error error = {.text = ""};
        char found[256] = "";
        if (expression_evaluate(&value, python_values[i][0], NULL, NULL, &error) != 0) {
            fail_msg("%s: %s", python_values[i][0], error.text);
        }
        describe(found, sizeof(found), &value);
        if (strcmp(found, python_values[i][1]) != 0) {
            fail_msg("%s: expected %s, found %s", python_values[i][0], python_values[i][1], found);
        }
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "expected a value, found the end of the line"},
        {"5 *", "expected a value, found the end of the line"},
        {"5 5", "expected the end of the line, found \"5\""},
        {"(5", "expected a closing bracket, found the end of the line"},
        {"5)", "expected the end of the line, found \")\""},
        {"12x", "expected a decimal number, found \"12x\""},
        {"0x10", "expected a decimal number"},
        {"1__0", "expected a decimal number"},
        {"1_", "expected a decimal number"},
        {"1j", "expected a decimal number"},
        {"'open", "expected a closing quote"},
        {"'open\n'", "expected a closing quote"},
        {"'''open'", "expected a closing quote"},
        {"'a' + 5", "expected two numbers, or text + text"},
        {"'a' * 3", "expected two numbers, or text + text"},
        {"-'a'", "expected two numbers"},
        {"True + 1", "expected two numbers"},
        {"1 / 0", "expected no division by zero"},
        {"1 // 0", "expected no division by zero"},
        {"1.0 % 0", "expected no division by zero"},
        {"0 ** -1", "expected a finite number"},
        {"(-8) ** 0.5", "expected a finite number"},
        {"1e999", "expected a finite number"},
        {"2 ** 63", "expected an integer below 2^63"},
        {"9223372036854775807 + 1", "expected an integer below 2^63"},
        {"-(-9223372036854775807 - 1)", "expected an integer below 2^63"},
        {"(-9223372036854775807 - 1) // -1", "expected an integer below 2^63"},
        {"int(1e30)", "expected an integer below 2^63"},
        {"int('5')", "expected a number in brackets"},
        {"nothing", "found \"nothing\""},
        {"str(time.time())", "found \"str(time.time())\""},
        {"'ft-' + str(time.time())", "found \"str(time.time())\""},
        {"f'{x}'", "expected a number, text in quotes, True or False, found \"f'{x}'\""},
        {"b'x'", "found \"b'x'\""},
        {"[1, 2]", "expected a value, found \"[1, 2]\""},
        {"1, 2", "expected the end of the line, found \", 2\""},
        {"5 if True else 6", "expected the end of the line, found \"if True else 6\""},
        {"5 == 5", "expected the end of the line, found \"== 5\""},
        {"'\\0'", "expected a character other than NUL"},
        {"'\\x00'", "expected a character other than NUL"},
        {"'\\ud800'", "expected a character other than NUL"},
        {"'\\x4'", "expected 2 hexadecimal digits after \\x"},
        {"'\\N{DASH}'", "expected no \\N{..}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ExpressionValue value;
        Error error = {.text = ""};
        if (expression_evaluate(&value, cases[i][0], NULL, NULL, &error) != -1) {
            fail_msg("%s was accepted", cases[i][0]);
        }
        if (!strstr(error.text, cases[i][1])) {
            fail_msg("%s: expected \"%s\", found \"%s\"", cases[i][0], cases[i][1], error.text);
        }
    }
}

static int look_up(ExpressionValue *value, const char *name, size_t name_bytes, const void *context)
{
    int is_known = name_bytes == 4 && memcmp(name, "rate", 4) == 0;
    int is_text = name_bytes == 4 && memcmp(name, "data", 4) == 0;
    value->kind = is_text ? EXPRESSION_TEXT : EXPRESSION_NUMBER;
    value->number = *(const double *)context;
    snprintf(value->text, sizeof(value->text), "books");
    return is_known || is_text;
}

static void test_names(void **state)
{
    (void)state;
    const double rate = 0.5;
    ExpressionValue value;
    Error error;
    assert_int_equal(expression_evaluate(&value, "rate / 10", look_up, &rate, &error), 0);
    assert_true(value.kind == EXPRESSION_NUMBER && value.number == 0.05);
    assert_int_equal(expression_evaluate(&value, "'out-' + data + '-1'", look_up, &rate, &error), 0);
    assert_string_equal(value.text, "out-books-1");
    assert_int_equal(expression_evaluate(&value, "rates", look_up, &rate, &error), -1);
    assert_non_null(strstr(error.text, "found \"rates\""));
}

/* Neither deep brackets nor long text overflow anything. */
static void test_limits(void **state)
{
    (void)state;
    static ExpressionValue value;
    static char text[20000];
    Error error;
    const char openings[] = {'(', '-', '2'};
    for (size_t i = 0; i < sizeof(openings); i++) {
        memset(text, openings[i], sizeof(text) - 1);
        for (size_t j = 0; openings[i] == '2' && j + 3 < sizeof(text); j += 3) { /* 2**2**2.. */
            text[j + 1] = text[j + 2] = '*';
        }
        assert_int_equal(expression_evaluate(&value, text, NULL, NULL, &error), -1);
        assert_non_null(strstr(error.text, "within each other"));
    }
    for (size_t bytes = EXPRESSION_TEXT_BYTES - 1; bytes <= EXPRESSION_TEXT_BYTES; bytes++) {
        memset(text, 'x', sizeof(text));
        text[0] = text[bytes + 1] = '\'';
        text[bytes + 2] = '\0';
        int is_short = bytes < EXPRESSION_TEXT_BYTES;
        assert_int_equal(expression_evaluate(&value, text, NULL, NULL, &error), is_short ? 0 : -1);
        text[1 + bytes / 2] = text[2 + bytes / 2] = '\''; /* as two texts side by side, two bytes fewer */
        assert_int_equal(expression_evaluate(&value, text, NULL, NULL, &error), 0);
        assert_int_equal(strlen(value.text), bytes - 2);
    }
}

static void test_literals(void **state)
{
    (void)state;
    NumberText literal;
    assert_int_equal(number_text_read(&literal, "12e"), 2);
    assert_int_equal(literal.integer, 12);
    assert_int_equal(number_text_read(&literal, "12e+"), 2);
    assert_int_equal(number_text_read(&literal, "12e+1"), 5);
    assert_false(literal.is_integer);
    assert_int_equal(number_text_read(&literal, "."), 0);
    assert_int_equal(number_text_read(&literal, "e5"), 0);
    assert_int_equal(number_text_read(&literal, "_1"), 0);
    assert_int_equal(number_text_read(&literal, ""), 0);
    assert_int_equal(number_text_read(&literal, "9223372036854775808"), 19);
    assert_false(literal.is_integer);
    char digits[300];
    memset(digits, '1', sizeof(digits));
    digits[sizeof(digits) - 1] = '\0';
    assert_int_equal(number_text_read(&literal, digits), 0);
    int64_t integer;
    assert_true(number_text_integral(&integer, -9007199254740992.0) && integer == -9007199254740992);
    assert_false(number_text_integral(&integer, 9007199254740994.0));
    assert_false(number_text_integral(&integer, 0.5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_pythons),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_literals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
