/* GPT-2's pattern, by hand: where one word ends and the next begins.
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * A byte that is not part of a UTF-8 character is a character of its own, neither letter, number nor white
 * space.
 */
#ifndef LLMC_TEXT_PATTERN_H
#define LLMC_TEXT_PATTERN_H

#include <stddef.h>
#include <stdint.h>

typedef enum CharClass { CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE } CharClass;

typedef struct ClassRange {
    uint32_t first;
    uint32_t last;
    uint32_t class;
} ClassRange;

/* Sorted, disjoint; what is in none is CLASS_OTHER. */
extern const ClassRange class_ranges[];
extern const int class_ranges_count;

/* No letter, number or white space has a code point at or above this. */
enum { CLASS_TABLE_COUNT = 0x34000 };

/* The class of each code point. */
typedef struct Pattern {
    uint8_t class_of[CLASS_TABLE_COUNT];
} Pattern;

void pattern_init(Pattern *pattern);

/* The class of the character at text, text < end, and how many bytes it has. */
CharClass pattern_class(const Pattern *pattern, const uint8_t *text, const uint8_t *end, int *bytes);

/* Where the word that begins at text ends, text < end. */
const uint8_t *pattern_word_end(const Pattern *pattern, const uint8_t *text, const uint8_t *end);

/* The last position in [1, bytes) where the text can be cut in two that have together the same words as the
 * whole, whatever comes after these bytes; 0 where there is none. */
size_t pattern_cut(const Pattern *pattern, const uint8_t *text, size_t bytes);

/* Bytes of the contraction that begins with the apostrophe at text, before which no space is, or 0. */
static inline int contraction_bytes(const uint8_t *text, ptrdiff_t bytes)
{
    if (bytes >= 2 && (text[1] == 's' || text[1] == 't' || text[1] == 'm' || text[1] == 'd')) {
        return 2;
    }
    int is_long = bytes >= 3 && ((text[1] == 'l' && text[2] == 'l') ||
                                 (text[2] == 'e' && (text[1] == 'r' || text[1] == 'v')));
    return is_long ? 3 : 0;
}

#endif
