#define _GNU_SOURCE
#include "data_prep/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "llmc/base/clock.h"
#include "llmc/base/format.h"

enum { TERMINAL_INTERVAL_MS = 250, LOG_INTERVAL_MS = 10000 };

void progress_init(Progress *progress, int64_t input_bytes)
{
    *progress = (Progress){.input_bytes = input_bytes, .is_terminal = isatty(STDERR_FILENO)};
    progress->begin_ms = clock_ms();
    progress->next_ms = progress->begin_ms + (progress->is_terminal ? TERMINAL_INTERVAL_MS : LOG_INTERVAL_MS);
}

void progress_show(Progress *progress, int64_t bytes, int64_t tokens)
{
    double now_ms = clock_ms();
    if (now_ms < progress->next_ms) {
        return;
    }
    progress->next_ms = now_ms + (progress->is_terminal ? TERMINAL_INTERVAL_MS : LOG_INTERVAL_MS);
    double seconds = (now_ms - progress->begin_ms) / 1000;
    double megabytes_per_s = (double)bytes / 1e6 / seconds;
    char count[FORMAT_COUNT_BYTES];
    format_count(count, tokens);
    fprintf(stderr, "%stokenize: ", progress->is_terminal ? "\r" : "");
    if (progress->input_bytes > 0 && bytes > 0) {
        double part = (double)bytes / (double)progress->input_bytes;
        part = part > 1 ? 1 : part;
        int64_t left = (int64_t)(seconds / part * (1 - part) + 0.5);
        fprintf(stderr, "%.0f of %.0f MB, %s tokens, %.1f MB/s, %" PRId64 ":%02d:%02d left",
                (double)bytes / 1e6, (double)progress->input_bytes / 1e6, count, megabytes_per_s, left / 3600,
                (int)(left / 60 % 60), (int)(left % 60));
    } else {
        fprintf(stderr, "%.0f MB, %s tokens, %.1f MB/s", (double)bytes / 1e6, count, megabytes_per_s);
    }
    fprintf(stderr, "%s", progress->is_terminal ? "\033[K" : "\n");
    progress->is_shown = 1;
}

void progress_end(Progress *progress)
{
    if (progress->is_terminal && progress->is_shown) {
        fprintf(stderr, "\r\033[K");
    }
}
