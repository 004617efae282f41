/* How far a long run is: a line that is rewritten on a terminal, and now and then a line elsewhere. */
#ifndef DATA_PREP_PROGRESS_H
#define DATA_PREP_PROGRESS_H

#include <stdint.h>

typedef struct Progress {
    int64_t input_bytes; /* negative: unknown */
    int is_terminal;
    int is_shown;
    double begin_ms;
    double next_ms;
} Progress;

void progress_init(Progress *progress, int64_t input_bytes);
/* May be called as often as one likes. */
void progress_show(Progress *progress, int64_t bytes, int64_t tokens);
/* Clear the line on the terminal. */
void progress_end(Progress *progress);

#endif
