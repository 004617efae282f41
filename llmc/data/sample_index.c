#include "llmc/data/sample_index.h"

#include "llmc/base/error.h"
#include "llmc/base/random.h"

enum { FEISTEL_ROUNDS = 8, KEYS_PER_BLOCK = 2 };

/* Keys of all rounds, drawn from (seed, epoch). */
static void draw_round_keys(uint64_t keys[FEISTEL_ROUNDS], uint64_t seed, uint64_t epoch)
{
    RandomKey key = {
        .seed = seed, .purpose = RANDOM_SHUFFLE, .step = (uint32_t)epoch, .slot = (uint32_t)(epoch >> 32)};
    for (int i = 0; i < FEISTEL_ROUNDS / KEYS_PER_BLOCK; i++) {
        uint32_t numbers[4];
        random_block(numbers, &key, (uint64_t)i);
        keys[KEYS_PER_BLOCK * i] = (uint64_t)numbers[0] << 32 | numbers[1];
        keys[KEYS_PER_BLOCK * i + 1] = (uint64_t)numbers[2] << 32 | numbers[3];
    }
}

/* Multiplication spreads low bits upwards and the shifts bring them down again, so every bit of the result
 * depends on every bit of half and key. */
static uint64_t mix(uint64_t half, uint64_t key)
{
    uint64_t x = half ^ key;
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
}

static uint64_t permute(uint64_t value, int half_bits, const uint64_t keys[FEISTEL_ROUNDS])
{
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;
    for (int round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t next = left ^ (mix(right, keys[round]) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

int64_t sample_index(uint64_t n, int64_t windows, uint64_t seed, int is_shuffled)
{
    CHECK(windows > 0, "a data set of %lld windows", (long long)windows);
    uint64_t position = n % (uint64_t)windows;
    if (!is_shuffled || windows == 1) {
        return (int64_t)position;
    }
    uint64_t keys[FEISTEL_ROUNDS];
    draw_round_keys(keys, seed, n / (uint64_t)windows);
    int half_bits = 1;
    while (half_bits < 31 && (uint64_t)windows > (uint64_t)1 << (2 * half_bits)) {
        half_bits++;
    }
    /* Less than 4 of the domain's values lie beyond each one below W, so the walk is short; it ends, because
     * the cycle through a position comes back to it. */
    do {
        position = permute(position, half_bits, keys);
    } while (position >= (uint64_t)windows);
    return (int64_t)position;
}
