/* The keys met so far in one line of JSON, by hash: to find the one that comes twice. */
#ifndef DATA_PREP_JSON_KEYS_H
#define DATA_PREP_JSON_KEYS_H

#include <stddef.h>
#include <stdint.h>

/* Open addressing, 0 is empty. Zero it to begin; release when done. */
typedef struct JsonKeys {
    uint64_t *slots;
    size_t capacity;
    size_t count;
} JsonKeys;

void json_keys_release(JsonKeys *keys);

/* Returns 1, or 0 when it is there already. */
int json_keys_add(JsonKeys *keys, uint64_t hash);

/* Forget all, and give the memory of an unusual line back. */
void json_keys_clear(JsonKeys *keys);

static inline uint64_t json_hash(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

#endif
