/* What a device does with the network by itself, told to the monitor. A thread looks some fifty times a
 * second at counters that the device keeps in memory, and at the errors of the library that carries its data.
 * So a lost or stuck peer ends every rank with EXIT_FAULT and a line that names rank and bucket, though no
 * thread of the host takes part in a collective.
 */
#ifndef LLMC_COMM_WATCHDOG_H
#define LLMC_COMM_WATCHDOG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Written by the device, in the order in which it sums buckets. */
typedef struct BucketCounters {
    volatile int64_t begun_count, ended_count; /* since the watchdog began */
} BucketCounters;

typedef struct BucketName {
    const char *what;
    int64_t count; /* of elements */
} BucketName;

typedef struct WatchdogConfig {
    const BucketCounters *counters;
    BucketName (*name)(void *context,
                       int64_t index);   /* of the bucket that was begun as number index, from 0 */
    const char *(*error)(void *context); /* what went wrong; NULL while nothing did */
    /* Lets the device go from a collective that will not end. Called at most once, before this process ends
     * by a fault, on a thread that may hang in it: the process ends a second later whether it returns or not.
     */
    void (*abort)(void *context);
    void *context;
} WatchdogConfig;

/* Starts the thread. There is one watchdog in a process. */
typedef struct Watchdog Watchdog;
Watchdog *watchdog_create(const WatchdogConfig *config);
/* To be called when the device says that sums are ready, before anybody uses them. Does not return when this
 * process is about to end, for then they may be none: an abort, here or in another rank, ends collectives
 * too. */
void watchdog_hold(void);
void watchdog_free(Watchdog *watchdog); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
