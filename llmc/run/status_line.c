#define _GNU_SOURCE
#include "llmc/run/status_line.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/format.h"
#include "llmc/run/log.h"

enum { COLUMNS_STANDARD = 80, AGE_MS_MIN = 100 };

static int is_open;
static atomic_int is_shown;
static double shown_ms; /* when */

static void write_terminal(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(STDOUT_FILENO, text, bytes);
        if (written <= 0) {
            return; /* a line that is lost is no loss */
        }
        text += written;
        bytes -= (size_t)written;
    }
}

void status_line_open(void)
{
    const char *terminal = getenv("TERM");
    is_open = isatty(STDOUT_FILENO) && terminal && terminal[0] && strcmp(terminal, "dumb") != 0 &&
              !getenv("OMPI_COMM_WORLD_SIZE");
    if (is_open) {
        error_set_line_hook(status_line_clear);
    }
}

void status_line_clear(void)
{
    if (atomic_exchange(&is_shown, 0)) {
        write_terminal("\r\033[K", 4);
    }
}

/* Whether a line may be drawn now. A program in the background shares its terminal with others. */
static int may_draw(void)
{
    return is_open && tcgetpgrp(STDOUT_FILENO) == getpgrp();
}

/* The last column stays free: some terminals begin a new line once it is filled. */
static int free_columns(void)
{
    struct winsize size;
    int columns =
        ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS_STANDARD;
    return columns - 1;
}

static void draw(const char *text)
{
    char line[STATUS_LINE_BYTES + 8];
    int bytes = snprintf(line, sizeof(line), "\r%s\033[K", text);
    fflush(stdout);
    atomic_store(&is_shown, 1);
    write_terminal(line, (size_t)bytes);
    shown_ms = clock_ms();
}

void status_line_show(const Status *status)
{
    char text[STATUS_LINE_BYTES];
    if (may_draw() && (!atomic_load(&is_shown) || clock_ms() - shown_ms >= AGE_MS_MIN)) {
        draw(status_line_format(text, status, free_columns()));
    }
}

void status_line_say(const char *what)
{
    char text[STATUS_LINE_BYTES];
    if (may_draw()) {
        snprintf(text, sizeof(text), "%.*s", free_columns(), what);
        draw(text);
    }
}

/* Adds a part if all of it fits. */
static void add_part(char text[STATUS_LINE_BYTES], const char *part, int columns)
{
    size_t used = strlen(text), bytes = strlen(part);
    if (used + bytes <= (size_t)columns && used + bytes < STATUS_LINE_BYTES) {
        memcpy(text + used, part, bytes + 1);
    }
}

char *status_line_format(char text[STATUS_LINE_BYTES], const Status *status, int columns)
{
    char part[STATUS_LINE_BYTES], number[FORMAT_COUNT_BYTES], goal[FORMAT_COUNT_BYTES], time[32];
    double update_ms = status->left_ms / (double)(status->max_iters - status->made);
    text[0] = '\0';
    snprintf(part, sizeof(part), "%s of %s updates", format_count(number, status->made),
             format_count(goal, status->max_iters));
    add_part(text, part, columns);
    snprintf(part, sizeof(part), ", loss %.4f", status->loss);
    add_part(text, part, columns);
    if (status->left_ms >= 0) {
        snprintf(part, sizeof(part), ", %s left", format_duration(time, status->left_ms));
        add_part(text, part, columns);
    }
    snprintf(part, sizeof(part), ", %s tok/s",
             format_count(number, (int64_t)(status->tokens_per_second + 0.5)));
    add_part(text, part, columns);
    if (status->snapshot_iters >= 0) {
        int is_timed = status->left_ms >= 0 && status->made < status->max_iters;
        snprintf(part, sizeof(part), ", snapshot in %s%s%s", format_count(number, status->snapshot_iters),
                 is_timed ? " updates, " : " updates",
                 is_timed ? format_duration(time, update_ms * (double)status->snapshot_iters) : "");
        add_part(text, part, columns);
    }
    return text;
}
