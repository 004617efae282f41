#include "llmc/run/expression.h"

#include <math.h>
#include <string.h>

#include "llmc/run/number_text.h"

enum { DEPTH_MAX = 60 };

/* A value on its way. Text lies in the reader's buffer: what is read later lies behind it, so that two texts
 * which are added are neighbours. */
typedef struct Term {
    ExpressionKind kind;
    int64_t integer;
    double number;
    size_t text_begin, text_end;
} Term;

typedef struct Reader {
    const char *at;
    int depth;
    char *text; /* EXPRESSION_TEXT_BYTES */
    size_t text_bytes;
    ExpressionLookup *lookup;
    const void *context;
    Error *error;
} Reader;

static int read_sum(Term *term, Reader *reader);

static void skip_blanks(Reader *reader)
{
    while (*reader->at != '\0' && strchr(" \t\r\n\f", *reader->at)) {
        reader->at++;
    }
}

static int is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static size_t name_bytes(const char *text)
{
    size_t bytes = 0;
    while (is_name_byte(text[bytes])) {
        bytes++;
    }
    return bytes;
}

static int fail_found(Reader *reader, const char *expected)
{
    if (*reader->at == '\0') {
        return error_set(reader->error, "expected %s, found the end of the line", expected);
    }
    return error_set(reader->error, "expected %s, found \"%.60s\"", expected, reader->at);
}

/* Whoever calls this lowers the depth again, unless it returns -1, which ends the reading. */
static int go_deeper(Reader *reader)
{
    if (++reader->depth > DEPTH_MAX) {
        return error_set(reader->error, "expected at most %d brackets, signs and powers within each other",
                         DEPTH_MAX);
    }
    return 0;
}

static int is_numeric(const Term *term)
{
    return term->kind == EXPRESSION_INTEGER || term->kind == EXPRESSION_NUMBER;
}

static double as_number(const Term *term)
{
    return term->kind == EXPRESSION_INTEGER ? (double)term->integer : term->number;
}

/* ---- arithmetic --------------------------------------------------------------------------------------- */

static int set_integer(Term *out, int64_t integer)
{
    *out = (Term){.kind = EXPRESSION_INTEGER, .integer = integer};
    return 0;
}

static int set_number(Term *out, double number, Reader *reader)
{
    *out = (Term){.kind = EXPRESSION_NUMBER, .number = number};
    return isfinite(number) ? 0 : error_set(reader->error, "expected a finite number, found none");
}

static int fail_large(Reader *reader)
{
    return error_set(reader->error, "expected an integer below 2^63, found a larger one");
}

/* As in Python: // and % round towards minus infinity. b is not 0. */
static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static int raise_integer(Term *out, int64_t base, int64_t exponent, Reader *reader)
{
    int64_t power = 1;
    if (base >= -1 && base <= 1) {
        exponent = exponent > 1 ? 2 - exponent % 2 : exponent;
    }
    for (int64_t i = 0; i < exponent; i++) {
        if (__builtin_mul_overflow(power, base, &power)) {
            return fail_large(reader);
        }
    }
    return set_integer(out, power);
}

/* `operation` is the operator's first byte, P for ** and F for //. */
static int combine_integers(Term *out, int64_t a, char operation, int64_t b, Reader *reader)
{
    int64_t result = 0;
    int is_large = 0;
    switch (operation) {
    case '+':
        is_large = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        is_large = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        is_large = __builtin_mul_overflow(a, b, &result);
        break;
    case 'F':
    case '%':
        is_large = a == INT64_MIN && b == -1;
        if (!is_large) {
            int64_t quotient = floor_divide(a, b);
            result = operation == 'F' ? quotient : a - quotient * b;
        }
        break;
    default:
        return raise_integer(out, a, b, reader);
    }
    return is_large ? fail_large(reader) : set_integer(out, result);
}

static int combine_numbers(Term *out, double a, char operation, double b, Reader *reader)
{
    switch (operation) {
    case '+':
        return set_number(out, a + b, reader);
    case '-':
        return set_number(out, a - b, reader);
    case '*':
        return set_number(out, a * b, reader);
    case '/':
        return set_number(out, a / b, reader);
    case 'F':
        return set_number(out, floor(a / b), reader);
    case '%':
        return set_number(out, a - b * floor(a / b), reader);
    default:
        return set_number(out, pow(a, b), reader);
    }
}

/* left becomes `left operation right`. */
static int combine(Term *left, char operation, const Term *right, Reader *reader)
{
    if (operation == '+' && left->kind == EXPRESSION_TEXT && right->kind == EXPRESSION_TEXT) {
        left->text_end = right->text_end;
        return 0;
    }
    if (!is_numeric(left) || !is_numeric(right)) {
        return error_set(reader->error, "expected two numbers, or text + text");
    }
    int is_division = operation == '/' || operation == 'F' || operation == '%';
    if (is_division && as_number(right) == 0) {
        return error_set(reader->error, "expected no division by zero");
    }
    int are_integers = left->kind == EXPRESSION_INTEGER && right->kind == EXPRESSION_INTEGER;
    int gives_number = operation == '/' || (operation == 'P' && right->integer < 0);
    if (are_integers && !gives_number) {
        return combine_integers(left, left->integer, operation, right->integer, reader);
    }
    return combine_numbers(left, as_number(left), operation, as_number(right), reader);
}

/* ---- the grammar -------------------------------------------------------------------------------------- */

/* Literals side by side are one text. */
static int read_texts(Term *term, Reader *reader)
{
    *term = (Term){.kind = EXPRESSION_TEXT, .text_begin = reader->text_bytes};
    while (expression_text_opening(reader->at) > 0) {
        char part[EXPRESSION_TEXT_BYTES];
        size_t bytes;
        if (expression_read_text(part, &bytes, &reader->at, reader->at, reader->error) != 0) {
            return -1;
        }
        if (reader->text_bytes + bytes + 1 > EXPRESSION_TEXT_BYTES) {
            return error_set(reader->error, "expected text of at most %d bytes, found more",
                             EXPRESSION_TEXT_BYTES - 1);
        }
        memcpy(reader->text + reader->text_bytes, part, bytes);
        reader->text_bytes += bytes;
        skip_blanks(reader);
    }
    term->text_end = reader->text_bytes;
    return 0;
}

static int read_brackets(Term *term, Reader *reader)
{
    reader->at++;
    if (read_sum(term, reader) != 0) {
        return -1;
    }
    skip_blanks(reader);
    if (*reader->at != ')') {
        return fail_found(reader, "a closing bracket");
    }
    reader->at++;
    return 0;
}

/* int(..) and float(..) of a number. */
static int read_conversion(Term *term, int to_integer, Reader *reader)
{
    int64_t whole;
    if (read_brackets(term, reader) != 0) {
        return -1;
    }
    if (!is_numeric(term)) {
        return error_set(reader->error, "expected a number in brackets");
    }
    if (!to_integer) {
        return set_number(term, as_number(term), reader);
    }
    if (term->kind == EXPRESSION_NUMBER && !number_text_integral(&whole, trunc(term->number))) {
        return fail_large(reader);
    }
    return term->kind == EXPRESSION_NUMBER ? set_integer(term, whole) : 0;
}

static int is_word(const char *text, size_t bytes, const char *word)
{
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

static int read_known_name(Term *term, Reader *reader, const char *name, size_t bytes)
{
    ExpressionValue value;
    if (!reader->lookup || !reader->lookup(&value, name, bytes, reader->context)) {
        reader->at = name;
        return fail_found(reader, "a number, text in quotes, True or False");
    }
    *term = (Term){value.kind, value.integer, value.number, reader->text_bytes, reader->text_bytes};
    if (value.kind == EXPRESSION_TEXT) {
        size_t text_bytes = strlen(value.text);
        if (reader->text_bytes + text_bytes + 1 > EXPRESSION_TEXT_BYTES) {
            return error_set(reader->error, "expected text of at most %d bytes, found more",
                             EXPRESSION_TEXT_BYTES - 1);
        }
        memcpy(reader->text + reader->text_bytes, value.text, text_bytes);
        reader->text_bytes += text_bytes;
        term->text_end = reader->text_bytes;
    }
    return 0;
}

static int read_word(Term *term, Reader *reader)
{
    static const struct {
        const char *word;
        Term term;
    } words[] = {{"True", {.kind = EXPRESSION_BOOL, .integer = 1}},
                 {"False", {.kind = EXPRESSION_BOOL}},
                 {"None", {.kind = EXPRESSION_NONE}}};
    const char *name = reader->at;
    size_t bytes = name_bytes(name);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (is_word(name, bytes, words[i].word)) {
            *term = words[i].term;
            reader->at += bytes;
            return 0;
        }
    }
    reader->at += bytes;
    skip_blanks(reader);
    int is_call = *reader->at == '(';
    if (is_call && (is_word(name, bytes, "int") || is_word(name, bytes, "float"))) {
        return read_conversion(term, name[0] == 'i', reader);
    }
    if (is_call || *reader->at == '.' || *reader->at == '[' || *reader->at == '\'' || *reader->at == '"') {
        reader->at = name; /* a call, an attribute, an element, f'..': it would take a Python to know */
        return fail_found(reader, "a number, text in quotes, True or False");
    }
    return read_known_name(term, reader, name, bytes);
}

static int read_atom(Term *term, Reader *reader)
{
    skip_blanks(reader);
    NumberText literal;
    size_t bytes = number_text_read(&literal, reader->at);
    if (bytes > 0) {
        if (is_name_byte(reader->at[bytes])) {
            return fail_found(reader, "a decimal number");
        }
        reader->at += bytes;
        return literal.is_integer ? set_integer(term, literal.integer)
                                  : set_number(term, literal.number, reader);
    }
    if (expression_text_opening(reader->at) > 0) {
        return read_texts(term, reader);
    }
    if (is_name_byte(*reader->at)) {
        return read_word(term, reader);
    }
    if (*reader->at == '(') {
        return read_brackets(term, reader);
    }
    return fail_found(reader, "a value");
}

static int read_signed(Term *term, Reader *reader);

/* a ** b binds tighter than a sign before a, and to the right. */
static int read_power(Term *term, Reader *reader)
{
    if (read_atom(term, reader) != 0) {
        return -1;
    }
    skip_blanks(reader);
    if (reader->at[0] != '*' || reader->at[1] != '*') {
        return 0;
    }
    reader->at += 2;
    Term exponent;
    int status = go_deeper(reader);
    status = status == 0 ? read_signed(&exponent, reader) : status;
    reader->depth--;
    return status == 0 ? combine(term, 'P', &exponent, reader) : -1;
}

static int read_signed(Term *term, Reader *reader)
{
    skip_blanks(reader);
    char sign = *reader->at;
    if (sign != '-' && sign != '+') {
        return read_power(term, reader);
    }
    if (go_deeper(reader) != 0) {
        return -1;
    }
    reader->at++;
    Term zero = {.kind = EXPRESSION_INTEGER};
    Term value;
    int status = read_signed(&value, reader);
    if (status == 0 && value.kind == EXPRESSION_NUMBER) {
        *term = value;
        term->number = sign == '-' ? -value.number : value.number;
    } else if (status == 0) {
        status = combine(&zero, sign, &value, reader);
        *term = zero;
    }
    reader->depth--;
    return status;
}

/* The operator at hand among those of one rank (products or sums), as combine() names it; 0 for none. */
static char read_operator(Reader *reader, const char *of_rank)
{
    skip_blanks(reader);
    char c = *reader->at;
    if (c == '\0' || !strchr(of_rank, c)) {
        return 0;
    }
    reader->at++;
    if (c == '/' && *reader->at == '/') {
        reader->at++;
        return 'F';
    }
    return c;
}

static int read_product(Term *term, Reader *reader)
{
    int status = read_signed(term, reader);
    for (char operation; status == 0 && (operation = read_operator(reader, "*/%")) != 0;) {
        Term right;
        status = read_signed(&right, reader);
        status = status == 0 ? combine(term, operation, &right, reader) : status;
    }
    return status;
}

static int read_sum(Term *term, Reader *reader)
{
    if (go_deeper(reader) != 0) {
        return -1;
    }
    int status = read_product(term, reader);
    for (char operation; status == 0 && (operation = read_operator(reader, "+-")) != 0;) {
        Term right;
        status = read_product(&right, reader);
        status = status == 0 ? combine(term, operation, &right, reader) : status;
    }
    reader->depth--;
    return status;
}

int expression_evaluate(ExpressionValue *value, const char *text, ExpressionLookup *lookup,
                        const void *context, Error *error)
{
    char buffer[EXPRESSION_TEXT_BYTES];
    Reader reader = {.at = text, .text = buffer, .lookup = lookup, .context = context, .error = error};
    Term term;
    if (read_sum(&term, &reader) != 0) {
        return -1;
    }
    skip_blanks(&reader);
    if (*reader.at != '\0') {
        return fail_found(&reader, "the end of the line");
    }
    size_t text_bytes = term.kind == EXPRESSION_TEXT ? term.text_end - term.text_begin : 0;
    value->kind = term.kind;
    value->integer = term.integer;
    value->number = term.number;
    memcpy(value->text, buffer + term.text_begin, text_bytes);
    value->text[text_bytes] = '\0';
    return 0;
}
