/* Our own exp, log, cos and power: errors against libm's long double, corners, and the very bits, which must
 * not depend on compiler, library or CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "llmc/base/hash.h"
#include "llmc/base/math.h"
#include "llmc/base/random.h"

enum { POINTS = 1 << 19 };

/* Points over [low, high): drawn uniformly, or so that all magnitudes are as likely. */
static double point(int i, double low, double high)
{
    RandomKey key = {.seed = 42, .purpose = RANDOM_TEST};
    uint32_t numbers[4];
    random_block(numbers, &key, (uint64_t)i);
    return low + (high - low) * ((double)((uint64_t)numbers[0] << 21 | numbers[1] >> 11) * 0x1p-53);
}

/* Fails where a value is further than `ulps` units of the last place from the expected one. */
static void assert_ulps(double found, long double expected, double ulps, const char *name, double x)
{
    double rounded = (double)expected;
    double unit = nextafter(fabs(rounded), INFINITY) - fabs(rounded);
    long double error = fabsl((long double)found - expected) / unit;
    if (!(error <= ulps)) {
        fail_msg("%s(%.17g): expected %.21Lg, found %.17g, %.3Lf ulp off", name, x, expected, found, error);
    }
}

static void test_exp(void **state)
{
    (void)state;
    for (int i = 0; i < POINTS; i++) {
        double x = point(i, -708, 709.78);
        assert_ulps(math_exp(x), expl(x), 1, "exp", x);
        x = point(i, -2, 2);
        assert_ulps(math_exp(x), expl(x), 1, "exp", x);
    }
    assert_true(math_exp(0.0) == 1.0 && math_exp(-0.0) == 1.0);
    assert_true(math_exp(-709.0) == 0.0 && math_exp(-INFINITY) == 0.0);
    assert_true(math_exp(710.0) == INFINITY && math_exp(INFINITY) == INFINITY);
    assert_true(math_exp(709.78271289338397) < INFINITY && math_exp(-708.0) > 0);
    assert_true(isnan(math_exp(NAN)));
}

static void test_log(void **state)
{
    (void)state;
    for (int i = 0; i < POINTS; i++) {
        double x = point(i, 0.5, 2);
        assert_ulps(math_log(x), logl(x), 1, "log", x);
        x = ldexp(point(i, 1, 2), i % 2098 - 1074);
        assert_ulps(math_log(x), logl(x), 1, "log", x);
        x = 1.0 + (i - POINTS / 2) * DBL_EPSILON; /* next to 1 the result is small */
        assert_ulps(math_log(x), logl(x), 1, "log", x);
    }
    assert_true(math_log(1.0) == 0.0);
    assert_true(math_log(0.0) == -INFINITY && math_log(INFINITY) == INFINITY);
    assert_true(isnan(math_log(-1.0)) && isnan(math_log(NAN)));
    assert_ulps(math_log(DBL_MAX), logl(DBL_MAX), 1, "log", DBL_MAX);
}

/* libm's cosl needs pi * x in more bits than long double has where the result is small: so use the sine. */
static long double expected_cos_pi(double x)
{
    const long double pi = 3.14159265358979323846264338327950288L;
    return x < 0.25 ? cosl(pi * x) : sinl(pi * (0.5L - x));
}

static void test_cos_pi(void **state)
{
    (void)state;
    for (int i = 0; i < POINTS; i++) {
        double x = point(i, 0, 1);
        assert_ulps(math_cos_pi(x), expected_cos_pi(x), 2, "cos_pi", x);
        x = 0.5 + (i - POINTS / 2) * 0x1p-40;
        assert_ulps(math_cos_pi(x), expected_cos_pi(x), 2, "cos_pi", x);
    }
    assert_true(math_cos_pi(0.0) == 1.0 && math_cos_pi(0.5) == 0.0 && math_cos_pi(1.0) == -1.0);
}

static void test_power(void **state)
{
    (void)state;
    const double bases[] = {0.9, 0.95, 0.999, (float)0.9, (float)0.95, 1.0, 0.0, 0.5};
    for (size_t b = 0; b < sizeof(bases) / sizeof(bases[0]); b++) {
        for (int64_t n = 0; n < 20000; n = n < 200 ? n + 1 : n * 5 / 4) {
            long double expected = powl(bases[b], (long double)n);
            long double error = fabsl(math_power(bases[b], n) - expected);
            if (!(error <= expected * (long double)n * 0x1p-53L + 0x1p-1074L)) {
                fail_msg("%.17g^%" PRId64 ": expected %.21Lg, found %.17g", bases[b], n, expected,
                         math_power(bases[b], n));
            }
        }
    }
    assert_true(math_power(0.9, INT64_MAX) == 0.0);
}

/* The bits that every machine must find. */
static void test_golden_bits(void **state)
{
    (void)state;
    uint64_t hash = 0;
    for (int i = 0; i < POINTS; i++) {
        double values[] = {math_exp(point(i, -720, 720)), math_exp(point(i, -2, 2)),
                           math_log(ldexp(point(i, 1, 2), i % 2098 - 1074)), math_cos_pi(point(i, 0, 1)),
                           math_power(point(i, 0, 1), i % 1000)};
        hash = hash_bytes(values, sizeof(values), hash);
    }
    const uint64_t golden = 0xb417beca5e29910b;
    if (hash != golden) {
        fail_msg("expected 0x%016" PRIx64 ", found 0x%016" PRIx64, golden, hash);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),   cmocka_unit_test(test_log),         cmocka_unit_test(test_cos_pi),
        cmocka_unit_test(test_power), cmocka_unit_test(test_golden_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
