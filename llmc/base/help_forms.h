/* Pages of help that machines read. For help.c. */
#ifndef LLMC_BASE_HELP_FORMS_H
#define LLMC_BASE_HELP_FORMS_H

#include "llmc/base/help.h"

/* A man page of section 1. Source: man(7) of groff and mandoc. */
void help_print_man(FILE *out, const HelpPage *page);

/* A file for bash-completion's folder, or to be sourced; it needs bash 4 alone. */
void help_print_bash(FILE *out, const HelpPage *page);

#endif
