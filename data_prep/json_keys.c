#include "data_prep/json_keys.h"

#include <string.h>

#include "llmc/base/memory.h"

enum { CAPACITY_FIRST = 64, CAPACITY_KEPT = 4096 };

void json_keys_release(JsonKeys *keys)
{
    memory_free(keys->slots);
    *keys = (JsonKeys){0};
}

/* The slot that holds the hash, or the empty one where it belongs. */
static uint64_t *find(const JsonKeys *keys, uint64_t hash)
{
    size_t slot = hash & (keys->capacity - 1);
    while (keys->slots[slot] != 0 && keys->slots[slot] != hash) {
        slot = (slot + 1) & (keys->capacity - 1);
    }
    return &keys->slots[slot];
}

static void grow(JsonKeys *keys)
{
    JsonKeys grown = {.count = keys->count};
    grown.capacity = keys->capacity ? keys->capacity * 2 : CAPACITY_FIRST;
    grown.slots = memory_alloc_zeroed(grown.capacity, sizeof(*grown.slots), "keys of a line");
    for (size_t i = 0; i < keys->capacity; i++) {
        if (keys->slots[i] != 0) {
            *find(&grown, keys->slots[i]) = keys->slots[i];
        }
    }
    memory_free(keys->slots);
    *keys = grown;
}

int json_keys_add(JsonKeys *keys, uint64_t hash)
{
    hash += hash == 0;
    if (keys->count * 2 >= keys->capacity) {
        grow(keys);
    }
    uint64_t *slot = find(keys, hash);
    if (*slot != 0) {
        return 0;
    }
    *slot = hash;
    keys->count++;
    return 1;
}

void json_keys_clear(JsonKeys *keys)
{
    if (keys->capacity > CAPACITY_KEPT) {
        json_keys_release(keys);
    } else if (keys->count > 0) {
        memset(keys->slots, 0, keys->capacity * sizeof(*keys->slots));
        keys->count = 0;
    }
}
