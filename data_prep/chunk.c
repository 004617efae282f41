#include "data_prep/chunk.h"

#include <string.h>

#include "llmc/base/memory.h"

void chunk_release(Chunk *chunk)
{
    memory_free(chunk->text);
    memory_free(chunk->marks);
    *chunk = (Chunk){0};
}

void chunk_reserve(Chunk *chunk, size_t capacity)
{
    if (capacity > chunk->capacity) {
        chunk->text = memory_grow(chunk->text, chunk->bytes, capacity, 1, "text");
        chunk->capacity = capacity;
    }
}

void chunk_mark(Chunk *chunk, MarkKind kind)
{
    if (chunk->marks_count == chunk->marks_capacity) {
        size_t capacity = chunk->marks_capacity * 2 + 16;
        chunk->marks =
            memory_grow(chunk->marks, chunk->marks_count, capacity, sizeof(*chunk->marks), "documents");
        chunk->marks_capacity = capacity;
    }
    chunk->marks[chunk->marks_count++] = (DocumentMark){.offset = chunk->bytes, .kind = kind};
}

int64_t chunk_ended_count(const Chunk *chunk, size_t marks)
{
    int64_t count = 0;
    for (size_t i = 0; i < marks; i++) {
        count += chunk->marks[i].kind == MARK_END;
    }
    return count;
}

void chunk_drop_documents(Chunk *chunk, int64_t *count)
{
    size_t marks = 0, bytes = *count > 0 ? chunk->bytes : 0;
    int64_t dropped = 0;
    while (dropped < *count && marks < chunk->marks_count) {
        dropped += chunk->marks[marks++].kind == MARK_END;
    }
    if (dropped == *count && marks > 0) {
        bytes = chunk->marks[marks - 1].offset;
    }
    chunk->bytes -= bytes;
    chunk->marks_count -= marks;
    chunk->place.document -= dropped;
    *count -= dropped;
    if (bytes > 0) {
        memmove(chunk->text, chunk->text + bytes, chunk->bytes);
    }
    for (size_t i = 0; i < chunk->marks_count; i++) {
        chunk->marks[i] = chunk->marks[i + marks];
        chunk->marks[i].offset -= bytes;
    }
}
