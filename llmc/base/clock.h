/* Time for measuring and for waiting, on the monotonic clock alone: the system's date may be set back or on
 * while a run goes on. */
#ifndef LLMC_BASE_CLOCK_H
#define LLMC_BASE_CLOCK_H

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Milliseconds on a clock that never goes back. */
double clock_ms(void);

/* A condition variable for clock_wait; the caller ends it with pthread_cond_destroy. */
void clock_condition_init(pthread_cond_t *condition);
/* Waits until the condition is signalled (0; also by chance, as pthread_cond_wait) or that time of clock_ms()
 * has come (-1). The caller holds the mutex. */
int clock_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, double end_ms);

#ifdef __cplusplus
}
#endif
#endif
