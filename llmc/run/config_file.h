/* Config files. Two kinds are read:
 *
 *   *.py   as nanoGPT has them: Python's assignments, `import` lines, comments. Nothing is run: a value is a
 *          number, text, True, False, or arithmetic with them and with options that stand before it.
 *   else   `name = value` lines and `#` comments (after a blank where the value stands without quotes).
 *          Numbers may be written as in Python.
 */
#ifndef LLMC_RUN_CONFIG_FILE_H
#define LLMC_RUN_CONFIG_FILE_H

#include "llmc/run/options.h"

/* Read the text of a config file; `path` tells its kind, and names it in errors. Every line is looked at:
 * for any bytes 0, or -1 with an error for each bad line, which begins with path and line. */
int config_file_read(Options *options, const char *path, const char *text, size_t bytes,
                     OptionErrors *errors);

#endif
