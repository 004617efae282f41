#include "data_prep/character_table.h"

#include <pthread.h>
#include <stdatomic.h>

#include "llmc/base/memory.h"
#include "llmc/text/utf8.h"

enum { CODE_POINTS = 0x110000 };

struct CharacterTable {
    _Atomic uint32_t *numbers; /* (CODE_POINTS) the number plus 1, 0 for a character not met yet */
    pthread_mutex_t mutex;     /* guards count */
    int count;
};

CharacterTable *character_table_create(void)
{
    CharacterTable *table = memory_alloc_zeroed(1, sizeof(*table), "characters");
    table->numbers = memory_alloc_zeroed(CODE_POINTS, sizeof(*table->numbers), "characters");
    pthread_mutex_init(&table->mutex, NULL);
    return table;
}

void character_table_free(CharacterTable *table)
{
    if (table) {
        memory_free((void *)table->numbers);
        memory_free(table);
    }
}

/* The number plus 1 of a character that was not met before; 0 where there is none left. */
static uint32_t add_character(CharacterTable *table, uint32_t code_point)
{
    pthread_mutex_lock(&table->mutex);
    uint32_t number = atomic_load(&table->numbers[code_point]); /* another thread may have met it meanwhile */
    if (number == 0 && table->count < CHARACTERS_MAX) {
        number = (uint32_t)++table->count;
        atomic_store(&table->numbers[code_point], number);
    }
    pthread_mutex_unlock(&table->mutex);
    return number;
}

int character_table_encode(CharacterTable *table, TokenBuffer *out, const char *text, size_t bytes,
                           Error *error)
{
    const uint8_t *next = (const uint8_t *)text, *end = next + bytes;
    if (out->capacity - out->count < bytes) {
        size_t capacity = out->count + bytes;
        out->tokens = memory_grow(out->tokens, out->count, capacity, sizeof(*out->tokens), "token ids");
        out->capacity = capacity;
    }
    while (next < end) {
        uint32_t code_point;
        int used = utf8_decode(&code_point, next, end);
        CHECK(used > 0, "text that was checked is no UTF-8");
        uint32_t number = atomic_load_explicit(&table->numbers[code_point], memory_order_acquire);
        if (number == 0 && (number = add_character(table, code_point)) == 0) {
            return error_set(error,
                             "--tokenizer=char: expected at most %d different characters, found more; use "
                             "--tokenizer=gpt2",
                             CHARACTERS_MAX);
        }
        out->tokens[out->count++] = (uint16_t)(number - 1);
        next += used;
    }
    return 0;
}

Characters *character_table_finish(const CharacterTable *table, uint16_t *tokens, Error *error)
{
    uint32_t *code_points = memory_alloc(CHARACTERS_MAX, sizeof(*code_points), "characters");
    int count = 0;
    for (uint32_t code_point = 0; code_point < CODE_POINTS; code_point++) {
        uint32_t number = atomic_load(&table->numbers[code_point]);
        if (number > 0) {
            tokens[number - 1] = (uint16_t)count;
            code_points[count++] = code_point;
        }
    }
    Characters *characters = characters_create(code_points, count, error);
    memory_free(code_points);
    return characters;
}
