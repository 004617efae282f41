/* What tokenize tells about itself. */
#ifndef DATA_PREP_HELP_H
#define DATA_PREP_HELP_H

#include <stdio.h>

#include "llmc/base/error.h"

/* As help_print() of llmc/base/help.h does it. */
int tokenize_print_help(FILE *out, const char *form, int columns, Error *error);

#endif
