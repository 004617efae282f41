#include "data_prep/json_lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data_prep/json_scan.h"

/* What is expected next. */
typedef enum JsonState {
    STATE_LINE,         /* an object, or an empty line */
    STATE_KEY_OR_END,   /* after { */
    STATE_KEY,          /* after a comma in an object */
    STATE_COLON,        /* after a key */
    STATE_VALUE,        /* after a colon, or a comma in an array */
    STATE_VALUE_OR_END, /* after [ */
    STATE_COMMA_OR_END, /* after a value */
    STATE_STRING,
    STATE_ESCAPE,        /* after a backslash */
    STATE_ESCAPE_DIGITS, /* after \u */
    STATE_LOW_SURROGATE, /* a backslash must follow the first half of a pair */
    STATE_LOW_SURROGATE_U,
    STATE_NUMBER,
    STATE_LITERAL,
    STATE_LINE_END
} JsonState;

typedef enum StringUse { STRING_KEY, STRING_TEXT, STRING_SKIPPED } StringUse;

enum { UTF8_BYTES_MAX = 4, KEY_TEXT_BYTES = 192 };

static const char *const literals[] = {"true", "false", "null"};

void json_lines_init(JsonLines *parser, const char *text_key)
{
    *parser =
        (JsonLines){.line = 1, .state = STATE_LINE, .text_key = text_key, .text_key_bytes = strlen(text_key)};
}

void json_lines_release(JsonLines *parser)
{
    json_keys_release(&parser->keys);
}

static JsonEvent fail(const JsonLines *parser, Error *error, const char *expected, const char *found)
{
    error_set(error, "line %" PRId64 ": expected %s, found %s", parser->line, expected, found);
    return JSON_ERROR;
}

static JsonEvent fail_at(const JsonLines *parser, Error *error, const char *expected, char c)
{
    char found[32];
    if (c == '\n') {
        snprintf(found, sizeof(found), "the end of the line");
    } else if (c > ' ' && c < 0x7f) {
        snprintf(found, sizeof(found), "'%c'", c);
    } else {
        snprintf(found, sizeof(found), "byte 0x%02x", (unsigned char)c);
    }
    return fail(parser, error, expected, found);
}

/* "BEFORE"text"AFTER", where text is the key of the document: for errors. */
static const char *about_key(char out[KEY_TEXT_BYTES], const JsonLines *parser, const char *before,
                             const char *after)
{
    snprintf(out, KEY_TEXT_BYTES, "%s\"%.100s\"%s", before, parser->text_key, after);
    return out;
}

/* The key that has just ended is new in its object. Returns 0, or -1 with *error set. */
static int take_key(JsonLines *parser, Error *error)
{
    int is_text = parser->depth == 1 && parser->key_is_text && parser->key_count == parser->text_key_bytes;
    uint64_t hash = json_hash(parser->key_hash, parser->object_serial[parser->depth]);
    if (parser->keys.count == JSON_LINE_KEYS_MAX) {
        fail(parser, error, "fewer keys in one line", "more than a million");
        return -1;
    }
    if (!json_keys_add(&parser->keys, hash)) {
        char twice[KEY_TEXT_BYTES];
        fail(parser, error, "each key once in its object",
             is_text ? about_key(twice, parser, "", " twice") : "a key twice");
        return -1;
    }
    parser->string_is_value_of_text = is_text;
    return 0;
}

/* A byte of the string that is read: part of a key, text, or nothing of interest. */
static void put_byte(JsonLines *parser, char **output, uint8_t byte)
{
    if (parser->string_use == STRING_TEXT) {
        *(*output)++ = (char)byte;
    } else if (parser->string_use == STRING_KEY) {
        parser->key_hash = json_hash(parser->key_hash, byte);
        parser->key_is_text &= parser->key_count < parser->text_key_bytes &&
                               byte == (uint8_t)parser->text_key[parser->key_count];
        parser->key_count++;
    }
}

static void put_character(JsonLines *parser, char **output, uint32_t c)
{
    if (c < 0x80) {
        put_byte(parser, output, (uint8_t)c);
    } else if (c < 0x800) {
        put_byte(parser, output, (uint8_t)(0xc0 | c >> 6));
        put_byte(parser, output, (uint8_t)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        put_byte(parser, output, (uint8_t)(0xe0 | c >> 12));
        put_byte(parser, output, (uint8_t)(0x80 | (c >> 6 & 0x3f)));
        put_byte(parser, output, (uint8_t)(0x80 | (c & 0x3f)));
    } else {
        put_byte(parser, output, (uint8_t)(0xf0 | c >> 18));
        put_byte(parser, output, (uint8_t)(0x80 | (c >> 12 & 0x3f)));
        put_byte(parser, output, (uint8_t)(0x80 | (c >> 6 & 0x3f)));
        put_byte(parser, output, (uint8_t)(0x80 | (c & 0x3f)));
    }
}

static int push(JsonLines *parser, int is_object, Error *error)
{
    if (parser->depth == JSON_DEPTH_MAX) {
        fail(parser, error, "at most 1000 objects and arrays inside each other", "more");
        return -1;
    }
    parser->depth++;
    parser->is_object[parser->depth] = (uint8_t)is_object;
    if (is_object) {
        parser->object_serial[parser->depth] = ++parser->objects_count;
    }
    parser->state = is_object ? STATE_KEY_OR_END : STATE_VALUE_OR_END;
    return 0;
}

static void value_ended(JsonLines *parser)
{
    parser->state = parser->depth > 0 ? STATE_COMMA_OR_END : STATE_LINE_END;
}

static int pop(JsonLines *parser, Error *error)
{
    parser->depth--;
    value_ended(parser);
    if (parser->depth == 0 && !parser->has_text) {
        char expected[KEY_TEXT_BYTES];
        fail(parser, error, about_key(expected, parser, "an object with ", ""), "none");
        return -1;
    }
    return 0;
}

static void begin_string(JsonLines *parser, StringUse use)
{
    parser->state = STATE_STRING;
    parser->string_use = use;
    parser->key_hash = 1; /* not 0, so that a NUL changes it */
    parser->key_count = 0;
    parser->key_is_text = 1;
}

/* The first character of a value. Returns an event, or JSON_NEED_INPUT to go on. */
static JsonEvent begin_value(JsonLines *parser, char c, Error *error)
{
    int is_text = parser->string_is_value_of_text;
    parser->string_is_value_of_text = 0;
    if (c == '"') {
        begin_string(parser, is_text ? STRING_TEXT : STRING_SKIPPED);
        parser->has_text |= is_text;
        return is_text ? JSON_TEXT_BEGINS : JSON_NEED_INPUT;
    }
    if (is_text) {
        char expected[KEY_TEXT_BYTES];
        return fail_at(parser, error, about_key(expected, parser, "a string as value of ", ""), c);
    }
    if (c == '{' || c == '[') {
        return push(parser, c == '{', error) == 0 ? JSON_NEED_INPUT : JSON_ERROR;
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        parser->state = STATE_NUMBER;
        parser->number_state = c == '-' ? NUMBER_MINUS : c == '0' ? NUMBER_ZERO : NUMBER_DIGITS;
        return JSON_NEED_INPUT;
    }
    if (c == 't' || c == 'f' || c == 'n') {
        parser->state = STATE_LITERAL;
        parser->token[0] = c;
        parser->token_bytes = 1;
        return JSON_NEED_INPUT;
    }
    return fail_at(parser, error, "a value", c);
}

/* A number goes on or ends before c; *used tells whether c belongs to it. */
static JsonEvent continue_number(JsonLines *parser, char c, int *used, Error *error)
{
    NumberState next = json_number_after((NumberState)parser->number_state, c);
    *used = next != NUMBER_OVER;
    if (*used) {
        parser->number_state = (int)next;
        return JSON_NEED_INPUT;
    }
    int may_end = parser->number_state == NUMBER_ZERO || parser->number_state == NUMBER_DIGITS ||
                  parser->number_state == NUMBER_FRACTION || parser->number_state == NUMBER_EXPONENT;
    if (!may_end) {
        return fail_at(parser, error, "a digit", c);
    }
    value_ended(parser);
    return JSON_NEED_INPUT;
}

static JsonEvent continue_literal(JsonLines *parser, char c, Error *error)
{
    parser->token[parser->token_bytes++] = c;
    for (size_t i = 0; i < sizeof(literals) / sizeof(literals[0]); i++) {
        if (strncmp(literals[i], parser->token, (size_t)parser->token_bytes) == 0) {
            if (literals[i][parser->token_bytes] == '\0') {
                value_ended(parser);
            }
            return JSON_NEED_INPUT;
        }
    }
    return fail_at(parser, error, "true, false or null", c);
}

static JsonEvent take_escape(JsonLines *parser, char c, char **output, Error *error)
{
    static const char names[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const char *name = c ? strchr(names, c) : NULL;
    parser->state = STATE_STRING;
    if (name) {
        put_byte(parser, output, (uint8_t)meanings[name - names]);
        return JSON_NEED_INPUT;
    }
    if (c == 'u') {
        parser->state = STATE_ESCAPE_DIGITS;
        parser->escape_digits = 0;
        parser->escape_value = 0;
        return JSON_NEED_INPUT;
    }
    return fail_at(parser, error, "one of \"\\/bfnrtu after a backslash", c);
}

static JsonEvent take_escape_digit(JsonLines *parser, char c, char **output, Error *error)
{
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) {
        return fail_at(parser, error, "four hexadecimal digits after \\u", c);
    }
    parser->escape_value = parser->escape_value << 4 | (uint32_t)digit;
    if (++parser->escape_digits < 4) {
        return JSON_NEED_INPUT;
    }
    uint32_t value = parser->escape_value;
    int is_high = value >= 0xd800 && value < 0xdc00;
    int is_low = value >= 0xdc00 && value < 0xe000;
    if (is_low != (parser->high_surrogate != 0)) {
        char found[32];
        snprintf(found, sizeof(found), "\\u%04x by itself", is_low ? value : parser->high_surrogate);
        return fail(parser, error, "both halves of a surrogate pair", found);
    }
    if (is_high) {
        parser->high_surrogate = value;
        parser->state = STATE_LOW_SURROGATE;
        return JSON_NEED_INPUT;
    }
    if (is_low) {
        value = 0x10000 + ((parser->high_surrogate - 0xd800) << 10) + (value - 0xdc00);
        parser->high_surrogate = 0;
    }
    put_character(parser, output, value);
    parser->state = STATE_STRING;
    return JSON_NEED_INPUT;
}

static JsonEvent continue_string(JsonLines *parser, const char **input, const char *input_end, char **output,
                                 char *output_end, Error *error)
{
    const char *end = input_end;
    if (parser->string_use == STRING_TEXT && end - *input > output_end - *output) {
        end = *input + (output_end - *output);
    }
    size_t plain = json_plain_bytes(*input, end);
    if (parser->string_use == STRING_TEXT) {
        memcpy(*output, *input, plain);
        *output += plain;
    } else if (parser->string_use == STRING_KEY) {
        for (size_t i = 0; i < plain; i++) {
            put_byte(parser, output, (uint8_t)(*input)[i]);
        }
    }
    *input += plain;
    if (*input == end) {
        return JSON_NEED_INPUT;
    }
    char c = *(*input)++;
    if (c == '\\') {
        parser->state = STATE_ESCAPE;
        return JSON_NEED_INPUT;
    }
    if (c != '"') {
        return fail_at(parser, error, "control characters in strings to be escaped", c);
    }
    if (parser->string_use == STRING_KEY) {
        parser->state = STATE_COLON;
        return take_key(parser, error) == 0 ? JSON_NEED_INPUT : JSON_ERROR;
    }
    value_ended(parser);
    return parser->string_use == STRING_TEXT ? JSON_TEXT_ENDS : JSON_NEED_INPUT;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static JsonEvent end_line(JsonLines *parser)
{
    json_keys_clear(&parser->keys);
    parser->objects_count = 0;
    parser->has_text = 0;
    parser->line++;
    parser->state = STATE_LINE;
    return JSON_NEED_INPUT;
}

/* One character between values. */
static JsonEvent take_structure(JsonLines *parser, char c, Error *error)
{
    int in_object = parser->is_object[parser->depth];
    switch ((JsonState)parser->state) {
    case STATE_LINE:
        if (c == '\n') {
            return end_line(parser);
        }
        if (c != '{') {
            char expected[KEY_TEXT_BYTES];
            return fail_at(parser, error, about_key(expected, parser, "an object with ", ""), c);
        }
        return push(parser, 1, error) == 0 ? JSON_NEED_INPUT : JSON_ERROR;
    case STATE_KEY_OR_END:
        if (c == '}') {
            return pop(parser, error) == 0 ? JSON_NEED_INPUT : JSON_ERROR;
        }
        /* fall through */
    case STATE_KEY:
        if (c != '"') {
            return fail_at(parser, error, "a key", c);
        }
        begin_string(parser, STRING_KEY);
        return JSON_NEED_INPUT;
    case STATE_COLON:
        if (c != ':') {
            return fail_at(parser, error, "a colon after the key", c);
        }
        parser->state = STATE_VALUE;
        return JSON_NEED_INPUT;
    case STATE_VALUE_OR_END:
        if (c == ']') {
            return pop(parser, error) == 0 ? JSON_NEED_INPUT : JSON_ERROR;
        }
        return begin_value(parser, c, error);
    case STATE_VALUE:
        return begin_value(parser, c, error);
    case STATE_COMMA_OR_END:
        if (c == ',') {
            parser->state = in_object ? STATE_KEY : STATE_VALUE;
            return JSON_NEED_INPUT;
        }
        if (c != (in_object ? '}' : ']')) {
            return fail_at(parser, error, in_object ? "a comma or }" : "a comma or ]", c);
        }
        return pop(parser, error) == 0 ? JSON_NEED_INPUT : JSON_ERROR;
    case STATE_LINE_END:
        if (c != '\n') {
            return fail_at(parser, error, "the end of the line after the object", c);
        }
        return end_line(parser);
    default:
        break;
    }
    return fail_at(parser, error, "JSON", c);
}

JsonEvent json_lines_next(JsonLines *parser, const char **input, const char *input_end, char **output,
                          char *output_end, Error *error)
{
    while (*input < input_end) {
        if (output_end - *output < UTF8_BYTES_MAX) {
            return JSON_OUTPUT_FULL;
        }
        JsonEvent event = JSON_NEED_INPUT;
        if (parser->state == STATE_STRING) {
            event = continue_string(parser, input, input_end, output, output_end, error);
            if (event != JSON_NEED_INPUT) {
                return event;
            }
            continue;
        }
        char c = **input;
        int used = 1;
        switch ((JsonState)parser->state) {
        case STATE_ESCAPE:
            event = take_escape(parser, c, output, error);
            break;
        case STATE_ESCAPE_DIGITS:
            event = take_escape_digit(parser, c, output, error);
            break;
        case STATE_LOW_SURROGATE:
        case STATE_LOW_SURROGATE_U:
            if (c != (parser->state == STATE_LOW_SURROGATE ? '\\' : 'u')) {
                event = fail_at(parser, error, "the second half of a surrogate pair", c);
            }
            parser->escape_digits = 0;
            parser->escape_value = 0;
            parser->state =
                parser->state == STATE_LOW_SURROGATE ? STATE_LOW_SURROGATE_U : STATE_ESCAPE_DIGITS;
            break;
        case STATE_NUMBER:
            event = continue_number(parser, c, &used, error);
            break;
        case STATE_LITERAL:
            event = continue_literal(parser, c, error);
            break;
        default:
            if (!is_blank(c)) {
                event = take_structure(parser, c, error);
            }
            break;
        }
        *input += used;
        if (event != JSON_NEED_INPUT) {
            return event;
        }
    }
    return JSON_NEED_INPUT;
}

int json_lines_finish(JsonLines *parser, Error *error)
{
    if (parser->state != STATE_LINE && parser->state != STATE_LINE_END) {
        fail(parser, error, "the rest of the object", "the end of the file");
        return -1;
    }
    return 0;
}
