#include "llmc/base/hash.h"

#include <string.h>

static uint64_t read_word(const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return word;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t hash_bytes(const void *data, size_t bytes, uint64_t seed)
{
    static const uint64_t odd[4] = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u,
                                    0x27D4EB2F165667C5u};
    const unsigned char *next = data;
    uint64_t lanes[4];
    for (int i = 0; i < 4; i++) {
        lanes[i] = seed + odd[i];
    }
    size_t left = bytes;
    for (; left >= 32; left -= 32, next += 32) {
        for (int i = 0; i < 4; i++) {
            lanes[i] = mix(lanes[i] ^ read_word(next + 8 * i), odd[i] ^ (lanes[i] >> 32)) + odd[(i + 1) & 3];
        }
    }
    unsigned char tail[32] = {0};
    memcpy(tail, next, left);
    for (int i = 0; i < 4; i++) {
        lanes[i] = mix(lanes[i] ^ read_word(tail + 8 * i), odd[i] ^ (lanes[i] >> 32)) + odd[(i + 2) & 3];
    }
    uint64_t hash = bytes;
    for (int i = 0; i < 4; i++) {
        hash = mix(hash ^ lanes[i], odd[i]) + lanes[i];
    }
    return mix(hash ^ odd[0], odd[1]);
}
