#include "llmc/base/numpy_random.h"

enum { POOL_WORDS = 4, STATE_WORDS = 8, SHIFT = 16 };

/* ---- the seed -------------------------------------------------------------------------------------------*/

static uint32_t hash_word(uint32_t word, uint32_t *constant)
{
    word ^= *constant;
    *constant *= 0x931e8875u;
    word *= *constant;
    return word ^ word >> SHIFT;
}

static uint32_t mix_words(uint32_t x, uint32_t y)
{
    uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
    return mixed ^ mixed >> SHIFT;
}

/* SeedSequence(seed).generate_state(8) */
static void spread_seed(uint32_t words[STATE_WORDS], uint64_t seed)
{
    uint32_t pool[POOL_WORDS] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t constant = 0x43b0d7e5u;
    for (int i = 0; i < POOL_WORDS; i++) {
        pool[i] = hash_word(pool[i], &constant);
    }
    for (int from = 0; from < POOL_WORDS; from++) {
        for (int to = 0; to < POOL_WORDS; to++) {
            if (from != to) {
                pool[to] = mix_words(pool[to], hash_word(pool[from], &constant));
            }
        }
    }
    constant = 0x8b51f9ddu;
    for (int i = 0; i < STATE_WORDS; i++) {
        uint32_t word = pool[i % POOL_WORDS] ^ constant;
        constant *= 0x58f38dedu;
        word *= constant;
        words[i] = word ^ word >> SHIFT;
    }
}

/* ---- PCG64 ----------------------------------------------------------------------------------------------*/

/* *sum = a * b + c, all of 128 bits, high half first. */
static void multiply_add(uint64_t sum[2], const uint64_t a[2], const uint64_t b[2], const uint64_t c[2])
{
    __extension__ typedef unsigned __int128 Wide;
    Wide low = (Wide)a[1] * b[1] + c[1];
    uint64_t high = (uint64_t)(low >> 64) + a[0] * b[1] + a[1] * b[0] + c[0];
    sum[0] = high;
    sum[1] = (uint64_t)low;
}

static void step(NumpyRandom *random)
{
    static const uint64_t multiplier[2] = {2549297995355413924u, 4865540595714422341u};
    multiply_add(random->state, random->state, multiplier, random->increment);
}

void numpy_random_init(NumpyRandom *random, uint64_t seed)
{
    uint32_t words[STATE_WORDS];
    uint64_t halves[STATE_WORDS / 2];
    spread_seed(words, seed);
    for (int i = 0; i < STATE_WORDS / 2; i++) {
        halves[i] = words[2 * i] | (uint64_t)words[2 * i + 1] << 32;
    }
    *random = (NumpyRandom){
        .increment = {halves[2] << 1 | halves[3] >> 63, halves[3] << 1 | 1},
    };
    step(random);
    static const uint64_t one[2] = {0, 1};
    multiply_add(random->state, random->state, one, halves);
    step(random);
}

uint64_t numpy_random_next(NumpyRandom *random)
{
    step(random);
    uint64_t mixed = random->state[0] ^ random->state[1];
    unsigned rotation = (unsigned)(random->state[0] >> 58);
    return mixed >> rotation | mixed << (-rotation & 63);
}

/* ---- permutations ---------------------------------------------------------------------------------------*/

static uint32_t next_half(NumpyRandom *random)
{
    if (random->has_kept) {
        random->has_kept = 0;
        return random->kept;
    }
    uint64_t both = numpy_random_next(random);
    random->kept = (uint32_t)(both >> 32);
    random->has_kept = 1;
    return (uint32_t)both;
}

/* Uniform in 0 .. max: numbers of as many bits as max has, until one is not above it. */
static uint32_t next_up_to(NumpyRandom *random, uint32_t max)
{
    uint32_t mask = max;
    for (int shift = 1; shift < 32; shift *= 2) {
        mask |= mask >> shift;
    }
    uint32_t number;
    do {
        number = next_half(random) & mask;
    } while (number > max);
    return number;
}

void numpy_permutation(uint32_t *order, uint32_t count, uint64_t seed)
{
    NumpyRandom random;
    numpy_random_init(&random, seed);
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = next_up_to(&random, i);
        uint32_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}
