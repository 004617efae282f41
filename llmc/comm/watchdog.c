#define _GNU_SOURCE
#include "llmc/comm/watchdog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/comm/monitor.h"
#include "llmc/comm/net.h"
#include "llmc/comm/progress.h"

enum { LOOK_MS = 20, ABORT_MS = 1000 };

struct Watchdog {
    WatchdogConfig config;
    pthread_t thread;
    pthread_mutex_t lock; /* guards is_ending */
    pthread_cond_t changed;
    int is_ending;
    int64_t begun_count, ended_count; /* told so far */
};

/* For the end of the process, which may come from any thread. */
static _Atomic(Watchdog *) to_abort;
static atomic_int is_aborted;

static void *abort_device(void *argument)
{
    Watchdog *watchdog = argument;
    watchdog->config.abort(watchdog->config.context);
    atomic_store(&is_aborted, 1);
    return NULL;
}

static void before_end(void)
{
    pthread_t thread;
    Watchdog *watchdog = atomic_exchange(&to_abort, NULL);
    if (!watchdog || pthread_create(&thread, NULL, abort_device, watchdog) != 0) {
        return;
    }
    for (int ms = 0; ms < ABORT_MS && !atomic_load(&is_aborted); ms++) {
        net_sleep_ms(1);
    }
}

/* Every bucket is entered and left in order, also those that came and went since the last look. */
static void tell_progress(Watchdog *watchdog)
{
    const WatchdogConfig *config = &watchdog->config;
    int64_t ended = config->counters->ended_count, begun = config->counters->begun_count;
    while (watchdog->ended_count < begun) {
        if (watchdog->begun_count == watchdog->ended_count) {
            BucketName name = config->name(config->context, watchdog->begun_count++);
            progress_enter(CHANNEL_BUCKET, name.what, name.count);
        }
        if (watchdog->ended_count >= ended) {
            return;
        }
        progress_leave(CHANNEL_BUCKET);
        watchdog->ended_count++;
    }
}

/* A library gives up when a connection breaks. The monitor knows which rank it was, if one is lost. */
static void check_error(Watchdog *watchdog)
{
    const char *what = watchdog->config.error(watchdog->config.context);
    if (!what) {
        return;
    }
    monitor_await_verdict();
    char doing[128];
    progress_describe(doing, sizeof(doing));
    error_exit(EXIT_FAULT, "%s; this rank %s; run again to go on from the newest snapshot", what, doing);
}

/* Wait for a while; 0 when the thread is to end. */
static int is_watching(Watchdog *watchdog)
{
    double end_ms = clock_ms() + LOOK_MS;
    pthread_mutex_lock(&watchdog->lock);
    while (!watchdog->is_ending && clock_wait(&watchdog->changed, &watchdog->lock, end_ms) == 0) {
    }
    int is_ending = watchdog->is_ending;
    pthread_mutex_unlock(&watchdog->lock);
    return !is_ending;
}

static void *watch(void *argument)
{
    Watchdog *watchdog = argument;
    while (is_watching(watchdog)) {
        tell_progress(watchdog);
        monitor_hold(); /* an abort frees what would be asked */
        check_error(watchdog);
    }
    tell_progress(watchdog);
    return NULL;
}

Watchdog *watchdog_create(const WatchdogConfig *config)
{
    Watchdog *watchdog = memory_alloc_zeroed(1, sizeof(*watchdog), "watchdog");
    watchdog->config = *config;
    pthread_mutex_init(&watchdog->lock, NULL);
    clock_condition_init(&watchdog->changed);
    atomic_store(&to_abort, watchdog);
    monitor_set_end_hook(before_end);
    int status = pthread_create(&watchdog->thread, NULL, watch, watchdog);
    CHECK(status == 0, "cannot start the watchdog: %s", strerror(status));
    return watchdog;
}

void watchdog_hold(void)
{
    monitor_hold();
}

void watchdog_free(Watchdog *watchdog)
{
    if (!watchdog) {
        return;
    }
    atomic_store(&to_abort, NULL);
    pthread_mutex_lock(&watchdog->lock);
    watchdog->is_ending = 1;
    pthread_cond_broadcast(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->lock);
    pthread_join(watchdog->thread, NULL);
    pthread_mutex_destroy(&watchdog->lock);
    pthread_cond_destroy(&watchdog->changed);
    memory_free(watchdog);
}
