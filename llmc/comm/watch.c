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
        watch->ranks[r].worked_ms = now_ms;
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

void watch_beat(Watch *watch, int rank, const Beat *beat, double now_ms)
{
    WatchedRank *one = &watch->ranks[rank];
    one->heard_ms = now_ms;
    for (int c = 0; c < CHANNEL_COUNT; c++) {
        const Progress *before = &one->beat.progress[c], *now = &beat->progress[c];
        if (now->entered_count != before->entered_count || now->is_inside != before->is_inside) {
            watch->last_change_ms[c] = now_ms;
        }
    }
    if (beat->work_count != one->beat.work_count) {
        one->worked_ms = now_ms;
    }
    one->beat = *beat;
    for (int c = 0; c < CHANNEL_COUNT; c++) {
        one->beat.progress[c].what[PROGRESS_WHAT_BYTES - 1] = 0;
    }
    one->beat.unanswered_address[HOST_BYTES - 1] = 0;
}

void watch_leave(Watch *watch, int rank)
{
    watch->ranks[rank].has_left = 1;
}

void watch_excuse(Watch *watch, double ms)
{
    for (int r = 0; r < watch->rank_count; r++) {
        watch->ranks[r].heard_ms += ms;
        watch->ranks[r].worked_ms += ms;
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

/* Ranks that have begun fewer than `entered_count` collectives: of those the ones that are furthest behind
 * and do no work, as "rank 2 (host) is" or "ranks 2 (host), 3 (host) are". Returns how many; *missing_count
 * those that are furthest behind, at work or not. */
static int name_missing(const Watch *watch, char *names, size_t names_bytes, int *missing_count, int channel,
                        uint64_t entered_count, double idle_since_ms)
{
    uint64_t least = entered_count;
    for (int r = 0; r < watch->rank_count; r++) {
        uint64_t entered = watch->ranks[r].beat.progress[channel].entered_count;
        least = !watch->ranks[r].has_left && entered < least ? entered : least;
    }
    char list[WATCH_TEXT_BYTES] = "";
    int count = 0;
    size_t used = 0;
    *missing_count = 0;
    for (int r = 0; r < watch->rank_count && least < entered_count; r++) {
        const WatchedRank *one = &watch->ranks[r];
        if (one->has_left || one->beat.progress[channel].entered_count != least) {
            continue;
        }
        (*missing_count)++;
        if (one->worked_ms < idle_since_ms && count++ < NAMED_MAX && used < sizeof(list)) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d (%.24s)", count > 1 ? ", " : "",
                                     r, watch->hosts[r]);
        }
    }
    snprintf(names, names_bytes, "rank%s %s%s %s", count > 1 ? "s" : "", list,
             count > NAMED_MAX ? ", .." : "", count > 1 ? "are" : "is");
    return count;
}

/* Whether some rank, which may be in a collective that takes long, has got something done since then. */
static int has_worked(const Watch *watch, double since_ms)
{
    for (int r = 0; r < watch->rank_count; r++) {
        if (!watch->ranks[r].has_left && watch->ranks[r].worked_ms >= since_ms) {
            return 1;
        }
    }
    return 0;
}

/* Only rank 0 hears of all ranks. Who is overdue is left to the rule of silence, which knows better. */
static int judge_channel(const Watch *watch, char text[WATCH_TEXT_BYTES], int channel, double timeout_ms,
                         double now_ms)
{
    const Progress *waiting = NULL;
    for (int r = 0; r < watch->rank_count; r++) {
        const WatchedRank *one = &watch->ranks[r];
        const Progress *progress = &one->beat.progress[channel];
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
    int missing_count;
    if (name_missing(watch, names, sizeof(names), &missing_count, channel, waiting->entered_count,
                     now_ms - timeout_ms) > 0) {
        snprintf(text, WATCH_TEXT_BYTES,
                 "%s lost: no arrival at %s within comm_timeout, %.3g s, and no work done since", names,
                 waiting->what, timeout_ms / 1e3);
        return 1;
    }
    if (missing_count == 0 && now_ms - watch->last_change_ms[channel] > timeout_ms &&
        !has_worked(watch, now_ms - timeout_ms)) {
        snprintf(text, WATCH_TEXT_BYTES,
                 "the network is stuck: all ranks are in %s, for longer than comm_timeout, %.3g s",
                 waiting->what, timeout_ms / 1e3);
        return 1;
    }
    return 0;
}

/* What one rank sends to another, and is not answered. */
static int judge_network(const Watch *watch, char text[WATCH_TEXT_BYTES], double limit_ms)
{
    for (int r = 0; r < watch->rank_count; r++) {
        const Beat *beat = &watch->ranks[r].beat;
        if (watch->ranks[r].has_left || !(beat->unanswered_ms > limit_ms)) {
            continue;
        }
        char other[WATCH_TEXT_BYTES / 2];
        int peer = beat->unanswered_rank;
        if (peer >= 0 && peer < watch->rank_count) {
            snprintf(other, sizeof(other), "rank %d (%.40s)", peer, watch->hosts[peer]);
        } else {
            snprintf(other, sizeof(other), "another at %.40s",
                     beat->unanswered_address[0] ? beat->unanswered_address : "its own machine");
        }
        snprintf(text, WATCH_TEXT_BYTES,
                 "the network between rank %d (%.40s) and %s is cut: no answer to what rank %d has sent for "
                 "%.1f s",
                 r, watch->hosts[r], other, r, beat->unanswered_ms / 1e3);
        return 1;
    }
    return 0;
}

double watch_silence_ms(const WatchLimits *limits)
{
    return limits->heartbeat_ms < limits->collective_ms ? limits->heartbeat_ms : limits->collective_ms;
}

int watch_judge(const Watch *watch, char text[WATCH_TEXT_BYTES], const WatchLimits *limits, double now_ms)
{
    double limit_ms = watch_silence_ms(limits);
    for (int r = watch->first; r < watch->end; r++) {
        double silent_ms = now_ms - watch->ranks[r].heard_ms;
        if (!watch->ranks[r].has_left && silent_ms > limit_ms) {
            snprintf(text, WATCH_TEXT_BYTES,
                     "rank %d (%s) is lost: silent for %.1f s, longer than %s, %.3g s", r, watch->hosts[r],
                     silent_ms / 1e3, limit_ms < limits->heartbeat_ms ? "comm_timeout" : "heartbeat_timeout",
                     limit_ms / 1e3);
            return 1;
        }
    }
    if (watch->rank == 0 && judge_network(watch, text, limit_ms)) {
        return 1;
    }
    for (int c = 0; c < CHANNEL_COUNT && watch->rank == 0; c++) {
        if (judge_channel(watch, text, c, limits->collective_ms, now_ms)) {
            return 1;
        }
    }
    return 0;
}
