#define _GNU_SOURCE
#include "data_prep/text_marks.h"

#include <string.h>

#include "llmc/text/utf8.h"

static const char eot_text[] = "<|endoftext|>";
enum { EOT_BYTES = sizeof(eot_text) - 1 };

void text_marks_split(TextMarks *marks, Chunk *chunk)
{
    char *text = chunk->text;
    size_t next = marks->split_from, end = chunk->bytes, last_mark = next;
    chunk->bytes = next;
    while (next < end) {
        const char *mark = memmem(text + next, end - next, eot_text, EOT_BYTES);
        size_t piece_bytes = mark ? (size_t)(mark - text) - next : end - next;
        if (marks->is_begin_owed) {
            chunk_mark(chunk, MARK_BEGIN);
            marks->is_begin_owed = 0;
        }
        memmove(text + chunk->bytes, text + next, piece_bytes);
        chunk->bytes += piece_bytes;
        next += piece_bytes;
        if (mark) {
            chunk_mark(chunk, MARK_END);
            marks->is_begin_owed = 1;
            next += EOT_BYTES;
            last_mark = chunk->bytes;
        }
    }
    size_t again = chunk->bytes < EOT_BYTES ? 0 : chunk->bytes - (EOT_BYTES - 1);
    marks->split_from = again > last_mark ? again : last_mark;
}

size_t text_marks_check(TextMarks *marks, const Chunk *chunk, size_t added, int is_end)
{
    const uint8_t *end = (const uint8_t *)chunk->text + chunk->bytes;
    const uint8_t *next = end - added - marks->unchecked_bytes;
    uint32_t code_point;
    int used;
    while (next < end && (used = utf8_decode(&code_point, next, end)) > 0) {
        next += used;
    }
    if (next < end && (is_end || utf8_incomplete(next, end) == 0)) {
        return (size_t)(end - next);
    }
    marks->unchecked_bytes = (int)(end - next);
    return 0;
}

size_t text_marks_tail(const char *text, size_t bytes)
{
    size_t tail = bytes < EOT_BYTES - 1 ? bytes : EOT_BYTES - 1;
    while (tail > 0 && memcmp(text + bytes - tail, eot_text, tail) != 0) {
        tail--;
    }
    return tail;
}
