#include "llmc/base/math.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ln 2 in two parts; the upper one ends in 21 zero bits, so n times it is exact for every exponent n. */
static const double ln2_upper = 0x1.62e42fee00000p-1;
static const double ln2_lower = 0x1.a39ef35793c76p-33;

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* 1/2!, 1/3! .. of e^r - 1 - r. */
static double exp_series(double r)
{
    double series = 1.0 / 87178291200.0;
    series = series * r + 1.0 / 6227020800.0;
    series = series * r + 1.0 / 479001600.0;
    series = series * r + 1.0 / 39916800.0;
    series = series * r + 1.0 / 3628800.0;
    series = series * r + 1.0 / 362880.0;
    series = series * r + 1.0 / 40320.0;
    series = series * r + 1.0 / 5040.0;
    series = series * r + 1.0 / 720.0;
    series = series * r + 1.0 / 120.0;
    series = series * r + 1.0 / 24.0;
    series = series * r + 1.0 / 6.0;
    series = series * r + 0.5;
    return series * (r * r);
}

double math_exp(double x)
{
    if (!(x >= -708.0)) { /* or not a number */
        return x < -708.0 ? 0.0 : x;
    }
    if (x > 0x1.62e42fefa39efp+9) {
        return INFINITY;
    }
    double n = floor(x * 0x1.71547652b82fep+0 + 0.5);
    double upper = x - n * ln2_upper; /* exact */
    double lower = n * ln2_lower;
    double r = upper - lower; /* |r| <= 0.35 */
    double lost = (upper - r) - lower;
    double result = 1.0 + (r + (exp_series(r) + lost));
    int64_t half = (int64_t)n / 2; /* in two factors: 2^n itself may be too large */
    result *= from_bits((uint64_t)(half + 1023) << 52);
    return result * from_bits((uint64_t)((int64_t)n - half + 1023) << 52);
}

double math_log(double x)
{
    if (!(x > 0) || x > DBL_MAX) {
        return x == 0 ? -INFINITY : x < 0 ? NAN : x;
    }
    int64_t n = 0;
    if (x < DBL_MIN) {
        x *= 0x1p54;
        n = -54;
    }
    uint64_t bits = bits_of(x);
    n += (int64_t)(bits >> 52) - 1023;
    double mantissa = from_bits((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (mantissa > 1.4142135623730951) {
        mantissa *= 0.5;
        n++;
    }
    /* with f = mantissa - 1 and s = f / (2 + f), log(1 + f) = 2 atanh(s) = f - f^2/2 + s (f^2/2 + series):
     * f is exact, and what is added to it is small */
    double f = mantissa - 1.0; /* -0.293 .. 0.415 */
    double s = f / (2.0 + f);
    double s2 = s * s;
    double series = 2.0 / 23;
    series = series * s2 + 2.0 / 21;
    series = series * s2 + 2.0 / 19;
    series = series * s2 + 2.0 / 17;
    series = series * s2 + 2.0 / 15;
    series = series * s2 + 2.0 / 13;
    series = series * s2 + 2.0 / 11;
    series = series * s2 + 2.0 / 9;
    series = series * s2 + 2.0 / 7;
    series = series * s2 + 2.0 / 5;
    series = series * s2 + 2.0 / 3;
    double half_square = 0.5 * f * f;
    double small = s * (half_square + series * s2) + (double)n * ln2_lower;
    return (double)n * ln2_upper - ((half_square - small) - f);
}

static double sine_near_zero(double y) /* |y| <= pi/4 */
{
    double y2 = y * y;
    double series = 1.0 / 355687428096000.0;
    series = series * y2 - 1.0 / 1307674368000.0;
    series = series * y2 + 1.0 / 6227020800.0;
    series = series * y2 - 1.0 / 39916800.0;
    series = series * y2 + 1.0 / 362880.0;
    series = series * y2 - 1.0 / 5040.0;
    series = series * y2 + 1.0 / 120.0;
    series = series * y2 - 1.0 / 6.0;
    return y + y * (y2 * series);
}

static double cosine_near_zero(double y)
{
    double y2 = y * y;
    double series = 1.0 / 20922789888000.0;
    series = series * y2 - 1.0 / 87178291200.0;
    series = series * y2 + 1.0 / 479001600.0;
    series = series * y2 - 1.0 / 3628800.0;
    series = series * y2 + 1.0 / 40320.0;
    series = series * y2 - 1.0 / 720.0;
    series = series * y2 + 1.0 / 24.0;
    double half_square = 0.5 * y2;
    double rounded = 1.0 - half_square;
    return rounded + (((1.0 - rounded) - half_square) + y2 * y2 * series);
}

double math_cos_pi(double x)
{
    const double pi = 3.14159265358979323846;
    if (x > 0.5) {
        return -math_cos_pi(1.0 - x); /* 1 - x is exact, as is 0.5 - x below */
    }
    return x <= 0.25 ? cosine_near_zero(pi * x) : sine_near_zero(pi * (0.5 - x));
}

double math_power(double base, int64_t exponent)
{
    double result = 1.0;
    for (double square = base; exponent > 0; exponent >>= 1) {
        if (exponent & 1) {
            result *= square;
        }
        square *= square;
    }
    return result;
}
