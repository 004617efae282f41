#include "data_prep/documents.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "data_prep/clean.h"
#include "data_prep/json_lines.h"
#include "data_prep/layers.h"
#include "llmc/base/memory.h"

enum {
    JSON_INPUT_BYTES = 1 << 16,
    RAW_BYTES = 1 << 16,
    CHUNK_ROOM_BYTES = 16,
    CHUNK_MARKS_MAX = CHUNK_BYTES / 8,
    CHUNK_KEPT_BYTES = CHUNK_BYTES * 16
};

struct Documents {
    const TokenizeOptions *options;
    const Tokenizer *tokenizer;
    Layers *layers;
    int next_input;
    int is_in_file;
    int is_json; /* this file */
    int is_in_document;
    int is_json_begun; /* its byte order mark is behind us */
    char *carry;       /* what was cut from the end of the chunk before */
    size_t carry_bytes;
    size_t carry_capacity;
    int64_t begin_entry; /* of the input that is opened next */
    ChunkPlace place;    /* of the present file */
    Cleaner cleaner;
    char *raw; /* text that is not clean yet */
    JsonLines json;
    char *json_buffer;
    const char *json_input;
    const char *json_input_end;
};

void chunk_release(Chunk *chunk)
{
    memory_free(chunk->text);
    memory_free(chunk->marks);
    *chunk = (Chunk){0};
}

static void chunk_reserve(Chunk *chunk, size_t capacity)
{
    if (capacity > chunk->capacity) {
        chunk->text = memory_grow(chunk->text, chunk->bytes, capacity, 1, "text");
        chunk->capacity = capacity;
    }
}

static void chunk_mark(Chunk *chunk, MarkKind kind)
{
    if (chunk->marks_count == chunk->marks_capacity) {
        size_t capacity = chunk->marks_capacity * 2 + 16;
        chunk->marks =
            memory_grow(chunk->marks, chunk->marks_count, capacity, sizeof(*chunk->marks), "documents");
        chunk->marks_capacity = capacity;
    }
    chunk->marks[chunk->marks_count++] = (DocumentMark){.offset = chunk->bytes, .kind = kind};
}

Documents *documents_create(const TokenizeOptions *options, const Tokenizer *tokenizer)
{
    Documents *documents = memory_alloc_zeroed(1, sizeof(*documents), "documents");
    documents->options = options;
    documents->tokenizer = tokenizer;
    documents->layers = layers_create();
    documents->json_buffer = memory_alloc(JSON_INPUT_BYTES, 1, "input buffer");
    documents->raw = memory_alloc(RAW_BYTES, 1, "input buffer");
    documents->place.input = -1;
    return documents;
}

void documents_free(Documents *documents)
{
    if (documents) {
        layers_free(documents->layers);
        json_lines_release(&documents->json);
        clean_release(&documents->cleaner);
        memory_free(documents->raw);
        memory_free(documents->json_buffer);
        memory_free(documents->carry);
        memory_free(documents);
    }
}

static int has_suffix(const char *name, const char *suffix)
{
    size_t name_bytes = strlen(name);
    size_t suffix_bytes = strlen(suffix);
    return name_bytes >= suffix_bytes && strcasecmp(name + name_bytes - suffix_bytes, suffix) == 0;
}

/* Go to the next file of this or the next input. Returns 1, 0 when all are read, -1 with *error set. */
static int next_file(Documents *documents, Error *error)
{
    for (;;) {
        int more = layers_next_file(documents->layers, error);
        if (more < 0) {
            return -1;
        }
        if (more) {
            break;
        }
        if (documents->next_input == documents->options->inputs_count) {
            return 0;
        }
        const char *path = documents->options->inputs[documents->next_input++];
        if (layers_open(documents->layers, path, error) != 0) {
            return -1;
        }
        layers_skip(documents->layers, documents->begin_entry);
        documents->begin_entry = 0;
    }
    const char *name = layers_plain_name(documents->layers);
    documents->is_json = documents->options->format == FORMAT_JSONL ||
                         (documents->options->format == FORMAT_AUTO &&
                          (has_suffix(name, ".jsonl") || has_suffix(name, ".ndjson")));
    documents->is_in_file = 1;
    if (documents->is_json) {
        json_lines_release(&documents->json);
        json_lines_init(&documents->json);
        documents->json_input = documents->json_input_end = documents->json_buffer;
        documents->is_json_begun = 0;
    }
    return 1;
}

void documents_begin_at(Documents *documents, int64_t input, int64_t entry)
{
    documents->next_input = (int)input;
    documents->begin_entry = entry;
}

static int64_t ended_count(const Chunk *chunk, size_t marks)
{
    int64_t count = 0;
    for (size_t i = 0; i < marks; i++) {
        count += chunk->marks[i].kind == MARK_END;
    }
    return count;
}

/* A file begins: is it one where reading can begin again? */
static void note_place(Documents *documents, Chunk *chunk)
{
    int64_t input = documents->next_input - 1;
    int64_t entry = layers_entry(documents->layers);
    if (input != documents->place.input || entry != documents->place.entry) {
        documents->place = (ChunkPlace){.input = input, .entry = entry};
        chunk->place = documents->place;
        chunk->place.document = ended_count(chunk, chunk->marks_count);
        chunk->has_place = 1;
    }
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

/* Where text of a file is read to: into the chunk, or, if it is to be cleaned, beside it. */
static char *text_space(const Documents *documents, const Chunk *chunk, size_t *capacity)
{
    *capacity = chunk->capacity - chunk->bytes;
    if (documents->options->clean == CLEAN_NONE) {
        return chunk->text + chunk->bytes;
    }
    *capacity = *capacity < RAW_BYTES ? *capacity : RAW_BYTES;
    return documents->raw;
}

/* So much was read to there. */
static void take_text(Documents *documents, Chunk *chunk, size_t bytes)
{
    if (documents->options->clean == CLEAN_NONE) {
        chunk->bytes += bytes;
        return;
    }
    chunk_reserve(chunk, chunk->bytes + clean_bytes_max(&documents->cleaner, bytes));
    chunk->bytes += clean_push(&documents->cleaner, chunk->text + chunk->bytes, documents->raw, bytes);
}

static void end_document(Documents *documents, Chunk *chunk)
{
    chunk_reserve(chunk, chunk->bytes + clean_bytes_max(&documents->cleaner, 0));
    chunk->bytes += clean_end(&documents->cleaner, chunk->text + chunk->bytes);
    chunk_mark(chunk, MARK_END);
    documents->is_in_document = 0;
}

/* Add text of this file to the chunk, up to its capacity. */
static int read_text(Documents *documents, Chunk *chunk, Error *error)
{
    size_t capacity;
    char *space = text_space(documents, chunk, &capacity);
    ptrdiff_t got = layers_read(documents->layers, space, capacity, error);
    if (got < 0) {
        return -1;
    }
    take_text(documents, chunk, (size_t)got);
    if (got == 0) {
        end_document(documents, chunk);
        documents->is_in_file = 0;
    }
    return 0;
}

static int fail_json(const Documents *documents, Error *error)
{
    char description[768];
    layers_describe(documents->layers, description, sizeof(description));
    return error_prefix(error, "%s", description);
}

static int is_full(const Chunk *chunk)
{
    return chunk->capacity - chunk->bytes < CHUNK_ROOM_BYTES || chunk->marks_count >= CHUNK_MARKS_MAX;
}

/* Add documents of this file to the chunk, up to about its capacity. */
static int read_json(Documents *documents, Chunk *chunk, Error *error)
{
    for (;;) {
        size_t capacity;
        char *space = text_space(documents, chunk, &capacity);
        char *output = space;
        JsonEvent event = json_lines_next(&documents->json, &documents->json_input, documents->json_input_end,
                                          &output, space + capacity, error);
        take_text(documents, chunk, (size_t)(output - space));
        switch (event) {
        case JSON_TEXT_BEGINS:
            chunk_mark(chunk, MARK_BEGIN);
            documents->is_in_document = 1;
            break;
        case JSON_TEXT_ENDS:
            end_document(documents, chunk);
            if (is_full(chunk)) {
                return 0;
            }
            break;
        case JSON_OUTPUT_FULL:
            return 0;
        case JSON_ERROR:
            return fail_json(documents, error);
        case JSON_NEED_INPUT: {
            ptrdiff_t got = layers_read(documents->layers, documents->json_buffer, JSON_INPUT_BYTES, error);
            if (got < 0) {
                return -1;
            }
            documents->json_input = documents->json_buffer;
            documents->json_input_end = documents->json_buffer + got;
            if (!documents->is_json_begun && got >= 3 &&
                memcmp(documents->json_buffer, "\xef\xbb\xbf", 3) == 0) {
                documents->json_input += 3; /* a byte order mark, which Windows likes */
            }
            documents->is_json_begun = 1;
            if (got == 0) {
                documents->is_in_file = 0;
                return json_lines_finish(&documents->json, error) == 0 ? 0 : fail_json(documents, error);
            }
            break;
        }
        }
    }
}

/* The chunk is full and its last document goes on: cut it where a word ends, and keep the rest for the next.
 * The document's beginning is such a place, if it is not the chunk's. Returns 1, or 0 where there is none. */
static int cut_chunk(Documents *documents, Chunk *chunk)
{
    DocumentMark *last = chunk->marks_count > 0 ? &chunk->marks[chunk->marks_count - 1] : NULL;
    size_t begin = last ? last->offset : 0;
    size_t cut = begin + text_cut(documents->tokenizer, chunk->text + begin, chunk->bytes - begin);
    if (cut == 0) {
        return 0;
    }
    size_t carry_bytes = chunk->bytes - cut;
    if (carry_bytes > documents->carry_capacity) {
        memory_free(documents->carry);
        documents->carry = memory_alloc(carry_bytes, 1, "text");
        documents->carry_capacity = carry_bytes;
    }
    if (carry_bytes > 0) {
        memcpy(documents->carry, chunk->text + cut, carry_bytes);
    }
    documents->carry_bytes = carry_bytes;
    chunk->bytes = cut;
    return 1;
}

/* Give the chunk what the one before had to leave. */
static void take_carry(Documents *documents, Chunk *chunk)
{
    chunk->bytes = 0;
    chunk->marks_count = 0;
    chunk->has_place = 0;
    if (chunk->capacity > CHUNK_KEPT_BYTES) { /* after a long word: its space is not kept for each chunk */
        memory_free(chunk->text);
        chunk->text = NULL;
        chunk->capacity = 0;
    }
    chunk_reserve(chunk, CHUNK_BYTES + documents->carry_bytes);
    if (documents->carry_bytes > 0) {
        memcpy(chunk->text, documents->carry, documents->carry_bytes);
        chunk->bytes = documents->carry_bytes;
        documents->carry_bytes = 0;
    }
}

int documents_next(Documents *documents, Chunk *chunk, Error *error)
{
    take_carry(documents, chunk);
    for (;;) {
        if (!documents->is_in_document && is_full(chunk)) {
            return 1;
        }
        if (!documents->is_in_file) {
            int more = next_file(documents, error);
            if (more < 0) {
                return -1;
            }
            if (!more) {
                return chunk->bytes > 0 || chunk->marks_count > 0;
            }
            note_place(documents, chunk);
            if (!documents->is_json) {
                chunk_mark(chunk, MARK_BEGIN);
                documents->is_in_document = 1;
            }
        }
        if (chunk->capacity - chunk->bytes >= CHUNK_ROOM_BYTES) {
            int failed =
                documents->is_json ? read_json(documents, chunk, error) : read_text(documents, chunk, error);
            if (failed) {
                return -1;
            }
            continue;
        }
        if (cut_chunk(documents, chunk)) {
            return 1;
        }
        if (chunk->bytes > WORD_BYTES_MAX) {
            char description[768];
            layers_describe(documents->layers, description, sizeof(description));
            return error_set(error, "%s: expected words of less than %d bytes, found a longer one",
                             description, WORD_BYTES_MAX);
        }
        chunk_reserve(chunk, chunk->capacity * 2);
    }
}

int64_t documents_bytes_read(const Documents *documents)
{
    return layers_bytes_read(documents->layers);
}
