/* Text as Hugging Face's `openwebtext` has it: of more than two newlines in a row two stay, and the white
 * space at a document's beginning and end goes (Python's re.sub("\n\n\n+", "\n\n", text).strip()). As a
 * stream: memory grows with the longest run of white space.
 */
#ifndef DATA_PREP_CLEAN_H
#define DATA_PREP_CLEAN_H

#include <stddef.h>
#include <stdint.h>

/* Zero it to begin a document; release when done. */
typedef struct Cleaner {
    int has_begun; /* something that is no white space was met */
    int newlines;  /* in a row, at the end of `spaces` */
    char *spaces;  /* white space that stays only if more follows; owned */
    size_t spaces_bytes;
    size_t spaces_capacity;
    char partial[4]; /* the beginning of a character that may be white space */
    size_t partial_bytes;
} Cleaner;

/* How much clean_push may write at most for so many bytes, or clean_end. */
size_t clean_bytes_max(const Cleaner *cleaner, size_t bytes);

/* Write to `out` what is certain of this text. Returns the number of bytes. */
size_t clean_push(Cleaner *cleaner, char *out, const char *text, size_t bytes);

/* The document has ended; the next may begin. */
size_t clean_end(Cleaner *cleaner, char *out);
void clean_release(Cleaner *cleaner);

#endif
