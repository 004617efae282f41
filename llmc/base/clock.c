#define _GNU_SOURCE
#include "llmc/base/clock.h"

#include <math.h>
#include <time.h>

#include "llmc/base/error.h"

double clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

void clock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    CHECK(pthread_condattr_init(&attributes) == 0 &&
              pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
              pthread_cond_init(condition, &attributes) == 0,
          "cannot make a condition variable of the monotonic clock");
    pthread_condattr_destroy(&attributes);
}

int clock_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, double end_ms)
{
    double whole_s = floor(end_ms / 1e3);
    struct timespec end = {.tv_sec = (time_t)whole_s, .tv_nsec = (long)((end_ms - whole_s * 1e3) * 1e6)};
    return pthread_cond_timedwait(condition, mutex, &end) == 0 ? 0 : -1;
}
