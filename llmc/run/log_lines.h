/* What the files of the log share: a line of the console, and one event of log.jsonl. */
#ifndef LLMC_RUN_LOG_LINES_H
#define LLMC_RUN_LOG_LINES_H

#include "llmc/run/log.h"

enum { NUMBER_BYTES = 32 };

/* Whether there is one; the status line makes room on it. */
int log_has_console(const Log *log);

/* Ends a console line, with the time left once it is known. */
void log_end_console_line(Log *log, double left_ms);

/* `,"name":1.5` */
void log_add_number(Log *log, const char *name, double value);

/* Ends an event, and writes it. A full disk does not stop training. */
void log_end_line(Log *log);

#endif
