/* What a program tells about itself, from one page of facts: --help for a terminal, the whole or one section;
 * a man page; a completion for bash.
 */
#ifndef LLMC_BASE_HELP_H
#define LLMC_BASE_HELP_H

#include <stdio.h>

#include "llmc/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What stands behind an option's name. */
typedef enum HelpValue {
    HELP_NOTHING, /* a flag */
    HELP_BOOL,    /* a flag that takes true or false, too */
    HELP_WORD,    /* a number or text */
    HELP_CHOICE,
    HELP_FILE,
    HELP_FOLDER
} HelpValue;

typedef struct HelpRow {
    const char *section; /* one word; the rows of a section stand together */
    const char *name;    /* with its dashes: "--batch_size", "-o" */
    HelpValue value;
    const char *shown;   /* behind the name: "40", the default, or "FILE"; "" for nothing */
    const char *choices; /* "a|b" of a HELP_CHOICE, else NULL */
    const char *range;   /* "1 to 65536", or "" */
    const char *text;
} HelpRow;

typedef struct HelpText {
    const char *title; /* of a section in the man page; NULL ends the list */
    const char *text; /* paragraphs parted by an empty line; lines that begin with a blank stay as they are */
} HelpText;

typedef struct HelpPage {
    const char *programs; /* "train_gpt2 train_gpt2cu": the first is the page's name, all are completed */
    const char *version;  /* "0.1.0" */
    const char *purpose;  /* a line without a full stop */
    const char *synopsis; /* how to call it, without "usage: "; lines parted by line breaks */
    const HelpText *before, *after; /* the options. In a terminal without titles where those are "" */
    int shows_default;              /* what is shown behind a name is its default */
    const HelpRow *rows;
    int row_count;
} HelpPage;

/* `form` is "" for all, the name of a section, "man" or "bash". Lines are wrapped at `columns`. -1 with
 * *error, which has the sections, where there is no such form. */
int help_print(FILE *out, const HelpPage *page, const char *form, int columns, Error *error);

/* The width of the terminal that `out` writes to; else what COLUMNS says, or 80. */
int help_columns(FILE *out);

#ifdef __cplusplus
}
#endif
#endif
