/* The rows of the options table and how one row is parsed and printed; for options*.c and tests only. */
#ifndef LLMC_RUN_OPTION_TABLE_H
#define LLMC_RUN_OPTION_TABLE_H

#include "llmc/run/options.h"

typedef enum OptionKind { OPTION_BOOL, OPTION_INTEGER, OPTION_NUMBER, OPTION_CHOICE, OPTION_TEXT } OptionKind;

typedef struct OptionSpec {
    const char *group;
    const char *name;
    OptionKind kind;
    int alters_results;   /* another value gives another run */
    size_t offset;        /* in Options */
    double least, most;   /* integers and numbers; integers are exact in a double */
    const char *choices;  /* "a|b|c": the value is the place; NULL for other kinds */
    const char *standard; /* the default, as a user would write it */
    const char *help;
} OptionSpec;

extern const OptionSpec option_specs[];
extern const int option_spec_count;

/* Row of a name, or -1. */
int option_find(const char *name, size_t name_bytes);

/* Set an option by a name that need not end with a NUL, or a name of nanoGPT's that stands for something else
 * here. -1 with *error; options are then as before. */
int option_set_named(Options *options, const char *name, size_t name_bytes, const char *value, Error *error);

/* The error for a name that nobody knows, which says what it may have meant. Returns -1. */
int option_fail_unknown(const char *name, size_t name_bytes, Error *error);

/* For tests: a name of the table of suggestions that is no option, is an option's own, or stands there twice;
 * NULL where there is none. */
const char *option_names_find_fault(void);

/* Whether a word is one of those for true and false; then *out is which. */
int option_is_bool_word(int *out, const char *word);

/* Parse a value into its field. -1 with *error = "name=value: expected ...". */
int option_parse_value(Options *options, const OptionSpec *spec, const char *value, Error *error);

/* The value as a user would write it (text as it is). */
void option_print_value(const Options *options, const OptionSpec *spec, FILE *out);
void option_print_json(const Options *options, const OptionSpec *spec, FILE *out);

#endif
