/* What is looked for in text as it comes into a chunk: `<|endoftext|>`, where that ends documents, and bytes
 * that are no UTF-8, where that is asked for.
 */
#ifndef DATA_PREP_TEXT_MARKS_H
#define DATA_PREP_TEXT_MARKS_H

#include <stddef.h>
#include <stdint.h>

#include "data_prep/chunk.h"

/* Of one document of a file or line; zero it to begin one. */
typedef struct TextMarks {
    int is_begin_owed;   /* `<|endoftext|>` has ended a document: what follows begins one */
    size_t split_from;   /* where in the chunk `<|endoftext|>` may begin that is not looked for yet */
    int unchecked_bytes; /* at the chunk's end, which may become a character */
} TextMarks;

/* Each `<|endoftext|>` in the chunk ends a document and goes; what follows it, if anything does, begins the
 * next. To be called after each piece of text. */
void text_marks_split(TextMarks *marks, Chunk *chunk);

/* `added` bytes have come to the chunk; is_end: the document ends with them. Returns 0; or how many bytes
 * before the chunk's end the first byte lies that is no UTF-8. */
size_t text_marks_check(TextMarks *marks, const Chunk *chunk, size_t added, int is_end);

/* How many bytes at the end of a text may be the beginning of `<|endoftext|>`. */
size_t text_marks_tail(const char *text, size_t bytes);

#endif
