#include "llmc/run/config_file.h"

#include <string.h>

#include "llmc/run/config_value.h"
#include "llmc/run/nanogpt.h"
#include "llmc/run/option_table.h"

enum { LINE_BYTES = 2 * OPTION_TEXT_BYTES + 256 }; /* a value whose every byte is escaped, and its name */

/* A file on its way. Owned by config_file_read. */
typedef struct ConfigReader {
    Options *options;
    const char *path;
    const char *at, *end; /* what is not read yet */
    int line;             /* of `at`, from 1 */
    int is_after_semicolon;
    char statement[LINE_BYTES]; /* the line at hand, in Python without its comment and line breaks */
    size_t statement_bytes;     /* also of what did not fit */
    int has_nul;
    OptionErrors *errors;
} ConfigReader;

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f';
}

static const char *skip_blanks(const char *text)
{
    while (is_blank(*text)) {
        text++;
    }
    return text;
}

static void put(ConfigReader *reader, char c)
{
    if (reader->statement_bytes + 1 < LINE_BYTES) {
        reader->statement[reader->statement_bytes] = c;
    }
    reader->statement_bytes++;
    reader->has_nul |= c == '\0';
}

static int fail_name(Error *error, const char *name, size_t name_bytes, const char *expected)
{
    return error_set(error, "%.*s: expected %s", (int)(name_bytes < 60 ? name_bytes : 60), name, expected);
}

static int is_word(const char *text, size_t bytes, const char *word)
{
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

/* What Python needs and a config does not. */
static int is_import(const char *text)
{
    size_t bytes = strcspn(text, " \t");
    const char *next = skip_blanks(text + bytes);
    return (is_word(text, bytes, "import") || is_word(text, bytes, "from")) && *next != '=' && *next != '\0';
}

/* ---- name = value lines -------------------------------------------------------------------------------- */

/* What stands between quotes, with \n, \t, \\ and the quote itself escaped by a backslash. Returns what
 * follows the closing quote, or NULL where there is none or the value is too long. */
static const char *read_quoted(char *value, const char *text)
{
    char quote = *text++;
    size_t count = 0;
    for (; *text && *text != quote; text++) {
        char c = *text;
        if (c == '\\' && text[1] != '\0') {
            text++;
            c = *text == 'n' ? '\n' : *text == 't' ? '\t' : *text;
        }
        if (count + 1 >= OPTION_TEXT_BYTES) {
            return NULL;
        }
        value[count++] = c;
    }
    value[count] = '\0';
    return *text ? text + 1 : NULL;
}

/* An unquoted value ends at the end of the line or at a `#` after a blank. Returns what follows it, or NULL
 * where it is too long. */
static const char *read_unquoted(char *value, const char *text)
{
    const char *end = text;
    while (*end && !(*end == '#' && (end == text || is_blank(end[-1])))) {
        end++;
    }
    size_t count = (size_t)(end - text);
    while (count > 0 && is_blank(text[count - 1])) {
        count--;
    }
    if (count >= OPTION_TEXT_BYTES) {
        return NULL;
    }
    memcpy(value, text, count);
    value[count] = '\0';
    return end;
}

static int read_line(ConfigReader *reader, Error *error)
{
    const char *name = skip_blanks(reader->statement);
    if (*name == '\0' || *name == '#' || is_import(name)) {
        return 0;
    }
    size_t name_bytes = strcspn(name, " \t\r\f=#");
    const char *equals = skip_blanks(name + name_bytes);
    if (*equals != '=' || name_bytes == 0) {
        return error_set(error, "expected name = value, found \"%.60s\"", name);
    }
    if (nanogpt_is_idle(name, name_bytes)) {
        return nanogpt_set(reader->options, name, name_bytes, "", error);
    }
    const char *text = skip_blanks(equals + 1);
    char value[OPTION_TEXT_BYTES];
    int is_quoted = *text == '"' || *text == '\'';
    const char *rest = is_quoted ? read_quoted(value, text) : read_unquoted(value, text);
    if (!rest) {
        return fail_name(error, name, name_bytes,
                         is_quoted ? "a closing quote and a value of at most 4095 bytes"
                                   : "a value of at most 4095 bytes");
    }
    rest = skip_blanks(rest);
    if (*rest != '\0' && *rest != '#') {
        return error_set(error, "expected the end of the line, found \"%.60s\"", rest);
    }
    if (!is_quoted) {
        config_value_reckon(value, reader->options, option_find(name, name_bytes));
    }
    return option_set_named(reader->options, name, name_bytes, value, error);
}

/* A line of the file. The line break is left out. */
static void take_line(ConfigReader *reader)
{
    while (reader->at < reader->end && *reader->at != '\n') {
        put(reader, *reader->at++);
    }
    if (reader->at < reader->end) {
        reader->at++;
        reader->line++;
    }
}

/* ---- Python -------------------------------------------------------------------------------------------- */

static char peek(const ConfigReader *reader, size_t ahead)
{
    return ahead < (size_t)(reader->end - reader->at) ? reader->at[ahead] : '\0';
}

static void take_byte(ConfigReader *reader)
{
    reader->line += *reader->at == '\n';
    put(reader, *reader->at++);
}

/* A text literal, to its closing quote; one that has none ends with its line, or with the file. */
static void take_text(ConfigReader *reader)
{
    char quote = *reader->at;
    int is_triple = peek(reader, 1) == quote && peek(reader, 2) == quote;
    for (int i = 0; i < (is_triple ? 3 : 1); i++) {
        take_byte(reader);
    }
    while (reader->at < reader->end && (is_triple || *reader->at != '\n')) {
        if (*reader->at == '\\' && reader->end - reader->at > 1) {
            take_byte(reader);
            take_byte(reader);
        } else if (*reader->at == quote &&
                   (!is_triple || (peek(reader, 1) == quote && peek(reader, 2) == quote))) {
            for (int i = 0; i < (is_triple ? 3 : 1); i++) {
                take_byte(reader);
            }
            return;
        } else {
            take_byte(reader);
        }
    }
}

/* A backslash at the end of a line joins the next one. Returns whether that was so. */
static int take_joint(ConfigReader *reader)
{
    size_t bytes = peek(reader, 1) == '\r' ? 2 : 1;
    if (*reader->at != '\\' || peek(reader, bytes) != '\n') {
        return 0;
    }
    reader->at += bytes + 1;
    reader->line++;
    put(reader, ' ');
    return 1;
}

/* A statement: to the end of the line or a semicolon, outside of brackets and text. */
static void take_statement(ConfigReader *reader)
{
    int depth = 0;
    while (reader->at < reader->end) {
        char c = *reader->at;
        if (c == '\'' || c == '"') {
            take_text(reader);
        } else if (c == '#') {
            const char *line_end = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
            reader->at = line_end ? line_end : reader->end;
        } else if (c == '\n' || (c == ';' && depth == 0)) {
            reader->at++;
            reader->line += c == '\n';
            reader->is_after_semicolon = c == ';';
            if (depth == 0) {
                return;
            }
            put(reader, ' ');
        } else if (!take_joint(reader)) {
            depth += (c == '(' || c == '[' || c == '{') - (depth > 0 && (c == ')' || c == ']' || c == '}'));
            take_byte(reader);
        }
    }
}

static size_t count_name_bytes(const char *text)
{
    size_t bytes = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    return bytes > 0 && text[0] >= '0' && text[0] <= '9' ? 0 : bytes;
}

/* Text alone on a line says what the file is for. */
static int is_doc_text(const char *text)
{
    ExpressionValue value;
    Error error;
    return expression_text_opening(text) > 0 && expression_evaluate(&value, text, NULL, NULL, &error) == 0 &&
           value.kind == EXPRESSION_TEXT;
}

static int read_python(ConfigReader *reader, Error *error)
{
    const char *name = skip_blanks(reader->statement);
    if (*name == '\0' || is_import(name) || is_doc_text(name)) {
        return 0;
    }
    size_t name_bytes = count_name_bytes(name);
    const char *equals = skip_blanks(name + name_bytes);
    if (*equals != '=' || equals[1] == '=' || name_bytes == 0) {
        return error_set(error, "expected name = value, import or a comment, found \"%.60s\"", name);
    }
    if (nanogpt_is_idle(name, name_bytes)) {
        return nanogpt_set(reader->options, name, name_bytes, "", error);
    }
    int index = option_find(name, name_bytes);
    if (index < 0 && nanogpt_kind(name, name_bytes) == NANOGPT_UNKNOWN) {
        return option_fail_unknown(name, name_bytes, error);
    }
    char value[OPTION_TEXT_BYTES];
    if (config_value_read(value, reader->options, index, equals + 1, error) != 0) {
        return error_prefix(error, "%.*s", (int)name_bytes, name);
    }
    return option_set_named(reader->options, name, name_bytes, value, error);
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static void add_error(ConfigReader *reader, int line, Error *error)
{
    error_prefix(error, "%s:%d", reader->path, line);
    option_errors_add(reader->errors, error);
}

/* What a statement of any kind must be. */
static int check_statement(const ConfigReader *reader, Error *error)
{
    if (reader->statement_bytes >= LINE_BYTES) {
        return error_set(error, "expected a line of at most %d bytes, found %zu", LINE_BYTES - 1,
                         reader->statement_bytes);
    }
    return reader->has_nul ? error_set(error, "expected text, found a NUL byte") : 0;
}

/* if, for, def: the lines below would be run by Python or not. */
static int opens_block(const ConfigReader *reader)
{
    size_t bytes = strlen(reader->statement);
    while (bytes > 0 && is_blank(reader->statement[bytes - 1])) {
        bytes--;
    }
    return bytes > 0 && reader->statement[bytes - 1] == ':';
}

static int has_ending(const char *path, const char *ending)
{
    size_t bytes = strlen(path), ending_bytes = strlen(ending);
    return bytes >= ending_bytes && strcmp(path + bytes - ending_bytes, ending) == 0;
}

int config_file_read(Options *options, const char *path, const char *text, size_t bytes, OptionErrors *errors)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    int is_python = has_ending(path, ".py");
    int has_mark = bytes >= 3 && memcmp(text, byte_order_mark, 3) == 0;
    ConfigReader reader = {.options = options,
                           .path = path,
                           .at = text + (has_mark ? 3 : 0),
                           .end = text + bytes,
                           .line = 1,
                           .errors = errors};
    int errors_before = errors->count;
    int is_in_bad_block = 0; /* below a line that was told of, and would open a block */
    while (reader.at < reader.end) {
        Error error;
        int first_line = reader.line;
        int is_indented = is_python && !reader.is_after_semicolon && is_blank(*reader.at);
        reader.statement_bytes = 0;
        reader.has_nul = 0;
        reader.is_after_semicolon = 0;
        (is_python ? take_statement : take_line)(&reader);
        reader.statement[reader.statement_bytes < LINE_BYTES ? reader.statement_bytes : LINE_BYTES - 1] =
            '\0';
        int is_empty = *skip_blanks(reader.statement) == '\0' && !reader.has_nul;
        if (is_empty || (is_indented && is_in_bad_block)) {
            continue;
        }
        int status = check_statement(&reader, &error);
        if (status == 0 && is_indented) {
            status = error_set(&error, "expected a line that begins in its first column, found blanks");
        }
        if (status == 0) {
            status = (is_python ? read_python : read_line)(&reader, &error);
        }
        if (status != 0) {
            add_error(&reader, first_line, &error);
        }
        is_in_bad_block = is_indented ? is_in_bad_block : status != 0 && opens_block(&reader);
    }
    return errors->count == errors_before ? 0 : -1;
}
