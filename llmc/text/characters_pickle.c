/* nanoGPT's meta.pkl. A pickle is a program for a machine that can call anything; this reads the one program
 * that pickle.dump makes of three known entries, and refuses the first opcode that does not belong there. */
#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/text/characters.h"
#include "llmc/text/utf8.h"

/* Opcodes that pickle.dump writes for dictionaries, strings and small integers. */
enum {
    OP_PROTO = 0x80,
    OP_FRAME = 0x95,
    OP_EMPTY_DICT = '}',
    OP_MARK = '(',
    OP_SETITEM = 's',
    OP_SETITEMS = 'u',
    OP_STOP = '.',
    OP_MEMOIZE = 0x94,
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE = 'X',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_BININT = 'J'
};

/* Others, by the names that Python's pickletools has for them. */
static const struct {
    unsigned char opcode;
    const char *name;
} foreign_opcodes[] = {
    {'c', "GLOBAL, which loads code"},
    {0x93, "STACK_GLOBAL, which loads code"},
    {'R', "REDUCE, which runs code"},
    {'b', "BUILD, which runs code"},
    {'i', "INST, which runs code"},
    {'o', "OBJ, which runs code"},
    {0x81, "NEWOBJ, which runs code"},
    {0x92, "NEWOBJ_EX, which runs code"},
    {0x82, "EXT1, which loads code"},
    {0x83, "EXT2, which loads code"},
    {0x84, "EXT4, which loads code"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {'I', "INT"},
    {'N', "NONE"},
    {'G', "BINFLOAT"},
    {']', "EMPTY_LIST"},
    {'a', "APPEND"},
    {'e', "APPENDS"},
    {')', "EMPTY_TUPLE"},
    {'t', "TUPLE"},
    {0x8f, "EMPTY_SET"},
    {0x8d, "BINUNICODE8"},
    {0x8a, "LONG1"},
    {'C', "SHORT_BINBYTES"},
    {'B', "BINBYTES"},
    {'U', "SHORT_BINSTRING"},
    {'d', "DICT"},
    {'l', "LIST"},
};

enum {
    PROTOCOL_LEAST = 3,
    PROTOCOL_MOST = 5,
    DICTS_MAX = 3,
    STACK_MAX = 2 * CHARACTERS_MAX + 16,
    FRAME_BYTES = 8
};

typedef enum ValueKind { VALUE_MARK, VALUE_NUMBER, VALUE_CHARACTER, VALUE_NAME, VALUE_DICT } ValueKind;

/* number: the number, the character, the place of the name or of the dictionary. */
typedef struct Value {
    ValueKind kind;
    uint32_t number;
} Value;

static const char *const names[] = {"vocab_size", "itos", "stoi"};
enum { NAMES = sizeof(names) / sizeof(names[0]) };

/* Growing; entries of a dictionary are its keys and values in turns. */
typedef struct Values {
    Value *items;
    size_t count, capacity;
} Values;

typedef struct Pickle {
    const unsigned char *data;
    size_t bytes;
    size_t next;
    size_t frame_end; /* of the present frame */
    Values stack, memo, dicts[DICTS_MAX];
    uint32_t dict_count;
    Error *error;
} Pickle;

static int fail(const Pickle *pickle, size_t place, const char *expected, const char *found)
{
    return error_set(pickle->error, "expected %s, found %s at byte %zu", expected, found, place);
}

static int push(Values *values, Value value)
{
    if (values->count == values->capacity) {
        size_t capacity = values->capacity * 2 + 64;
        values->items =
            memory_grow(values->items, values->count, capacity, sizeof(*values->items), "values of a pickle");
        values->capacity = capacity;
    }
    values->items[values->count++] = value;
    return 0;
}

/* An argument of `count` bytes, little-endian. -1 with *error. */
static int take_number(uint64_t *number, Pickle *pickle, size_t count)
{
    *number = 0;
    if (pickle->bytes - pickle->next < count) {
        return fail(pickle, pickle->bytes, "a whole pickle", "its end");
    }
    for (size_t i = 0; i < count; i++) {
        *number |= (uint64_t)pickle->data[pickle->next + i] << (8 * i);
    }
    pickle->next += count;
    return 0;
}

static int take_frame(Pickle *pickle, size_t place)
{
    uint64_t bytes;
    if (take_number(&bytes, pickle, FRAME_BYTES) != 0) {
        return -1;
    }
    if (place < pickle->frame_end || bytes > pickle->bytes - pickle->next) {
        return fail(pickle, place, "a frame that fits", "another one");
    }
    pickle->frame_end = pickle->next + (size_t)bytes;
    return 0;
}

/* A character, or one of the three names. */
static int take_string(Pickle *pickle, size_t place, size_t length_bytes)
{
    uint64_t count;
    uint32_t code_point = 0;
    if (take_number(&count, pickle, length_bytes) != 0) {
        return -1;
    }
    if (count > pickle->bytes - pickle->next) {
        return fail(pickle, pickle->bytes, "a whole pickle", "its end");
    }
    const unsigned char *text = pickle->data + pickle->next;
    pickle->next += (size_t)count;
    if (count > 0 && utf8_decode(&code_point, text, text + count) == (int)count) {
        return push(&pickle->stack, (Value){VALUE_CHARACTER, code_point});
    }
    for (uint32_t i = 0; i < NAMES; i++) {
        if (count == strlen(names[i]) && memcmp(text, names[i], (size_t)count) == 0) {
            return push(&pickle->stack, (Value){VALUE_NAME, i});
        }
    }
    return fail(pickle, place, "one character, 'vocab_size', 'itos' or 'stoi'", "another string");
}

static int take_integer(Pickle *pickle, size_t place, size_t bytes)
{
    uint64_t number;
    if (take_number(&number, pickle, bytes) != 0) {
        return -1;
    }
    if (number > CHARACTERS_MAX) { /* negative ones too */
        return fail(pickle, place, "numbers up to 65536", "another one");
    }
    return push(&pickle->stack, (Value){VALUE_NUMBER, (uint32_t)number});
}

/* What is on top of the stack gets the next number of the memo, which BINPUT says once more. */
static int memoize(Pickle *pickle, size_t place, size_t index_bytes)
{
    uint64_t index = pickle->memo.count;
    if (index_bytes > 0 && take_number(&index, pickle, index_bytes) != 0) {
        return -1;
    }
    const Values *stack = &pickle->stack;
    if (index != pickle->memo.count || stack->count == 0 ||
        stack->items[stack->count - 1].kind == VALUE_MARK) {
        return fail(pickle, place, "a note of the last value under the next number", "another one");
    }
    return push(&pickle->memo, stack->items[stack->count - 1]);
}

static int take_noted(Pickle *pickle, size_t place, size_t index_bytes)
{
    uint64_t index;
    if (take_number(&index, pickle, index_bytes) != 0) {
        return -1;
    }
    if (index >= pickle->memo.count) {
        return fail(pickle, place, "a number of the memo", "one that is not there");
    }
    return push(&pickle->stack, pickle->memo.items[index]);
}

/* Move keys and values from place `first` of the stack on into the dictionary below `below`. */
static int set_items(Pickle *pickle, size_t place, size_t below, size_t first)
{
    Values *stack = &pickle->stack;
    if ((stack->count - first) % 2 != 0 || below == 0 || stack->items[below - 1].kind != VALUE_DICT) {
        return fail(pickle, place, "keys and values for a dictionary", "something else");
    }
    Values *dict = &pickle->dicts[stack->items[below - 1].number];
    for (size_t i = first; i < stack->count; i++) {
        if (stack->items[i].kind == VALUE_MARK || dict->count == 2 * CHARACTERS_MAX) {
            return fail(pickle, place, "at most 65536 keys and values", "something else");
        }
        push(dict, stack->items[i]);
    }
    stack->count = below;
    return 0;
}

static int set_items_from_mark(Pickle *pickle, size_t place)
{
    size_t mark = pickle->stack.count;
    while (mark > 0 && pickle->stack.items[mark - 1].kind != VALUE_MARK) {
        mark--;
    }
    if (mark == 0) {
        return fail(pickle, place, "a mark before the items", "none");
    }
    return set_items(pickle, place, mark - 1, mark);
}

static int add_dict(Pickle *pickle, size_t place)
{
    if (pickle->dict_count == DICTS_MAX) {
        return fail(pickle, place, "three dictionaries", "a fourth");
    }
    return push(&pickle->stack, (Value){VALUE_DICT, pickle->dict_count++});
}

static int fail_opcode(const Pickle *pickle, size_t place)
{
    char found[64];
    unsigned char opcode = pickle->data[place];
    snprintf(found, sizeof(found), "opcode 0x%02x", opcode);
    for (size_t i = 0; i < sizeof(foreign_opcodes) / sizeof(foreign_opcodes[0]); i++) {
        if (foreign_opcodes[i].opcode == opcode) {
            snprintf(found, sizeof(found), "%s", foreign_opcodes[i].name);
        }
    }
    return fail(pickle, place, "only dictionaries, strings and numbers", found);
}

/* One opcode, which lies at `place`; pickle->next is behind it. */
static int run_opcode(Pickle *pickle, size_t place)
{
    size_t count = pickle->stack.count;
    switch (pickle->data[place]) {
    case OP_FRAME:
        return take_frame(pickle, place);
    case OP_EMPTY_DICT:
        return add_dict(pickle, place);
    case OP_MARK:
        return push(&pickle->stack, (Value){VALUE_MARK, 0});
    case OP_SETITEM:
        return count < 3 ? fail(pickle, place, "a key and a value", "less")
                         : set_items(pickle, place, count - 2, count - 2);
    case OP_SETITEMS:
        return set_items_from_mark(pickle, place);
    case OP_MEMOIZE:
        return memoize(pickle, place, 0);
    case OP_BINPUT:
        return memoize(pickle, place, 1);
    case OP_LONG_BINPUT:
        return memoize(pickle, place, 4);
    case OP_BINGET:
        return take_noted(pickle, place, 1);
    case OP_LONG_BINGET:
        return take_noted(pickle, place, 4);
    case OP_SHORT_BINUNICODE:
        return take_string(pickle, place, 1);
    case OP_BINUNICODE:
        return take_string(pickle, place, 4);
    case OP_BININT1:
        return take_integer(pickle, place, 1);
    case OP_BININT2:
        return take_integer(pickle, place, 2);
    case OP_BININT:
        return take_integer(pickle, place, 4);
    default:
        return fail_opcode(pickle, place);
    }
}

/* Up to STOP, which is the last byte and leaves one dictionary. */
static int run(Pickle *pickle)
{
    if (pickle->bytes < 2 || pickle->data[0] != OP_PROTO || pickle->data[1] < PROTOCOL_LEAST ||
        pickle->data[1] > PROTOCOL_MOST) {
        return fail(pickle, 0, "a pickle of protocol 3, 4 or 5", "something else");
    }
    pickle->next = 2;
    while (pickle->next < pickle->bytes && pickle->data[pickle->next] != OP_STOP) {
        size_t place = pickle->next++;
        if (run_opcode(pickle, place) != 0) {
            return -1;
        }
        if (pickle->stack.count > STACK_MAX) {
            return fail(pickle, place, "at most 65536 characters", "more values");
        }
    }
    if (pickle->next == pickle->bytes || pickle->next + 1 < pickle->bytes) {
        return fail(pickle, pickle->next, "STOP as the last byte",
                    pickle->next == pickle->bytes ? "the end of the file" : "more behind it");
    }
    if (pickle->stack.count != 1 || pickle->stack.items[0].kind != VALUE_DICT) {
        return fail(pickle, pickle->next, "one dictionary", "something else");
    }
    return 0;
}

/* The value of one of the three names in the outermost dictionary, of this kind; NULL with *error. */
static const Value *find_entry(const Pickle *pickle, uint32_t name, ValueKind kind)
{
    const Values *dict = &pickle->dicts[pickle->stack.items[0].number];
    const Value *found = NULL;
    for (size_t i = 0; i < dict->count; i += 2) {
        if (dict->items[i].kind == VALUE_NAME && dict->items[i].number == name) {
            found = found ? NULL : &dict->items[i + 1];
        }
    }
    if (!found || found->kind != kind || dict->count != 2 * NAMES) {
        error_set(pickle->error, "expected vocab_size, itos and stoi, found another dictionary (%s)",
                  names[name]);
        return NULL;
    }
    return found;
}

/* itos and stoi are the same table, from both sides. -1 with *error. */
static int take_tables(uint32_t *code_points, const Pickle *pickle, uint32_t vocab_size, const Values *itos,
                       const Values *stoi)
{
    unsigned char seen[2][CHARACTERS_MAX / 8] = {{0}};
    if (itos->count != 2 * (size_t)vocab_size || stoi->count != 2 * (size_t)vocab_size) {
        return error_set(pickle->error, "expected itos and stoi of vocab_size=%u entries, found %zu and %zu",
                         vocab_size, itos->count / 2, stoi->count / 2);
    }
    for (size_t i = 0; i < 2 * itos->count; i += 2) {
        int is_stoi = i >= itos->count;
        const Value *pair = is_stoi ? stoi->items + (i - itos->count) : itos->items + i;
        const Value *number = &pair[is_stoi], *character = &pair[!is_stoi];
        if (number->kind != VALUE_NUMBER || character->kind != VALUE_CHARACTER ||
            number->number >= vocab_size) {
            return error_set(pickle->error, "expected characters and numbers below vocab_size=%u in %s",
                             vocab_size, is_stoi ? "stoi" : "itos");
        }
        unsigned char *byte = &seen[is_stoi][number->number / 8];
        unsigned char bit = (unsigned char)(1 << number->number % 8);
        if (*byte & bit || (is_stoi && code_points[number->number] != character->number)) {
            return error_set(pickle->error,
                             "expected stoi and itos to be the same table, found token %u differ",
                             number->number);
        }
        *byte |= bit;
        code_points[number->number] = character->number;
    }
    return 0;
}

static Characters *take_result(const Pickle *pickle)
{
    const Value *vocab_size = find_entry(pickle, 0, VALUE_NUMBER);
    const Value *itos = vocab_size ? find_entry(pickle, 1, VALUE_DICT) : NULL;
    const Value *stoi = itos ? find_entry(pickle, 2, VALUE_DICT) : NULL;
    if (!stoi) {
        return NULL;
    }
    uint32_t *code_points = memory_alloc_zeroed(CHARACTERS_MAX, sizeof(uint32_t), "vocabulary");
    int status = take_tables(code_points, pickle, vocab_size->number, &pickle->dicts[itos->number],
                             &pickle->dicts[stoi->number]);
    Characters *characters =
        status == 0 ? characters_create(code_points, (int)vocab_size->number, pickle->error) : NULL;
    memory_free(code_points);
    return characters;
}

Characters *characters_parse_pickle(const unsigned char *data, size_t bytes, Error *error)
{
    Pickle pickle = {.data = data, .bytes = bytes, .error = error};
    Characters *characters = run(&pickle) == 0 ? take_result(&pickle) : NULL;
    memory_free(pickle.stack.items);
    memory_free(pickle.memo.items);
    for (int i = 0; i < DICTS_MAX; i++) {
        memory_free(pickle.dicts[i].items);
    }
    return characters;
}
