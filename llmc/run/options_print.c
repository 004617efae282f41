#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/run/option_table.h"

/* Text on one line: line breaks as \n. */
static void print_escaped(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\n') {
            fputs("\\n", out);
        } else {
            putc(*text, out);
        }
    }
}

void options_print_asked(const Options *options, FILE *out)
{
    option_print_value(options, &option_specs[options->asked_row - 1], out);
    putc('\n', out);
}

void options_print_summary(const Options *options, FILE *out)
{
    const char *group = "";
    for (int i = 0; i < option_spec_count; i++) {
        const OptionSpec *spec = &option_specs[i];
        if (strcmp(group, spec->group) != 0) {
            fprintf(out, "%s%-6s", i > 0 ? "\n" : "", spec->group);
            group = spec->group;
        }
        fprintf(out, " %s=", spec->name);
        if (spec->kind == OPTION_TEXT) {
            print_escaped((const char *)options + spec->offset, out);
        } else {
            option_print_value(options, spec, out);
        }
    }
    putc('\n', out);
}

void options_print_json(const Options *options, FILE *out)
{
    for (int i = 0; i < option_spec_count; i++) {
        fprintf(out, "%s\"%s\":", i == 0 ? "{" : ",", option_specs[i].name);
        option_print_json(options, &option_specs[i], out);
    }
    putc('}', out);
}

char *options_to_json(const Options *options)
{
    char *json = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&json, &bytes);
    CHECK(memory, "out of memory");
    options_print_json(options, memory);
    CHECK(fclose(memory) == 0, "out of memory");
    return json;
}

/* Whether a JSON value is what the option holds now. An option that an older version did not know counts as
 * the same. */
static int is_same(const Options *options, const OptionSpec *spec, const json_t *value)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    CHECK(memory, "out of memory");
    option_print_json(options, spec, memory);
    CHECK(fclose(memory) == 0, "out of memory");
    json_t *now = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    int same =
        !value || !now || json_equal(now, value) ||
        (json_is_number(now) && json_is_number(value) && json_number_value(now) == json_number_value(value));
    json_decref(now);
    memory_free(text);
    return same;
}

int options_print_differences(const Options *options, const char *json, FILE *out)
{
    json_t *before = json_loads(json, 0, NULL);
    int count = 0;
    for (int i = 0; i < option_spec_count; i++) {
        const OptionSpec *spec = &option_specs[i];
        json_t *value = json_object_get(before, spec->name);
        if (!spec->alters_results || is_same(options, spec, value)) {
            continue;
        }
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        fprintf(out, "notice: %s was %s when the snapshot was written, is now ", spec->name,
                text ? text : "?");
        option_print_json(options, spec, out);
        putc('\n', out);
        memory_free(text);
        count++;
    }
    json_decref(before);
    return count;
}
