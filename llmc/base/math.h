/* Functions that libm does not define to the last bit: its results differ between versions, and between CPUs,
 * as glibc takes variants with fused multiply-add where they run. These are made of +, -, * and / alone, each
 * of which IEEE 754 rounds to nearest, so every machine computes the same bits. sqrt, fma, floor and llrint
 * are exact everywhere: call libm's.
 *
 * Errors are in units of the result's last place (ulp), measured against libm's long double by
 * dev/test/test_math.c.  Source of the method, an argument reduced by a constant in two parts, then a series:
 * Muller, Elementary Functions, 3rd edition, chapters 3 and 11.
 */
#ifndef LLMC_BASE_MATH_H
#define LLMC_BASE_MATH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* e^x within 1 ulp; 0 below -708, where results would be subnormal; infinite above 709.7827; NaN of NaN. */
double math_exp(double x);

/* The natural logarithm within 1 ulp; -infinity of 0, NaN of what is negative. */
double math_log(double x);

/* cos(pi * x) for x in [0, 1], within 2 ulp; exactly 0 at 0.5. */
double math_cos_pi(double x);

/* base^exponent for exponent >= 0, by repeated squaring: off by at most 2^-53 * exponent, relatively. */
double math_power(double base, int64_t exponent);

#ifdef __cplusplus
}
#endif
#endif
