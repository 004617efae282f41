#define _GNU_SOURCE
#include "data_prep/options.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"

typedef enum OptionType {
    TYPE_STRING,
    TYPE_INPUT,
    TYPE_COUNT,
    TYPE_THREADS,
    TYPE_FRACTION,
    TYPE_CHOICE
} OptionType;

typedef struct OptionRow {
    const char *name;
    OptionType type;
    size_t offset;
    const char *choices[4];
} OptionRow;

#define FIELD(name) offsetof(TokenizeOptions, name)

static const OptionRow option_rows[] = {
    {"-o", TYPE_STRING, FIELD(output), {NULL}},
    {"--decode", TYPE_STRING, FIELD(decode), {NULL}},
    {"--val-fraction", TYPE_FRACTION, FIELD(val_fraction), {NULL}},
    {"--val-tokens", TYPE_COUNT, FIELD(val_tokens), {NULL}},
    {"--val-input", TYPE_INPUT, 0, {NULL}},
    {"--tokenizer", TYPE_CHOICE, FIELD(tokenizer), {"gpt2", "char", NULL}},
    {"--text-key", TYPE_STRING, FIELD(text_key), {NULL}},
    {"--eot-in-text", TYPE_CHOICE, FIELD(eot_text), {"plain", "split", NULL}},
    {"--format", TYPE_CHOICE, FIELD(format), {"auto", "text", "jsonl", NULL}},
    {"--eot", TYPE_CHOICE, FIELD(eot), {"append", "prepend", "none", NULL}},
    {"--header", TYPE_CHOICE, FIELD(header), {"llmc", "none", NULL}},
    {"--shard-tokens", TYPE_COUNT, FIELD(shard_tokens), {NULL}},
    {"--shuffle-documents", TYPE_COUNT, FIELD(shuffle_documents), {NULL}},
    {"--shuffle-memory", TYPE_COUNT, FIELD(shuffle_memory), {NULL}},
    {"--clean", TYPE_CHOICE, FIELD(clean), {"none", "openwebtext", NULL}},
    {"--threads", TYPE_THREADS, FIELD(threads), {NULL}},
};

enum { ROW_COUNT = sizeof(option_rows) / sizeof(option_rows[0]) };

const char *tokenize_option_name(int index)
{
    return index < ROW_COUNT ? option_rows[index].name : NULL;
}

const char *const *tokenize_option_choices(const char *name)
{
    static const char *const none[] = {NULL};
    for (int i = 0; i < ROW_COUNT; i++) {
        if (strcmp(option_rows[i].name, name) == 0) {
            return option_rows[i].choices;
        }
    }
    return none;
}

static int parse_count(int64_t *count, const OptionRow *row, const char *value, int64_t low, int64_t high,
                       Error *error)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    int is_number = value[0] >= '0' && value[0] <= '9' && *end == '\0';
    if (!is_number || errno != 0 || number < low || number > high) {
        return error_set(error, "%s=%.200s: expected a whole number from %lld to %lld", row->name, value,
                         (long long)low, (long long)high);
    }
    *count = number;
    return 0;
}

static int parse_fraction(double *fraction, const OptionRow *row, const char *value, Error *error)
{
    char *end;
    double number = strtod(value, &end);
    int is_number = ((value[0] >= '0' && value[0] <= '9') || value[0] == '.') && *end == '\0';
    if (!is_number || !isfinite(number) || number < 0 || number >= 1) {
        return error_set(error, "%s=%.200s: expected a number of at least 0 and less than 1", row->name,
                         value);
    }
    *fraction = number;
    return 0;
}

static int parse_choice(int *choice, const OptionRow *row, const char *value, Error *error)
{
    char expected[64] = "";
    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(value, row->choices[i]) == 0) {
            *choice = i;
            return 0;
        }
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof(expected) - used, "%s%s", i ? ", " : "", row->choices[i]);
    }
    return error_set(error, "%s=%.200s: expected one of %s", row->name, value, expected);
}

static int set_option(TokenizeOptions *options, const OptionRow *row, const char *value, Error *error)
{
    void *field = (char *)options + row->offset;
    int64_t count = 0;
    switch (row->type) {
    case TYPE_STRING:
        if (value[0] == '\0') {
            return error_set(error, "%s: expected a name, found nothing", row->name);
        }
        *(const char **)field = value;
        return 0;
    case TYPE_INPUT:
        options->val_inputs[options->val_inputs_count++] = value;
        return 0;
    case TYPE_COUNT:
        return parse_count(field, row, value, row->offset == FIELD(shard_tokens), INT64_MAX / 4, error);
    case TYPE_THREADS:
        if (parse_count(&count, row, value, 1, THREADS_MAX, error) != 0) {
            return -1;
        }
        *(int *)field = (int)count;
        return 0;
    case TYPE_FRACTION:
        return parse_fraction(field, row, value, error);
    case TYPE_CHOICE:
        return parse_choice(field, row, value, error);
    }
    return -1;
}

/* Find the row of `argument`; *value is what follows its `=`, or NULL. */
static const OptionRow *find_row(const char *argument, const char **value)
{
    for (int i = 0; i < ROW_COUNT; i++) {
        const OptionRow *row = &option_rows[i];
        size_t name_bytes = strlen(row->name);
        if (strncmp(argument, row->name, name_bytes) != 0) {
            continue;
        }
        char next = argument[name_bytes];
        int is_short = row->name[1] != '-';
        if (next == '\0' || next == '=' || is_short) {
            *value = next == '\0' ? NULL : argument + name_bytes + (next == '=');
            return row;
        }
    }
    return NULL;
}

/* --help, --help=SECTION, -h, --version. Returns whether it is one of them. */
static int read_question(TokenizeOptions *options, const char *argument)
{
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
        options->help = "";
    } else if (strncmp(argument, "--help=", strlen("--help=")) == 0) {
        options->help = argument + strlen("--help=");
    }
    options->version = strcmp(argument, "--version") == 0;
    return options->help || options->version;
}

static int check_together(const TokenizeOptions *options, Error *error)
{
    if (options->decode) {
        if (options->output || options->inputs_count > 0) {
            return error_set(error, "--decode %s: expected nothing else, found %s", options->decode,
                             options->output ? "-o" : options->inputs[0]);
        }
        return 0;
    }
    if (!options->output) {
        return error_set(error, "-o PREFIX is missing: the folder to write train.bin to; see --help");
    }
    if (options->inputs_count == 0) {
        return error_set(error, "INPUT is missing: name the files to read, or - for a pipe; see --help");
    }
    if ((options->val_fraction >= 0) + (options->val_tokens >= 0) + (options->val_inputs_count > 0) > 1) {
        const char *other = options->val_inputs_count > 0 ? "--val-input" : "--val-tokens";
        return error_set(error, "%s and %s: expected one of them, found both",
                         options->val_fraction >= 0 ? "--val-fraction" : "--val-tokens", other);
    }
    if (options->tokenizer == TOKENS_CHAR && options->eot != EOT_NONE) {
        return error_set(error,
                         "--eot with --tokenizer=char: expected none, as a mark is no character; leave the "
                         "option out");
    }
    if (strlen(options->text_key) > TEXT_KEY_BYTES_MAX) {
        return error_set(error, "--text-key=%.40s..: expected at most %d bytes", options->text_key,
                         TEXT_KEY_BYTES_MAX);
    }
    if (options->header == HEADER_LLMC && options->shard_tokens > INT32_MAX) {
        return error_set(
            error,
            "--shard-tokens=%lld: expected at most %d, which is what llm.c's header can count; or "
            "use --header=none",
            (long long)options->shard_tokens, INT32_MAX);
    }
    int stdin_count = 0;
    for (int i = 0; i < options->inputs_count; i++) {
        stdin_count += strcmp(options->inputs[i], "-") == 0;
    }
    for (int i = 0; i < options->val_inputs_count; i++) {
        stdin_count += strcmp(options->val_inputs[i], "-") == 0;
    }
    if (stdin_count > 1) {
        return error_set(error, "-: expected once, found %d times: a pipe can be read only once",
                         stdin_count);
    }
    return 0;
}

static int processors_count(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : count;
}

int tokenize_options_init(TokenizeOptions *options, int argc, char **argv, Error *error)
{
    *options = (TokenizeOptions){.val_fraction = -1,
                                 .val_tokens = -1,
                                 .text_key = "text",
                                 .eot = -1,
                                 .shuffle_documents = -1,
                                 .shuffle_memory = SHUFFLE_MEMORY_MB,
                                 .threads = processors_count()};
    options->inputs = memory_alloc((size_t)argc, sizeof(char *), "arguments");
    options->val_inputs = memory_alloc((size_t)argc, sizeof(char *), "arguments");
    int options_ended = 0;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (options_ended || argument[0] != '-' || strcmp(argument, "-") == 0) {
            options->inputs[options->inputs_count++] = argument;
            continue;
        }
        if (strcmp(argument, "--") == 0) {
            options_ended = 1;
            continue;
        }
        if (read_question(options, argument)) {
            return 0;
        }
        const char *value;
        const OptionRow *row = find_row(argument, &value);
        if (!row) {
            return error_set(error, "unknown option %.200s; see --help", argument);
        }
        if (!value && i + 1 == argc) {
            return error_set(error, "%s: expected a value, found the end of the line", row->name);
        }
        if (set_option(options, row, value ? value : argv[++i], error) != 0) {
            return -1;
        }
    }
    if (options->eot < 0) {
        options->eot = options->tokenizer == TOKENS_CHAR ? EOT_NONE : EOT_APPEND;
    }
    return check_together(options, error) == 0 ? tokenize_options_check_shuffle(options, error) : -1;
}

void tokenize_options_release(TokenizeOptions *options)
{
    memory_free(options->inputs);
    memory_free(options->val_inputs);
    options->inputs = NULL;
    options->val_inputs = NULL;
}
