/* The line at the bottom of a terminal that tells how a run stands: redrawn below the lines that stay,
 * removed before the next of them, before an error's, and when the program ends. There is none where stdout
 * is no terminal, where TERM is dumb or not set, while the program runs in the background, and on ranks that
 * mpirun has started (their terminal is mpirun's own, and leads to wherever mpirun writes).
 */
#ifndef LLMC_RUN_STATUS_LINE_H
#define LLMC_RUN_STATUS_LINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Status {
    int64_t made, max_iters; /* updates */
    double loss;             /* of the last one */
    double tokens_per_second;
    double left_ms;         /* until the end of the run; negative while unknown */
    int64_t snapshot_iters; /* updates until the next snapshot; negative: none is due */
} Status;

enum { STATUS_LINE_BYTES = 256 };

/* Lines are drawn from now on where there is a terminal for them. */
void status_line_open(void);

/* Shows how the run stands; does nothing if the line is younger than a tenth of a second. */
void status_line_show(const Status *status);

/* Shows what the program does meanwhile. */
void status_line_say(const char *what);

/* Removes the line, if one is there. From any thread. */
void status_line_clear(void);

/* The text of a status: as much of it as fits into `columns`, in whole parts. Returns `text`. */
char *status_line_format(char text[STATUS_LINE_BYTES], const Status *status, int columns);

#ifdef __cplusplus
}
#endif
#endif
