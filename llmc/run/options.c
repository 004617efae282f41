#include "llmc/run/options.h"

#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/run/option_table.h"

void options_set_defaults(Options *options)
{
    memset(options, 0, sizeof(*options));
    for (int i = 0; i < option_spec_count; i++) {
        Error error;
        CHECK(option_parse_value(options, &option_specs[i], option_specs[i].standard, &error) == 0,
              "default of %s", error.text);
    }
}

static int fail_unknown(const char *name, size_t name_bytes, Error *error)
{
    int nearest = option_find_nearest(name, name_bytes);
    int shown = name_bytes < 80 ? (int)name_bytes : 80;
    if (nearest >= 0) {
        return error_set(error, "%.*s: unknown option; did you mean %s? (--help lists all)", shown, name,
                         option_specs[nearest].name);
    }
    return error_set(error, "%.*s: unknown option; --help lists all", shown, name);
}

/* The name need not end with a NUL. */
static int set_named(Options *options, const char *name, size_t name_bytes, const char *value, Error *error)
{
    int index = option_find(name, name_bytes);
    if (index < 0) {
        return fail_unknown(name, name_bytes, error);
    }
    const OptionSpec *spec = &option_specs[index];
    int may_be_empty = spec->kind == OPTION_TEXT && spec->standard[0] == '\0';
    if (value[0] == '\0' && !may_be_empty) {
        return error_set(error, "%s=: expected a value, found none", spec->name);
    }
    if (option_parse_value(options, spec, value, error) != 0) {
        return -1;
    }
    options->is_given[index] = 1;
    return 0;
}

int options_set(Options *options, const char *name, const char *value, Error *error)
{
    return set_named(options, name, strlen(name), value, error);
}

/* ---- config files ------------------------------------------------------------------------------------- */

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static const char *skip_blanks(const char *text)
{
    while (is_blank(*text)) {
        text++;
    }
    return text;
}

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

static int read_config_line(Options *options, const char *line, Error *error)
{
    const char *name = skip_blanks(line);
    if (*name == '\0' || *name == '#') {
        return 0;
    }
    size_t name_bytes = strcspn(name, " \t\r=#");
    const char *equals = skip_blanks(name + name_bytes);
    if (*equals != '=' || name_bytes == 0) {
        return error_set(error, "expected name = value, found \"%.60s\"", name);
    }
    const char *text = skip_blanks(equals + 1);
    char value[OPTION_TEXT_BYTES];
    int is_quoted = *text == '"' || *text == '\'';
    const char *rest = is_quoted ? read_quoted(value, text) : read_unquoted(value, text);
    if (!rest) {
        return error_set(error, "%.*s: expected %s of at most %d bytes",
                         (int)(name_bytes < 60 ? name_bytes : 60), name,
                         is_quoted ? "a closing quote and a value" : "a value", OPTION_TEXT_BYTES - 1);
    }
    rest = skip_blanks(rest);
    if (*rest != '\0' && *rest != '#') {
        return error_set(error, "expected the end of the line, found \"%.60s\"", rest);
    }
    return set_named(options, name, name_bytes, value, error);
}

int options_read_config(Options *options, const char *path, const char *text, size_t bytes, Error *error)
{
    enum { LINE_BYTES = 2 * OPTION_TEXT_BYTES + 256 }; /* a value whose every byte is escaped, and its name */
    char line[LINE_BYTES];
    int line_number = 0;
    for (size_t begin = 0; begin < bytes;) {
        const char *line_end = memchr(text + begin, '\n', bytes - begin);
        size_t count = line_end ? (size_t)(line_end - text) - begin : bytes - begin;
        line_number++;
        if (count >= LINE_BYTES) {
            return error_set(error, "%s:%d: expected a line of at most %d bytes, found %zu", path,
                             line_number, LINE_BYTES - 1, count);
        }
        if (memchr(text + begin, '\0', count)) {
            return error_set(error, "%s:%d: expected text, found a NUL byte", path, line_number);
        }
        memcpy(line, text + begin, count);
        line[count] = '\0';
        if (read_config_line(options, line, error) != 0) {
            return error_prefix(error, "%s:%d", path, line_number);
        }
        begin += count + 1;
    }
    return 0;
}

/* ---- the command line --------------------------------------------------------------------------------- */

static int read_config_file(Options *options, const char *path, Error *error)
{
    size_t bytes;
    char *text = file_read(path, CONFIG_BYTES_MAX, &bytes, error);
    if (!text) {
        return -1;
    }
    int status = options_read_config(options, path, text, bytes, error);
    memory_free(text);
    return status;
}

static int read_argument(Options *options, const char *argument, Error *error)
{
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
        options->is_help = 1;
        return 0;
    }
    if (argument[0] != '-') {
        if (!path_exists(argument)) {
            return error_set(error, "%.200s: expected a config file or --name=value, found no such file",
                             argument);
        }
        return read_config_file(options, argument, error);
    }
    const char *equals = strchr(argument, '=');
    if (strncmp(argument, "--", 2) != 0) {
        return error_set(error, "%.80s: expected --name=value; --help lists the options", argument);
    }
    const char *name = argument + 2;
    size_t name_bytes = equals ? (size_t)(equals - name) : strlen(name);
    if (!equals && option_find(name, name_bytes) >= 0) {
        return error_set(error, "%s: expected %s=value, found no value", argument, argument);
    }
    return set_named(options, name, name_bytes, equals ? equals + 1 : "", error);
}

int options_parse(Options *options, int argc, char **argv, Error *error)
{
    options_set_defaults(options);
    for (int i = 1; i < argc; i++) {
        if (read_argument(options, argv[i], error) != 0) {
            return -1;
        }
    }
    return options->is_help ? 0 : options_check(options, error);
}

/* ---- between options ---------------------------------------------------------------------------------- */

int options_is_given(const Options *options, const char *name)
{
    int index = option_find(name, strlen(name));
    CHECK(index >= 0, "%s is no option", name);
    return options->is_given[index];
}

ModelShape options_shape(const Options *options)
{
    return (ModelShape){.block_size = (int)options->block_size,
                        .vocab_size = (int)options->vocab_size,
                        .n_layer = (int)options->n_layer,
                        .n_head = (int)options->n_head,
                        .n_embd = (int)options->n_embd};
}

int options_check(const Options *options, Error *error)
{
    ModelShape shape = options_shape(options);
    if (model_shape_check(&shape, error) != 0) {
        return -1;
    }
    if (options->eval_only && options->sample_only) {
        return error_set(error, "eval_only=true and sample_only=true: expected at most one of them");
    }
    if (strchr(options->dataset, '*') || strchr(options->dataset, '?')) {
        return error_set(error,
                         "dataset=%.100s: expected a folder below data/; train_data and val_data take globs",
                         options->dataset);
    }
    return 0;
}
