#include "llmc/run/hellaswag_file.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/format.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/json_memory.h"

enum {
    VERSION = 1,
    HEADER_BYTES = 1024,
    ITEM_MARK = 65535,
    ITEM_WORDS_MIN = 6 + 1 + HELLASWAG_ENDINGS * 2, /* one token each */
    FILE_BYTES_MAX = 1 << 30                        /* two hundred times HellaSwag's */
};

#define WAY_OUT "take hellaswag_val.jsonl as published, or the .bin that llm.c's dev/data/hellaswag.py makes"

static HellaSwagItem *add_item(HellaSwagSet *set)
{
    if (set->count == set->capacity) {
        int64_t capacity = set->capacity ? 2 * set->capacity : 1024;
        set->items = memory_grow(set->items, (size_t)set->count, (size_t)capacity, sizeof(*set->items),
                                 "HellaSwag items");
        set->capacity = capacity;
    }
    HellaSwagItem *item = &set->items[set->count++];
    *item = (HellaSwagItem){.first_token = (int64_t)set->tokens.count};
    return item;
}

/* ---- llm.c's file -------------------------------------------------------------------------------------- */

/* What is left of the file, in its uint16. */
typedef struct Words {
    const unsigned char *next;
    size_t count;
} Words;

static int word_at(const Words *words, size_t index)
{
    return words->next[2 * index] | words->next[2 * index + 1] << 8;
}

static int int32_at(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

static void skip_words(Words *words, size_t count)
{
    words->next += 2 * count;
    words->count -= count;
}

/* A count and its tokens, which must lie in the item. */
static int take_tokens(int32_t *count, HellaSwagSet *set, Words *item, const char *what, Error *error)
{
    size_t tokens = item->count > 0 ? (size_t)word_at(item, 0) : 0;
    if (tokens == 0 || tokens > item->count - 1) {
        return error_set(error, "%s has %zu tokens, and the item holds %zu more; the file is damaged", what,
                         tokens, item->count > 0 ? item->count - 1 : 0);
    }
    TokenBuffer *buffer = &set->tokens;
    if (buffer->count + tokens > buffer->capacity) {
        size_t capacity = 2 * buffer->capacity + tokens;
        buffer->tokens =
            memory_grow(buffer->tokens, buffer->count, capacity, sizeof(*buffer->tokens), "HellaSwag tokens");
        buffer->capacity = capacity;
    }
    for (size_t i = 0; i < tokens; i++) {
        buffer->tokens[buffer->count++] = (uint16_t)word_at(item, 1 + i);
    }
    *count = (int32_t)tokens;
    skip_words(item, 1 + tokens);
    return 0;
}

/* Item number `index`, with which the words go on. */
static int take_item(HellaSwagSet *set, Words *words, int index, int longest_bytes, Error *error)
{
    if (words->count < ITEM_WORDS_MIN) {
        return error_set(error, "truncated: the file ends there; copy it again");
    }
    int mark = word_at(words, 0), bytes = word_at(words, 1), number = word_at(words, 2);
    int label = word_at(words, 3), endings = word_at(words, 4);
    if (mark != ITEM_MARK || number != (index & 0xffff)) {
        return error_set(error,
                         "expected the mark %d and the number %d, found %d and %d; the file is damaged",
                         ITEM_MARK, index & 0xffff, mark, number);
    }
    if (bytes % 2 != 0 || bytes > longest_bytes || bytes < 2 * ITEM_WORDS_MIN) {
        return error_set(error,
                         "expected an even number of bytes from %d to %d, found %d; the file is damaged",
                         2 * ITEM_WORDS_MIN, longest_bytes, bytes);
    }
    if (label >= HELLASWAG_ENDINGS || endings != HELLASWAG_ENDINGS) {
        return error_set(error, "expected a label from 0 to 3 of 4 endings, found label %d of %d endings",
                         label, endings);
    }
    if ((size_t)bytes / 2 > words->count) {
        return error_set(error, "truncated: the file ends in it; copy it again");
    }
    static const char *const names[] = {"ending 0", "ending 1", "ending 2", "ending 3"};
    Words own = {words->next, (size_t)bytes / 2};
    HellaSwagItem *item = add_item(set);
    item->label = label;
    skip_words(words, own.count);
    skip_words(&own, 5);
    int status = take_tokens(&item->context_tokens, set, &own, "the context", error);
    for (int e = 0; e < HELLASWAG_ENDINGS && status == 0; e++) {
        status = take_tokens(&item->ending_tokens[e], set, &own, names[e], error);
    }
    if (status == 0 && own.count > 0) {
        return error_set(error, "%zu tokens are left over; the file is damaged", own.count);
    }
    return status;
}

static int parse_llmc(HellaSwagSet *set, const char *bytes, size_t count, const char *path, Error *error)
{
    if (count < HEADER_BYTES) {
        return error_set(error, "%s: truncated: expected a header of %d bytes, found %zu; copy it again",
                         path, HEADER_BYTES, count);
    }
    int version = int32_at(bytes + 4), items = int32_at(bytes + 8), longest_bytes = int32_at(bytes + 12);
    if (version != VERSION) {
        return error_set(error,
                         "%s: expected version %d of llm.c's HellaSwag file, found version %d; " WAY_OUT,
                         path, VERSION, version);
    }
    if (items < 1) {
        return error_set(error, "%s: expected one item or more, found %d in the header; " WAY_OUT, path,
                         items);
    }
    Words words = {(const unsigned char *)bytes + HEADER_BYTES, (count - HEADER_BYTES) / 2};
    for (int i = 0; i < items; i++) {
        if (take_item(set, &words, i, longest_bytes, error) != 0) {
            return error_prefix(error, "%s: item %d of 0 .. %d", path, i, items - 1);
        }
    }
    if (words.count > 0 || count % 2 != 0) {
        return error_set(error,
                         "%s: too long: header promises %d items, after which %zu bytes follow; " WAY_OUT,
                         path, items, 2 * words.count + count % 2);
    }
    return 0;
}

/* ---- JSON lines ---------------------------------------------------------------------------------------- */

/* What a value is, for a message. */
static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null"};
    return value ? names[json_typeof(value)] : "none";
}

/* An integer as published; Hugging Face's copy of the data has it as a string of one digit. */
static int read_label(int32_t *label, const json_t *value, Error *error)
{
    const char *text = json_string_value(value);
    json_int_t found = json_is_integer(value) ? json_integer_value(value) : -1;
    if (text && text[0] >= '0' && text[0] <= '9' && text[1] == '\0') {
        found = text[0] - '0';
    }
    if (found >= 0 && found < HELLASWAG_ENDINGS) {
        *label = (int32_t)found;
        return 0;
    }
    if (json_is_integer(value)) {
        return error_set(error, "label: expected 0 to 3, found %" JSON_INTEGER_FORMAT, found);
    }
    return error_set(error, "label: expected 0 to 3, found %s%s", text ? "another string" : type_name(value),
                     value ? "" : " (HellaSwag's test split has no labels: take hellaswag_val.jsonl)");
}

static int32_t encode(HellaSwagSet *set, Encoder *encoder, const char *text, size_t bytes)
{
    size_t before = set->tokens.count;
    encoder_encode(encoder, &set->tokens, text, bytes);
    return (int32_t)(set->tokens.count - before);
}

/* With the space that parts it from the context, which the tokenizer makes part of its first word. */
static int32_t encode_ending(HellaSwagSet *set, Encoder *encoder, const json_t *ending)
{
    size_t bytes = json_string_length(ending);
    char *text = memory_alloc(bytes + 1, 1, "an ending");
    text[0] = ' ';
    memcpy(text + 1, json_string_value(ending), bytes);
    int32_t count = encode(set, encoder, text, bytes + 1);
    memory_free(text);
    return count;
}

static int read_item(HellaSwagSet *set, Encoder *encoder, const json_t *object, Error *error)
{
    const json_t *context = json_object_get(object, "ctx"), *endings = json_object_get(object, "endings");
    int32_t label = -1;
    if (!json_is_object(object)) {
        return error_set(error, "expected an object with ctx, endings and label, found %s",
                         type_name(object));
    }
    if (!json_is_string(context) || json_string_length(context) == 0) {
        return error_set(error, "ctx: expected text, found %s",
                         json_is_string(context) ? "an empty string" : type_name(context));
    }
    if (json_array_size(endings) != HELLASWAG_ENDINGS) {
        return json_is_array(endings)
                   ? error_set(error, "endings: expected 4, found %zu", json_array_size(endings))
                   : error_set(error, "endings: expected an array of 4 strings, found %s",
                               type_name(endings));
    }
    for (size_t e = 0; e < HELLASWAG_ENDINGS; e++) {
        const json_t *ending = json_array_get(endings, e);
        if (!json_is_string(ending)) {
            return error_set(error, "endings: expected 4 strings, found %s", type_name(ending));
        }
    }
    if (read_label(&label, json_object_get(object, "label"), error) != 0) {
        return -1;
    }
    HellaSwagItem *item = add_item(set);
    item->label = label;
    item->context_tokens = encode(set, encoder, json_string_value(context), json_string_length(context));
    for (size_t e = 0; e < HELLASWAG_ENDINGS; e++) {
        item->ending_tokens[e] = encode_ending(set, encoder, json_array_get(endings, e));
    }
    return 0;
}

static int parse_line(HellaSwagSet *set, Encoder *encoder, const char *line, size_t bytes, Error *error)
{
    json_error_t reason;
    json_memory_watch();
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &reason);
    if (!object) {
        format_printable(reason.text);
        return json_memory_failed() ? error_set(error, "out of memory")
                                    : error_set(error, "not JSON: %s (column %d); copy the file again",
                                                reason.text, reason.column);
    }
    int status = read_item(set, encoder, object, error);
    json_decref(object);
    return status;
}

static int parse_json_lines(HellaSwagSet *set, Encoder *encoder, const char *bytes, size_t count,
                            const char *path, Error *error)
{
    int64_t number = 0;
    for (size_t begin = 0; begin < count; number++) {
        const char *line = bytes + begin, *end = memchr(line, '\n', count - begin);
        size_t line_bytes = end ? (size_t)(end - line) : count - begin;
        begin += line_bytes + 1;
        size_t blanks = 0;
        while (blanks < line_bytes && strchr(" \t\r", line[blanks]) && line[blanks]) {
            blanks++;
        }
        if (blanks < line_bytes && parse_line(set, encoder, line, line_bytes, error) != 0) {
            return error_prefix(error, "%s:%" PRId64, path, number + 1);
        }
    }
    return 0;
}

/* ---- files --------------------------------------------------------------------------------------------- */

/* Neither of the two: what it is instead, where that can be told. */
static int refuse_foreign(const char *bytes, size_t count, const char *path, Error *error)
{
    static const struct {
        int magic;
        const char *name;
    } others[] = {{20240520, "a shard of tokens"},
                  {20240326, "an llm.c model"},
                  {0x08088b1f, "a gzip archive (gunzip it)"},
                  {0x04034b50, "a zip archive (unzip it)"},
                  {0x31524150, "a Parquet file"}};
    int magic = count >= 4 ? int32_at(bytes) : 0;
    const char *found = count == 0 ? "an empty file" : bytes[0] == '[' ? "a JSON array" : "another file";
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        found = magic == others[i].magic ? others[i].name : found;
    }
    return error_set(
        error, "%s: expected HellaSwag, as lines of JSON or as llm.c's file (magic %d), found %s; " WAY_OUT,
        path, HELLASWAG_MAGIC, found);
}

int hellaswag_parse(HellaSwagSet *set, Encoder *encoder, const char *bytes, size_t count, const char *path,
                    Error *error)
{
    size_t begin = 0;
    int status;
    while (begin < count && (bytes[begin] == ' ' || bytes[begin] == '\n' || bytes[begin] == '\r')) {
        begin++;
    }
    if (count >= 4 && int32_at(bytes) == HELLASWAG_MAGIC) {
        status = parse_llmc(set, bytes, count, path, error);
    } else if (begin < count && bytes[begin] == '{') {
        status = parse_json_lines(set, encoder, bytes, count, path, error);
    } else {
        status = refuse_foreign(bytes, count, path, error);
    }
    if (status != 0) {
        hellaswag_release(set);
    }
    return status;
}

static int check_tokens(const HellaSwagSet *set, const char *path, int vocab_size, Error *error)
{
    for (int64_t i = 0, t = 0; i < set->count; i++) {
        int64_t end = i + 1 < set->count ? set->items[i + 1].first_token : (int64_t)set->tokens.count;
        for (; t < end; t++) {
            if (set->tokens.tokens[t] >= vocab_size) {
                return error_set(error,
                                 "%s: item %" PRId64 " has token %d: expected tokens below vocab_size=%d; "
                                 "HellaSwag is for models with GPT-2's vocabulary",
                                 path, i, set->tokens.tokens[t], vocab_size);
            }
        }
    }
    return 0;
}

int hellaswag_open(HellaSwagSet *set, const char *path, int vocab_size, Error *error)
{
    size_t count;
    char *bytes = file_read(path, FILE_BYTES_MAX, &count, error);
    int status = bytes ? 0 : -1;
    if (status == 0) {
        Tokenizer *tokenizer = tokenizer_create();
        Encoder *encoder = encoder_create(tokenizer);
        status = hellaswag_parse(set, encoder, bytes, count, path, error);
        encoder_free(encoder);
        tokenizer_free(tokenizer);
        memory_free(bytes);
    }
    if (status == 0) {
        status = check_tokens(set, path, vocab_size, error);
    }
    if (status != 0) {
        hellaswag_release(set);
        return error_prefix(error, "hellaswag");
    }
    return 0;
}

void hellaswag_release(HellaSwagSet *set)
{
    memory_free(set->items);
    token_buffer_release(&set->tokens);
    *set = (HellaSwagSet){0};
}

uint64_t hellaswag_hash(const HellaSwagSet *set)
{
    uint64_t hash = hash_bytes(set->tokens.tokens, set->tokens.count * sizeof(*set->tokens.tokens), 0);
    for (int64_t i = 0; i < set->count; i++) {
        const HellaSwagItem *item = &set->items[i];
        const int32_t numbers[] = {item->context_tokens,   item->ending_tokens[0], item->ending_tokens[1],
                                   item->ending_tokens[2], item->ending_tokens[3], item->label};
        hash = hash_bytes(numbers, sizeof(numbers), hash);
    }
    return hash;
}
