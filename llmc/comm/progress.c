#include "llmc/comm/progress.h"

#include <pthread.h>
#include <stdio.h>

#include "llmc/base/clock.h"
#include "llmc/base/format.h"
#include "llmc/base/work.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    Progress state;
    double begin_ms;
} channels[CHANNEL_COUNT];

void progress_enter(CommChannel channel, const char *name, int64_t count)
{
    char number[FORMAT_COUNT_BYTES];
    work_add();
    Progress *state = &channels[channel].state;
    pthread_mutex_lock(&lock);
    state->entered_count++;
    state->is_inside = 1;
    channels[channel].begin_ms = clock_ms();
    if (count == 0) {
        snprintf(state->what, sizeof(state->what), "%s", name);
    } else {
        snprintf(state->what, sizeof(state->what), "%s of %s element%s", name, format_count(number, count),
                 count == 1 ? "" : "s");
    }
    pthread_mutex_unlock(&lock);
}

void progress_leave(CommChannel channel)
{
    pthread_mutex_lock(&lock);
    channels[channel].state.is_inside = 0;
    pthread_mutex_unlock(&lock);
}

void progress_read(Progress states[CHANNEL_COUNT])
{
    double now_ms = clock_ms();
    pthread_mutex_lock(&lock);
    for (int c = 0; c < CHANNEL_COUNT; c++) {
        states[c] = channels[c].state;
        states[c].inside_ms = states[c].is_inside ? now_ms - channels[c].begin_ms : 0;
    }
    pthread_mutex_unlock(&lock);
}

void progress_excuse(double ms)
{
    pthread_mutex_lock(&lock);
    for (int c = 0; c < CHANNEL_COUNT; c++) {
        channels[c].begin_ms += ms;
    }
    pthread_mutex_unlock(&lock);
}

void progress_describe(char *text, size_t text_bytes)
{
    Progress states[CHANNEL_COUNT];
    progress_read(states);
    for (int c = CHANNEL_COUNT - 1; c >= 0; c--) { /* the main thread often only waits for the bucket */
        if (states[c].is_inside) {
            snprintf(text, text_bytes, "was in %s for %.1f s", states[c].what,
                     states[c].inside_ms > 0 ? states[c].inside_ms / 1e3 : 0);
            return;
        }
    }
    snprintf(text, text_bytes, "was computing");
}
