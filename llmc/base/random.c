#include "llmc/base/random.h"

#include <math.h>
#include <string.h>

enum { PHILOX_ROUNDS = 10 };

void random_block(uint32_t numbers[4], const RandomKey *key, uint64_t block)
{
    uint32_t c0 = (uint32_t)block;
    uint32_t c1 = (uint32_t)(block >> 32);
    uint32_t c2 = key->step;
    uint32_t c3 = ((uint32_t)key->purpose << 24) ^ key->slot;
    uint32_t k0 = (uint32_t)key->seed;
    uint32_t k1 = (uint32_t)(key->seed >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * c0;
        uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    numbers[0] = c0;
    numbers[1] = c1;
    numbers[2] = c2;
    numbers[3] = c3;
}

/* log(x) for x in (0, 1], by the atanh series of the mantissa; error below 1e-6 relative, enough for drawing.
 */
static inline float log_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int exponent = (int)(bits >> 23) - 127;
    bits = (bits & 0x7fffffu) | 0x3f800000u;
    float mantissa;
    memcpy(&mantissa, &bits, sizeof(mantissa)); /* in [1, 2) */
    float s = (mantissa - 1.0f) / (mantissa + 1.0f);
    float s2 = s * s;
    float series = s2 * (1.0f / 3 + s2 * (1.0f / 5 + s2 * (1.0f / 7 + s2 * (1.0f / 9 + s2 * (1.0f / 11)))));
    return (float)exponent * 0.69314718f + 2.0f * (s + s * series);
}

/* sin and cos of 2 pi u for u in [0, 1): both series about the nearest quarter turn, then a swap and signs.
 */
static inline void sin_cos_turn(float *sine, float *cosine, float u)
{
    int quarter = (int)(u * 4.0f + 0.5f);
    float x = (u - (float)quarter * 0.25f) * 6.2831853f; /* |x| <= pi/4 */
    float x2 = x * x;
    float s = x * (1 + x2 * (-1.0f / 6 + x2 * (1.0f / 120 + x2 * (-1.0f / 5040 + x2 * (1.0f / 362880)))));
    float c = 1 + x2 * (-0.5f + x2 * (1.0f / 24 + x2 * (-1.0f / 720 + x2 * (1.0f / 40320))));
    float swapped_s = quarter & 1 ? c : s;
    float swapped_c = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -swapped_s : swapped_s;
    *cosine = (quarter + 1) & 2 ? -swapped_c : swapped_c;
}

enum {
    NORMAL_CHUNK = 256
}; /* elements drawn together, so that each stage is a loop the compiler can vectorise */

void random_normal(float *out, int64_t count, float standard_deviation, const RandomKey *key, uint64_t first)
{
    uint64_t chunk = first / NORMAL_CHUNK;
    int64_t done = 0;
    while (done < count) {
        uint32_t numbers[NORMAL_CHUNK];
        float normal[NORMAL_CHUNK];
        for (int i = 0; i < NORMAL_CHUNK / 4; i++) {
            random_block(&numbers[4 * i], key, chunk * (NORMAL_CHUNK / 4) + (uint64_t)i);
        }
        for (int i = 0; i < NORMAL_CHUNK / 2; i++) {
            float u = random_uniform_from(numbers[i]) + 0x1p-25f; /* never 0 */
            float radius = sqrtf(-2.0f * log_of(u)) * standard_deviation;
            float sine, cosine;
            sin_cos_turn(&sine, &cosine, random_uniform_from(numbers[i + NORMAL_CHUNK / 2]));
            normal[i] = radius * cosine;
            normal[i + NORMAL_CHUNK / 2] = radius * sine;
        }
        int64_t skip = (int64_t)(first + (uint64_t)done - chunk * NORMAL_CHUNK);
        int64_t take = NORMAL_CHUNK - skip < count - done ? NORMAL_CHUNK - skip : count - done;
        memcpy(out + done, normal + skip, (size_t)take * sizeof(float));
        done += take;
        chunk++;
    }
}
