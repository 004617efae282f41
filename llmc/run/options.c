#include "llmc/run/options.h"

#include <stddef.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/model/dtype.h"
#include "llmc/run/config_file.h"
#include "llmc/run/nanogpt.h"
#include "llmc/run/option_table.h"

enum { PORT_MAX = 65535 };

void options_set_defaults(Options *options)
{
    memset(options, 0, sizeof(*options));
    for (int i = 0; i < option_spec_count; i++) {
        Error error;
        CHECK(option_parse_value(options, &option_specs[i], option_specs[i].standard, &error) == 0,
              "default of %s", error.text);
    }
}

void option_errors_add(OptionErrors *errors, const Error *error)
{
    if (errors->count < OPTION_ERRORS_MAX) {
        errors->items[errors->count] = *error;
    }
    errors->count++;
}

void option_errors_exit(const OptionErrors *errors)
{
    int kept = errors->count < OPTION_ERRORS_MAX ? errors->count : OPTION_ERRORS_MAX;
    int left_out = errors->count - kept;
    CHECK(kept > 0, "no error to tell");
    const Error *last = &errors->items[kept - 1];
    for (int i = 0; i < kept - (left_out == 0); i++) {
        error_print("%s", errors->items[i].text);
    }
    if (left_out > 0) {
        error_exit(EXIT_FAILED, "and %d errors more", left_out);
    }
    error_exit(error_exit_code(last), "%s", last->text);
}

int option_set_named(Options *options, const char *name, size_t name_bytes, const char *value, Error *error)
{
    int index = option_find(name, name_bytes);
    if (index < 0) {
        return nanogpt_kind(name, name_bytes) == NANOGPT_UNKNOWN
                   ? option_fail_unknown(name, name_bytes, error)
                   : nanogpt_set(options, name, name_bytes, value, error);
    }
    const OptionSpec *spec = &option_specs[index];
    int may_be_empty = spec->kind == OPTION_TEXT && spec->standard[0] == '\0';
    if (value[0] == '\0' && !may_be_empty) {
        return error_set(error, "%s=: expected a value, found none", spec->name);
    }
    if (option_parse_value(options, spec, value, error) != 0) {
        return -1;
    }
    if (spec->offset == offsetof(Options, lr_schedule)) {
        options->decay_lr = DECAY_LR_NOT_GIVEN; /* later wins */
    }
    options->is_given[index] = 1;
    return 0;
}

int options_set(Options *options, const char *name, const char *value, Error *error)
{
    return option_set_named(options, name, strlen(name), value, error);
}

/* ---- the command line --------------------------------------------------------------------------------- */

/* The arguments on their way. */
typedef struct Arguments {
    int count;
    char **items;
    int next;
} Arguments;

static int read_config_file(Options *options, const char *path, OptionErrors *errors, Error *error)
{
    size_t bytes;
    if (!path_exists(path)) {
        return error_set(error, "%.200s: expected a config file or --name=value, found no such file", path);
    }
    char *text = file_read(path, CONFIG_BYTES_MAX, &bytes, error);
    if (!text) {
        return -1;
    }
    int status = config_file_read(options, path, text, bytes, errors);
    memory_free(text);
    return status;
}

/* The value of an option that stands without `=`. NULL with *error where there is none. */
static const char *take_value(Arguments *arguments, const char *option, int is_bool, Error *error)
{
    const char *next = arguments->next < arguments->count ? arguments->items[arguments->next] : NULL;
    int ignored;
    if (is_bool) {
        int has_word = next && option_is_bool_word(&ignored, next);
        arguments->next += has_word;
        return has_word ? next : "true";
    }
    if (!next || strncmp(next, "--", 2) == 0) {
        error_set(error, "%.80s: expected %.80s=value or %.80s value, found %.80s", option, option, option,
                  next ? next : "no value");
        return NULL;
    }
    arguments->next++;
    return next;
}

static int is_bool_name(const char *name, size_t name_bytes)
{
    int index = option_find(name, name_bytes);
    return index >= 0 ? option_specs[index].kind == OPTION_BOOL
                      : nanogpt_kind(name, name_bytes) == NANOGPT_BOOL;
}

/* `--name=value`, `--name value` or `--name`. */
static int read_option(Options *options, const char *argument, Arguments *arguments, Error *error)
{
    const char *name = argument + 2;
    const char *equals = strchr(name, '=');
    size_t name_bytes = equals ? (size_t)(equals - name) : strlen(name);
    if (option_find(name, name_bytes) < 0 && nanogpt_kind(name, name_bytes) == NANOGPT_UNKNOWN) {
        return option_fail_unknown(name, name_bytes, error);
    }
    const char *value =
        equals ? equals + 1 : take_value(arguments, argument, is_bool_name(name, name_bytes), error);
    return value ? option_set_named(options, name, name_bytes, value, error) : -1;
}

/* --help, --help=SECTION, -h, --version. Returns whether it is one of them. */
static int read_question(Options *options, const char *argument)
{
    int has_form = strncmp(argument, "--help=", strlen("--help=")) == 0;
    if (has_form || strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
        snprintf(options->help_form, sizeof(options->help_form), "%s",
                 has_form ? argument + strlen("--help=") : "");
        options->is_help = 1;
        return 1;
    }
    if (strcmp(argument, "--version") == 0) {
        options->is_version = 1;
        return 1;
    }
    return 0;
}

static int read_argument(Options *options, Arguments *arguments, OptionErrors *errors, Error *error)
{
    const char *argument = arguments->items[arguments->next++];
    if (read_question(options, argument)) {
        return 0;
    }
    if (strncmp(argument, "--print=", strlen("--print=")) == 0) {
        const char *asked = argument + strlen("--print=");
        options->asked_row = 1 + option_find(asked, strlen(asked));
        return options->asked_row ? 0 : option_fail_unknown(asked, strlen(asked), error);
    }
    if (argument[0] != '-') {
        return read_config_file(options, argument, errors, error);
    }
    if (strncmp(argument, "--", 2) != 0) {
        return option_fail_unknown(argument, strcspn(argument, "="), error);
    }
    return read_option(options, argument, arguments, error);
}

int options_parse(Options *options, int argc, char **argv, OptionErrors *errors)
{
    static OptionErrors ignored; /* of what comes after the first mistake: out_dir may be there */
    Arguments arguments = {argc, argv, 1};
    Error error = {.text = ""}, other;
    options_set_defaults(options);
    errors->count = 0;
    int status = 0;
    while (arguments.next < argc && status == 0) {
        status = read_argument(options, &arguments, errors, &error);
    }
    while (arguments.next < argc) {
        read_argument(options, &arguments, &ignored, &other);
    }
    nanogpt_settle(options);
    if (status == 0 && !options->is_help && !options->is_version) {
        status = options_check(options, &error);
    }
    if (status != 0 && errors->count == 0) {
        option_errors_add(errors, &error);
    }
    return status;
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

int options_port_range(int *first, int *last, const Options *options, Error *error)
{
    int used = 0;
    *first = *last = 0;
    if (options->port_range[0] == '\0') {
        return 0;
    }
    int count = sscanf(options->port_range, "%5d-%5d%n", first, last, &used);
    if (count != 2 || options->port_range[used] || *first < 1 || *first > *last || *last > PORT_MAX) {
        return error_set(
            error,
            "port_range=%.100s: expected FIRST-LAST, two ports from 1 to %d, the first not above "
            "the last",
            options->port_range, PORT_MAX);
    }
    return 0;
}

int options_check(const Options *options, Error *error)
{
    int first_port, last_port;
    if (options_port_range(&first_port, &last_port, options, error) != 0) {
        return -1;
    }
    ModelShape shape = options_shape(options);
    if (model_shape_check(&shape, error) != 0) {
        return -1;
    }
    if (options->eval_only && options->sample_only) {
        return error_set(error, "eval_only=true and sample_only=true: expected at most one of them");
    }
    if (options->residual == DTYPE_BF16 && options->dtype != DTYPE_BF16) {
        return error_set(error, "residual=bf16: expected dtype=bf16 with it, found dtype=fp32");
    }
    if (strchr(options->dataset, '*') || strchr(options->dataset, '?')) {
        return error_set(error,
                         "dataset=%.100s: expected a folder below data/; train_data and val_data take globs",
                         options->dataset);
    }
    return 0;
}
