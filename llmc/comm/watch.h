/* What rank 0 knows of every rank, and every rank of rank 0, from their beats: who is silent, and who keeps
 * the others waiting. Plain bookkeeping: times come from the caller, milliseconds of one clock. */
#ifndef LLMC_COMM_WATCH_H
#define LLMC_COMM_WATCH_H

#include "llmc/comm/progress.h"

enum { WATCH_TEXT_BYTES = 256 };

typedef struct WatchedRank {
    int has_left;    /* done: no longer watched */
    double heard_ms; /* when its last beat came */
    Progress progress[CHANNEL_COUNT];
} WatchedRank;

/* Owned by the caller: watch_init, watch_release. */
typedef struct Watch {
    int rank, rank_count;
    int first, end; /* ranks that are watched besides this one: [first, end) */
    char (*hosts)[HOST_BYTES];
    WatchedRank *ranks;                   /* (rank_count) */
    double interval_ms;                   /* between beats */
    double last_change_ms[CHANNEL_COUNT]; /* when any rank began or ended a collective */
} Watch;

/* hosts (rank_count) is the caller's and outlives the watch. */
void watch_init(Watch *watch, int rank, int rank_count, char (*hosts)[HOST_BYTES], double now_ms);
void watch_release(Watch *watch);

void watch_set_interval(Watch *watch, double interval_ms);

/* A beat of `rank`, which may be this one. */
void watch_beat(Watch *watch, int rank, const Progress progress[CHANNEL_COUNT], double now_ms);
void watch_leave(Watch *watch, int rank);

/* This process was stopped for so long, and could hear nobody. */
void watch_excuse(Watch *watch, double ms);

/* Whether beats of this rank are overdue, though not yet by the timeout. */
int watch_is_quiet(const Watch *watch, int rank, double now_ms);

/* 1 with the sentence that names who is lost and why; 0 while nobody is. */
int watch_judge(const Watch *watch, char text[WATCH_TEXT_BYTES], double timeout_ms, double now_ms);

#endif
