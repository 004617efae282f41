#include "llmc/text/characters.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/text/utf8.h"

/* A character and its token, in the order of characters. */
typedef struct CharacterEntry {
    uint32_t code_point;
    int token;
} CharacterEntry;

struct Characters {
    int count;
    uint32_t *code_points;   /* (V) by token */
    CharacterEntry *entries; /* (V) sorted */
};

static int compare_entries(const void *a, const void *b)
{
    uint32_t left = ((const CharacterEntry *)a)->code_point, right = ((const CharacterEntry *)b)->code_point;
    return left < right ? -1 : left > right;
}

static int is_character(uint32_t code_point)
{
    return code_point <= 0x10ffff && (code_point < 0xd800 || code_point > 0xdfff);
}

Characters *characters_create(const uint32_t *code_points, int count, Error *error)
{
    if (count < 1 || count > CHARACTERS_MAX) {
        error_set(error, "expected 1 to %d characters, found %d", CHARACTERS_MAX, count);
        return NULL;
    }
    Characters *characters = memory_alloc_zeroed(1, sizeof(*characters), "vocabulary");
    characters->count = count;
    characters->code_points = memory_alloc((size_t)count, sizeof(uint32_t), "vocabulary");
    characters->entries = memory_alloc((size_t)count, sizeof(CharacterEntry), "vocabulary");
    memcpy(characters->code_points, code_points, (size_t)count * sizeof(uint32_t));
    int is_good = 1;
    for (int i = 0; i < count && is_good; i++) {
        characters->entries[i] = (CharacterEntry){.code_point = code_points[i], .token = i};
        is_good = is_character(code_points[i]);
        if (!is_good) {
            error_set(error, "expected characters, found U+%04" PRIX32 ", which is none", code_points[i]);
        }
    }
    if (is_good) {
        qsort(characters->entries, (size_t)count, sizeof(CharacterEntry), compare_entries);
    }
    for (int i = 1; i < count && is_good; i++) {
        is_good = characters->entries[i].code_point != characters->entries[i - 1].code_point;
        if (!is_good) {
            error_set(error, "expected each character once, found U+%04" PRIX32 " twice",
                      characters->entries[i].code_point);
        }
    }
    if (!is_good) {
        characters_free(characters);
        return NULL;
    }
    return characters;
}

void characters_free(Characters *characters)
{
    if (characters) {
        memory_free(characters->code_points);
        memory_free(characters->entries);
        memory_free(characters);
    }
}

Characters *characters_copy(const Characters *characters)
{
    return characters ? characters_create(characters->code_points, characters->count, NULL) : NULL;
}

int characters_count(const Characters *characters)
{
    return characters->count;
}

uint32_t characters_code_point(const Characters *characters, int token)
{
    CHECK(token >= 0 && token < characters->count, "character %d of %d", token, characters->count);
    return characters->code_points[token];
}

int characters_find(const Characters *characters, uint32_t code_point)
{
    CharacterEntry sought = {.code_point = code_point};
    const CharacterEntry *entry = bsearch(&sought, characters->entries, (size_t)characters->count,
                                          sizeof(CharacterEntry), compare_entries);
    return entry ? entry->token : -1;
}

static int put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    int bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = bytes - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)(leads[bytes] | c);
    return bytes;
}

int characters_token_bytes(const Characters *characters, int token, char bytes[CHARACTER_BYTES_MAX])
{
    return token >= 0 && token < characters->count ? put_utf8(bytes, characters->code_points[token]) : 0;
}

/* "the character 'x' (U+0078)"; a character that moves the cursor is not printed. */
static void describe(char *out, size_t out_bytes, uint32_t code_point)
{
    char text[CHARACTER_BYTES_MAX + 1] = "";
    if (code_point > ' ' && (code_point < 0x7f || code_point > 0xa0)) {
        text[put_utf8(text, code_point)] = '\0';
    }
    snprintf(out, out_bytes, "%s%s%sU+%04" PRIX32 "%s", text[0] ? "'" : "", text, text[0] ? "' (" : "",
             code_point, text[0] ? ")" : "");
}

int64_t characters_encode(int32_t *tokens, const Characters *characters, const char *text, size_t bytes,
                          Error *error)
{
    const uint8_t *next = (const uint8_t *)text, *end = next + bytes;
    int64_t count = 0;
    while (next < end) {
        uint32_t code_point;
        int used = utf8_decode(&code_point, next, end);
        if (used == 0) {
            return error_set(error, "expected UTF-8 text, found byte 0x%02x at byte %td", *next,
                             next - (const uint8_t *)text);
        }
        int token = characters_find(characters, code_point);
        if (token < 0) {
            char what[64];
            describe(what, sizeof(what), code_point);
            return error_set(error, "expected characters of the vocabulary of %d, found %s",
                             characters->count, what);
        }
        tokens[count++] = token;
        next += used;
    }
    return count;
}

int characters_are_same(const Characters *a, const Characters *b)
{
    if (!a || !b) {
        return a == b;
    }
    return a->count == b->count &&
           memcmp(a->code_points, b->code_points, (size_t)a->count * sizeof(uint32_t)) == 0;
}

uint64_t characters_hash(const Characters *characters)
{
    return characters ? hash_bytes(characters->code_points, (size_t)characters->count * sizeof(uint32_t), 0)
                      : 0;
}

/* ---- characters.json ----------------------------------------------------------------------------------- */

static const char json_begin[] = "{\"tokenizer\":\"char\",\"characters\":[";
static const char json_end[] = "]}\n";

int character_print_json(char *out, uint32_t code_point)
{
    if (code_point < 0x20) {
        static const char names[] = "btn\1fr"; /* of U+0008 .. U+000D; U+000B has none */
        int has_name = code_point >= 8 && code_point <= 13 && code_point != 11;
        return has_name ? sprintf(out, "\"\\%c\"", names[code_point - 8])
                        : sprintf(out, "\"\\u%04" PRIx32 "\"", code_point);
    }
    int count = 0;
    out[count++] = '"';
    if (code_point == '"' || code_point == '\\') {
        out[count++] = '\\';
    }
    count += put_utf8(out + count, code_point);
    out[count++] = '"';
    out[count] = '\0';
    return count;
}

char *characters_to_json(const Characters *characters)
{
    size_t room =
        sizeof(json_begin) + sizeof(json_end) + (size_t)characters->count * (CHARACTER_JSON_BYTES + 1) + 1;
    char *text = memory_alloc(room, 1, "vocabulary");
    char *next = text + sprintf(text, "%s", json_begin);
    for (int i = 0; i < characters->count; i++) {
        if (i > 0) {
            *next++ = ',';
        }
        next += character_print_json(next, characters->code_points[i]);
    }
    sprintf(next, "%s", json_end);
    return text;
}

/* A string of one character. -1 with *error. */
static int take_character(uint32_t *code_point, const json_t *value, size_t place, Error *error)
{
    const char *text = json_string_value(value);
    size_t bytes = text ? json_string_length(value) : 0;
    const uint8_t *begin = (const uint8_t *)text;
    if (bytes == 0 || utf8_decode(code_point, begin, begin + bytes) != (int)bytes) {
        return error_set(error, "expected a string of one character for token %zu, found %s", place,
                         !text   ? "another kind of value"
                         : bytes ? "another string"
                                 : "an empty one");
    }
    return 0;
}

static Characters *take_characters(const json_t *array, Error *error)
{
    size_t count = json_array_size(array);
    if (count < 1 || count > CHARACTERS_MAX) {
        error_set(error, "expected 1 to %d characters, found %zu", CHARACTERS_MAX, count);
        return NULL;
    }
    uint32_t *code_points = memory_alloc(count, sizeof(uint32_t), "vocabulary");
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        status = take_character(&code_points[i], json_array_get(array, i), i, error);
    }
    Characters *characters = status == 0 ? characters_create(code_points, (int)count, error) : NULL;
    memory_free(code_points);
    return characters;
}

Characters *characters_parse_json(const char *text, size_t bytes, Error *error)
{
    json_error_t why;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    const json_t *tokenizer = json_object_get(root, "tokenizer");
    const char *kind = json_string_value(tokenizer);
    const json_t *array = json_object_get(root, "characters");
    Characters *characters = NULL;
    if (!root) {
        error_set(error, "expected a vocabulary as JSON, found line %d: %.100s", why.line, why.text);
    } else if (!kind || !json_is_array(array) || json_object_size(root) != 2) {
        error_set(error, "expected an object of \"tokenizer\" and \"characters\", found another one");
    } else if (json_string_length(tokenizer) != 4 || strcmp(kind, "char") != 0) {
        error_set(error, "tokenizer: expected \"char\", found \"%.40s\"", kind);
    } else {
        characters = take_characters(array, error);
    }
    json_decref(root);
    return characters;
}
