#include "llmc/text/pattern.h"

#include <string.h>

#include "llmc/text/utf8.h"

void pattern_init(Pattern *pattern)
{
    memset(pattern->class_of, CLASS_OTHER, sizeof(pattern->class_of));
    for (int i = 0; i < class_ranges_count; i++) {
        const ClassRange *range = &class_ranges[i];
        memset(pattern->class_of + range->first, (int)range->class, range->last - range->first + 1);
    }
}

CharClass pattern_class(const Pattern *pattern, const uint8_t *text, const uint8_t *end, int *bytes)
{
    uint32_t code_point;
    *bytes = utf8_decode(&code_point, text, end);
    if (*bytes == 0) {
        *bytes = 1;
        return CLASS_OTHER;
    }
    return code_point < CLASS_TABLE_COUNT ? (CharClass)pattern->class_of[code_point] : CLASS_OTHER;
}

/* The end of the characters of one class from text on. *last is where the last of them begins. */
static const uint8_t *run_end(const Pattern *pattern, CharClass class, const uint8_t *text,
                              const uint8_t *end, const uint8_t **last)
{
    while (text < end) {
        int bytes;
        if (pattern_class(pattern, text, end, &bytes) != class) {
            break;
        }
        *last = text;
        text += bytes;
    }
    return text;
}

const uint8_t *pattern_word_end(const Pattern *pattern, const uint8_t *text, const uint8_t *end)
{
    if (*text == '\'') {
        int bytes = contraction_bytes(text, end - text);
        if (bytes > 0) {
            return text + bytes;
        }
    }
    int bytes;
    const uint8_t *last = text;
    if (*text == ' ' && text + 1 < end) {
        CharClass class = pattern_class(pattern, text + 1, end, &bytes);
        if (class != CLASS_SPACE) {
            return run_end(pattern, class, text + 1 + bytes, end, &last);
        }
    }
    CharClass class = pattern_class(pattern, text, end, &bytes);
    const uint8_t *word_end = run_end(pattern, class, text + bytes, end, &last);
    /* White space before a word leaves its last character to the word; one alone stands for itself. */
    if (class == CLASS_SPACE && word_end < end && last > text) {
        return last;
    }
    return word_end;
}

/* The class of the character that ends before position. Whatever the bytes, no character spans a position
 * whose byte cannot continue one, so only those before it matter: they are one whole character, or the last
 * of them is a byte of its own. */
static CharClass class_before(const Pattern *pattern, const uint8_t *text, size_t position)
{
    size_t first = position - 1;
    while (first > 0 && position - first < 4 && (text[first] & 0xc0) == 0x80) {
        first--;
    }
    int bytes;
    CharClass class = pattern_class(pattern, text + first, text + position, &bytes);
    return first + (size_t)bytes == position ? class : CLASS_OTHER;
}

/* Two neighbours can be in one word only as: an apostrophe and a letter of a contraction, a space and
 * anything, or two of one class. Between all others a word ends; it ends with something visible, so that the
 * pattern did not look at what follows, and what follows matches as if it were the beginning of a text. */
static int is_cut_between(CharClass before, CharClass after)
{
    return before != CLASS_SPACE && before != after && !(before == CLASS_OTHER && after == CLASS_LETTER);
}

size_t pattern_cut(const Pattern *pattern, const uint8_t *text, size_t bytes)
{
    /* The character after the cut must be complete, and the longest has four bytes. */
    for (size_t position = bytes < 4 ? 0 : bytes - 4; position > 0; position--) {
        if ((text[position] & 0xc0) == 0x80) {
            continue;
        }
        int after_bytes;
        CharClass after = pattern_class(pattern, text + position, text + bytes, &after_bytes);
        if (is_cut_between(class_before(pattern, text, position), after)) {
            return position;
        }
    }
    return 0;
}
