#include "data_prep/documents.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "data_prep/clean.h"
#include "data_prep/json_lines.h"
#include "data_prep/layers.h"
#include "data_prep/text_marks.h"
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
    const Tokenizer *tokenizer; /* NULL: characters */
    Layers *layers;
    int next_input;
    int is_in_file;
    int is_json; /* this file */
    int is_in_document;
    int is_val; /* the inputs for training are read */
    TextMarks marks;
    int64_t file_text_bytes; /* of this file, for errors */
    int is_json_begun;       /* its byte order mark is behind us */
    char *carry;             /* what was cut from the end of the chunk before */
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

enum { NO_FILE = 0, NEXT_FILE = 1, FIRST_VAL_FILE = 2 };

/* Go to the next file of this or the next input; or say that the next is the first for validation. -1 with
 * *error set. */
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
            return NO_FILE;
        }
        if (documents->next_input == documents->options->val_first && !documents->is_val) {
            return FIRST_VAL_FILE;
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
    documents->file_text_bytes = 0;
    if (documents->is_json) {
        json_lines_release(&documents->json);
        json_lines_init(&documents->json, documents->options->text_key);
        documents->json_input = documents->json_input_end = documents->json_buffer;
        documents->is_json_begun = 0;
    }
    return NEXT_FILE;
}

void documents_begin_at(Documents *documents, int64_t input, int64_t entry)
{
    documents->next_input = (int)input;
    documents->begin_entry = entry;
}

/* A file begins: is it one where reading can begin again? */
static void note_place(Documents *documents, Chunk *chunk)
{
    int64_t input = documents->next_input - 1;
    int64_t entry = layers_entry(documents->layers);
    if (input != documents->place.input || entry != documents->place.entry) {
        documents->place = (ChunkPlace){.input = input, .entry = entry};
        chunk->place = documents->place;
        chunk->place.document = chunk_ended_count(chunk, chunk->marks_count);
        chunk->has_place = 1;
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

static int fail_utf8(const Documents *documents, uint8_t byte, size_t bytes_left, Error *error)
{
    char description[768], place[64];
    layers_describe(documents->layers, description, sizeof(description));
    if (documents->is_json) {
        snprintf(place, sizeof(place), "line %" PRId64, documents->json.line);
    } else {
        snprintf(place, sizeof(place), "byte %" PRId64, documents->file_text_bytes - (int64_t)bytes_left);
    }
    return error_set(error,
                     "%s: expected UTF-8 for --tokenizer=char, found byte 0x%02x at %s; convert it first "
                     "(iconv -t UTF-8), or use --tokenizer=gpt2, which takes any bytes",
                     description, byte, place);
}

/* `added` bytes of the present document have come to the chunk. -1 with *error. */
static int look_at_text(Documents *documents, Chunk *chunk, size_t added, int is_end, Error *error)
{
    documents->file_text_bytes += (int64_t)added;
    size_t wrong = documents->tokenizer ? 0 : text_marks_check(&documents->marks, chunk, added, is_end);
    if (wrong > 0) {
        return fail_utf8(documents, (uint8_t)chunk->text[chunk->bytes - wrong], wrong, error);
    }
    if (documents->options->eot_text == EOT_TEXT_SPLIT && added > 0) {
        text_marks_split(&documents->marks, chunk);
    }
    return 0;
}

/* So much was read to there. -1 with *error. */
static int take_text(Documents *documents, Chunk *chunk, size_t bytes, Error *error)
{
    size_t before = chunk->bytes;
    if (documents->options->clean == CLEAN_NONE) {
        chunk->bytes += bytes;
    } else {
        chunk_reserve(chunk, chunk->bytes + clean_bytes_max(&documents->cleaner, bytes));
        chunk->bytes += clean_push(&documents->cleaner, chunk->text + chunk->bytes, documents->raw, bytes);
    }
    return look_at_text(documents, chunk, chunk->bytes - before, 0, error);
}

static void begin_document(Documents *documents, Chunk *chunk)
{
    chunk_mark(chunk, MARK_BEGIN);
    documents->is_in_document = 1;
    documents->marks = (TextMarks){.split_from = chunk->bytes};
}

static int end_document(Documents *documents, Chunk *chunk, Error *error)
{
    size_t before = chunk->bytes;
    chunk_reserve(chunk, chunk->bytes + clean_bytes_max(&documents->cleaner, 0));
    chunk->bytes += clean_end(&documents->cleaner, chunk->text + chunk->bytes);
    if (look_at_text(documents, chunk, chunk->bytes - before, 1, error) != 0) {
        return -1;
    }
    if (!documents->marks.is_begin_owed) { /* else it has ended already */
        chunk_mark(chunk, MARK_END);
    }
    documents->is_in_document = 0;
    return 0;
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
    if (take_text(documents, chunk, (size_t)got, error) != 0) {
        return -1;
    }
    if (got == 0) {
        documents->is_in_file = 0;
        return end_document(documents, chunk, error);
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
        if (take_text(documents, chunk, (size_t)(output - space), error) != 0) {
            return -1;
        }
        switch (event) {
        case JSON_TEXT_BEGINS:
            begin_document(documents, chunk);
            break;
        case JSON_TEXT_ENDS:
            if (end_document(documents, chunk, error) != 0) {
                return -1;
            }
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

/* Where a document's text may be cut, as text_cut says it. */
static size_t find_cut(const Documents *documents, const char *text, size_t bytes)
{
    if (!documents->tokenizer && documents->marks.unchecked_bytes > 0) {
        return bytes - (size_t)documents->marks.unchecked_bytes;
    }
    int is_split = documents->options->eot_text == EOT_TEXT_SPLIT;
    size_t kept = is_split ? bytes - text_marks_tail(text, bytes) : bytes;
    return documents->tokenizer ? text_cut(documents->tokenizer, text, kept) : kept;
}

/* The chunk is full and its last document goes on: cut it where a word ends, and keep the rest for the next.
 * The document's beginning is such a place, if it is not the chunk's. Returns 1, or 0 where there is none. */
static int cut_chunk(Documents *documents, Chunk *chunk)
{
    DocumentMark *last = chunk->marks_count > 0 ? &chunk->marks[chunk->marks_count - 1] : NULL;
    size_t begin = last ? last->offset : 0;
    size_t cut = begin + find_cut(documents, chunk->text + begin, chunk->bytes - begin);
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
    chunk->is_val = documents->is_val;
    documents->marks.split_from = 0;
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
            int has_content = chunk->bytes > 0 || chunk->marks_count > 0;
            if (more == NO_FILE || (more == FIRST_VAL_FILE && has_content)) {
                return has_content;
            }
            if (more == FIRST_VAL_FILE) {
                documents->is_val = chunk->is_val = 1;
                continue;
            }
            note_place(documents, chunk);
            if (!documents->is_json) {
                begin_document(documents, chunk);
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
