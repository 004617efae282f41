/* How many times longer than on a quiet machine anything may take: TEST_TIME_SCALE, as run.sh sets it. */
#ifndef DEV_TEST_TIME_SCALE_H
#define DEV_TEST_TIME_SCALE_H

#include <stdlib.h>

static inline int time_scale(void)
{
    const char *text = getenv("TEST_TIME_SCALE");
    int scale = text ? atoi(text) : 1;
    return scale > 1 ? scale : 1;
}

#endif
