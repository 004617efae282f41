#include "llmc/comm/watch.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"

enum { QUIET_BEATS = 3, NAMED_MAX = 4 };

void watch_init(Watch *watch, int rank, int rank_count, char (*hosts)[HOST_BYTES], double now_ms)
{
    *watch = (Watch){.rank = rank, .rank_count = rank_count, .hosts = hosts, .interval_ms = 1000};
    watch->first = rank == 0 ? 1 : 0;
    watch->end = rank == 0 ? rank_count : 1;
    watch->ranks = memory_alloc_zeroed((size_t)rank_count, sizeof(*watch->ranks), "watched ranks");
    for (int r = 0; r < rank_count; r++) {
        watch->ranks[r].heard_ms = now_ms;
    }
    for (int c = 0; c < CHANNEL_COUNT; c++) {
        watch->last_change_ms[c] = now_ms;
    }
}

void watch_release(Watch *watch)
{
    memory_free(watch->ranks);
    memset(watch, 0, sizeof(*watch));
}

void watch_set_interval(Watch *watch, double interval_ms)
{
    watch->interval_ms = interval_ms;
}

void watch_beat(Watch *watch, int rank, const Progress progress[CHANNEL_COUNT], double now_ms)
{
    WatchedRank *one = &watch->ranks[rank];
    one->heard_ms = now_ms;
    for (int c = 0; c < CHANNEL_COUNT; c++) {
        if (progress[c].entered_count != one->progress[c].entered_count ||
            progress[c].is_inside != one->progress[c].is_inside) {
            watch->last_change_ms[c] = now_ms;
        }
        one->progress[c] = progress[c];
        one->progress[c].what[PROGRESS_WHAT_BYTES - 1] = 0;
    }
}

void watch_leave(Watch *watch, int rank)
{
    watch->ranks[rank].has_left = 1;
}

void watch_excuse(Watch *watch, double ms)
{
    for (int r = 0; r < watch->rank_count; r++) {
        watch->ranks[r].heard_ms += ms;
    }
    for (int c = 0; c < CHANNEL_COUNT; c++) {
        watch->last_change_ms[c] += ms;
    }
}

int watch_is_quiet(const Watch *watch, int rank, double now_ms)
{
    return !watch->ranks[rank].has_left &&
           now_ms - watch->ranks[rank].heard_ms > QUIET_BEATS * watch->interval_ms;
}

/* Ranks that have begun fewer than `entered_count` collectives, of those the ones that are furthest behind,
 * as "rank 2 (host)" or "ranks 2 (host), 3 (host)". Returns how many. */
static int name_missing(const Watch *watch, char *names, size_t names_bytes, int channel,
                        uint64_t entered_count)
{
    uint64_t least = entered_count;
    for (int r = 0; r < watch->rank_count; r++) {
        uint64_t entered = watch->ranks[r].progress[channel].entered_count;
        least = !watch->ranks[r].has_left && entered < least ? entered : least;
    }
    char list[WATCH_TEXT_BYTES] = "";
    int count = 0;
    size_t used = 0;
    for (int r = 0; r < watch->rank_count && least < entered_count; r++) {
        if (watch->ranks[r].has_left || watch->ranks[r].progress[channel].entered_count != least) {
            continue;
        }
        if (count++ < NAMED_MAX && used < sizeof(list)) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d (%.24s)", count > 1 ? ", " : "",
                                     r, watch->hosts[r]);
        }
    }
    snprintf(names, names_bytes, "rank%s %s%s %s", count > 1 ? "s" : "", list,
             count > NAMED_MAX ? ", .." : "", count > 1 ? "are" : "is");
    return count;
}

/* Only rank 0 hears of all ranks. Who is overdue is left to the rule of silence, which knows better. */
static int judge_channel(const Watch *watch, char text[WATCH_TEXT_BYTES], int channel, double timeout_ms,
                         double now_ms)
{
    const Progress *waiting = NULL;
    for (int r = 0; r < watch->rank_count; r++) {
        const WatchedRank *one = &watch->ranks[r];
        const Progress *progress = &one->progress[channel];
        int is_late = progress->is_inside && progress->inside_ms + (now_ms - one->heard_ms) > timeout_ms;
        if (one->has_left || watch_is_quiet(watch, r, now_ms)) {
            return 0;
        }
        if (is_late && (!waiting || progress->entered_count > waiting->entered_count)) {
            waiting = progress;
        }
    }
    if (!waiting) {
        return 0;
    }
    char names[WATCH_TEXT_BYTES / 2];
    if (name_missing(watch, names, sizeof(names), channel, waiting->entered_count) > 0) {
        snprintf(text, WATCH_TEXT_BYTES, "%s lost: no arrival at %s within comm_timeout, %.3g s", names,
                 waiting->what, timeout_ms / 1e3);
        return 1;
    }
    if (now_ms - watch->last_change_ms[channel] > timeout_ms) {
        snprintf(text, WATCH_TEXT_BYTES,
                 "the network is stuck: all ranks are in %s, for longer than comm_timeout, %.3g s",
                 waiting->what, timeout_ms / 1e3);
        return 1;
    }
    return 0;
}

int watch_judge(const Watch *watch, char text[WATCH_TEXT_BYTES], double timeout_ms, double now_ms)
{
    for (int r = watch->first; r < watch->end; r++) {
        double silent_ms = now_ms - watch->ranks[r].heard_ms;
        if (!watch->ranks[r].has_left && silent_ms > timeout_ms) {
            snprintf(text, WATCH_TEXT_BYTES,
                     "rank %d (%s) is lost: silent for %.1f s, longer than comm_timeout, %.3g s", r,
                     watch->hosts[r], silent_ms / 1e3, timeout_ms / 1e3);
            return 1;
        }
    }
    for (int c = 0; c < CHANNEL_COUNT && watch->rank == 0; c++) {
        if (judge_channel(watch, text, c, timeout_ms, now_ms)) {
            return 1;
        }
    }
    return 0;
}
