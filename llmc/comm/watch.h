/* What rank 0 knows of every rank, and every rank of rank 0, from their beats: who is silent, who keeps the
 * others waiting though it does no work, and between whom the network is cut. A rank that works is waited
 * for, however long that takes. Plain bookkeeping: times come from the caller, milliseconds of one clock. */
#ifndef LLMC_COMM_WATCH_H
#define LLMC_COMM_WATCH_H

#include "llmc/comm/beat.h"

enum { WATCH_TEXT_BYTES = 256 };

/* How long others are waited for. */
typedef struct WatchLimits {
    double collective_ms; /* comm_timeout: for a rank that does no work, to come to a collective */
    double heartbeat_ms;  /* heartbeat_timeout: for a sign of life, or for an answer of the network */
} WatchLimits;

typedef struct WatchedRank {
    int has_left;     /* done: no longer watched */
    double heard_ms;  /* when its last beat came */
    double worked_ms; /* when one told of work that was not done before */
    Beat beat;        /* the last one */
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
void watch_beat(Watch *watch, int rank, const Beat *beat, double now_ms);
void watch_leave(Watch *watch, int rank);

/* This process was stopped for so long, and could hear nobody. */
void watch_excuse(Watch *watch, double ms);

/* Whether beats of this rank are overdue, though not yet by the limit. */
int watch_is_quiet(const Watch *watch, int rank, double now_ms);

/* The shorter of the two limits, which silence must not exceed. */
double watch_silence_ms(const WatchLimits *limits);

/* 1 with the sentence that names who is lost and why; 0 while nobody is. */
int watch_judge(const Watch *watch, char text[WATCH_TEXT_BYTES], const WatchLimits *limits, double now_ms);

#endif
