/* What the tests of operations share: seeded values, and comparison with a bound that prints both sides. */
#ifndef DEV_OPS_TEST_OPS_H
#define DEV_OPS_TEST_OPS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llmc/base/memory.h"
#include "llmc/base/random.h"

/* Normal values of a given deviation; the caller frees with memory_free. */
static inline float *test_values(int64_t count, float deviation, uint32_t stream)
{
    float *values = memory_alloc((size_t)count, sizeof(float), "test values");
    RandomKey key = {.seed = 42, .purpose = RANDOM_TEST, .slot = stream};
    random_normal(values, count, deviation, &key, 0);
    return values;
}

static inline float *test_zeros(int64_t count)
{
    return memory_alloc_zeroed((size_t)count, sizeof(float), "test values");
}

/* Fails, naming the element and both values, where |found - expected| exceeds bound. */
#define assert_close(found, expected, bound, name, index)                                                    \
    do {                                                                                                     \
        double found_value = (found);                                                                        \
        double expected_value = (expected);                                                                  \
        double bound_value = (bound);                                                                        \
        if (!(fabs(found_value - expected_value) <= bound_value)) {                                          \
            fail_msg("%s[%lld]: expected %.9g, found %.9g, bound %.3g", name, (long long)(index),            \
                     expected_value, found_value, bound_value);                                              \
        }                                                                                                    \
    } while (0)

#endif
