/* Values of config files, from expressions to what an option is set to. For config_file.c. */
#ifndef LLMC_RUN_CONFIG_VALUE_H
#define LLMC_RUN_CONFIG_VALUE_H

#include "llmc/run/expression.h"
#include "llmc/run/options.h"

/* Python's expression in `text` as a value of the option with this row (-1: one of nanoGPT's that is true or
 * false). Names of options stand for their values so far. -1 with *error. */
int config_value_read(char value[OPTION_TEXT_BYTES], const Options *options, int index, const char *text,
                      Error *error);

/* A value without quotes in a `name = value` line: where the row is that of a number, and the text is
 * arithmetic, its result takes its place. Anything else is left for the option to refuse. */
void config_value_reckon(char value[OPTION_TEXT_BYTES], const Options *options, int index);

#endif
