#include "llmc/snapshot/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/json_memory.h"

/* Longest name in a message. */
#define NAME "%.100s"

static const struct {
    const char *name;
    int bytes;
} dtypes[SAFE_DTYPES] = {
    [SAFE_BOOL] = {"BOOL", 1},       [SAFE_U8] = {"U8", 1},           [SAFE_I8] = {"I8", 1},
    [SAFE_F8_E5M2] = {"F8_E5M2", 1}, [SAFE_F8_E4M3] = {"F8_E4M3", 1}, [SAFE_U16] = {"U16", 2},
    [SAFE_I16] = {"I16", 2},         [SAFE_F16] = {"F16", 2},         [SAFE_BF16] = {"BF16", 2},
    [SAFE_U32] = {"U32", 4},         [SAFE_I32] = {"I32", 4},         [SAFE_F32] = {"F32", 4},
    [SAFE_U64] = {"U64", 8},         [SAFE_I64] = {"I64", 8},         [SAFE_F64] = {"F64", 8},
};

const char *safe_dtype_name(SafeDType dtype)
{
    return dtypes[dtype].name;
}

int safe_dtype_bytes(SafeDType dtype)
{
    return dtypes[dtype].bytes;
}

int64_t safe_header_length(const unsigned char *length_bytes, const char *path, Error *error)
{
    uint64_t length = 0;
    for (int i = 0; i < SAFETENSORS_LENGTH_BYTES; i++) {
        length |= (uint64_t)length_bytes[i] << (8 * i);
    }
    if (length < 2 || length > SAFETENSORS_HEADER_BYTES_MAX) {
        return error_set(error,
                         "%s: expected a safetensors header of 2 to %d bytes, found a length of %" PRIu64
                         "; the file is damaged or of another format",
                         path, SAFETENSORS_HEADER_BYTES_MAX, length);
    }
    return (int64_t)length;
}

/* A whole number of 0 or more, or -1. */
static int64_t natural(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 ? (int64_t)json_integer_value(value) : -1;
}

static int parse_dtype(SafeTensor *tensor, const json_t *value, const char *path, Error *error)
{
    const char *name = json_string_value(value);
    for (int i = 0; name && i < SAFE_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            tensor->dtype = (SafeDType)i;
            return 0;
        }
    }
    return error_set(error, "%s: tensor " NAME ": expected a dtype such as F32, found " NAME, path,
                     tensor->name, name ? name : "none");
}

/* Shape, element count and bytes, none of which may overflow. */
static int parse_shape(SafeTensor *tensor, const json_t *shape, const char *path, Error *error)
{
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_DIMENSIONS_MAX) {
        return error_set(error, "%s: tensor " NAME ": expected a shape of at most %d dimensions", path,
                         tensor->name, SAFETENSORS_DIMENSIONS_MAX);
    }
    tensor->dimensions = (int)json_array_size(shape);
    tensor->count = 1;
    int64_t bytes = dtypes[tensor->dtype].bytes;
    for (int i = 0; i < tensor->dimensions; i++) {
        int64_t dimension = natural(json_array_get(shape, (size_t)i));
        if (dimension < 0 || __builtin_mul_overflow(bytes, dimension, &bytes)) {
            return error_set(error, "%s: tensor " NAME ": dimension %d is not a size that a file can hold",
                             path, tensor->name, i);
        }
        tensor->shape[i] = dimension;
        tensor->count *= dimension;
    }
    tensor->bytes = (uint64_t)bytes;
    return 0;
}

static int parse_offsets(SafeTensor *tensor, const json_t *offsets, uint64_t limit, const char *path,
                         Error *error)
{
    int64_t begin = natural(json_array_get(offsets, 0));
    int64_t end = natural(json_array_get(offsets, 1));
    if (json_array_size(offsets) != 2 || begin < 0 || end < begin) {
        return error_set(error, "%s: tensor " NAME ": expected data_offsets [begin, end]", path,
                         tensor->name);
    }
    if ((uint64_t)end > limit) {
        return error_set(error,
                         "%s: truncated or damaged: tensor " NAME " ends at byte %" PRId64
                         " of the data, which has %" PRIu64 " bytes",
                         path, tensor->name, end, limit);
    }
    if ((uint64_t)(end - begin) != tensor->bytes) {
        return error_set(
            error, "%s: tensor " NAME ": its shape needs %" PRIu64 " bytes, its data_offsets span %" PRId64,
            path, tensor->name, tensor->bytes, end - begin);
    }
    tensor->offset = (uint64_t)begin;
    return 0;
}

static int parse_tensor(SafeTensor *tensor, const char *name, const json_t *entry, uint64_t limit,
                        const char *path, Error *error)
{
    tensor->name = name;
    if (!json_is_object(entry) || json_object_size(entry) != 3) {
        return error_set(error, "%s: tensor " NAME ": expected dtype, shape and data_offsets", path, name);
    }
    if (parse_dtype(tensor, json_object_get(entry, "dtype"), path, error) != 0 ||
        parse_shape(tensor, json_object_get(entry, "shape"), path, error) != 0) {
        return -1;
    }
    return parse_offsets(tensor, json_object_get(entry, "data_offsets"), limit, path, error);
}

static int check_metadata(const json_t *metadata, const char *path, Error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) {
        return error_set(error, "%s: expected __metadata__ to be an object of strings", path);
    }
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value)) {
            return error_set(error, "%s: __metadata__ " NAME ": expected a string", path, key);
        }
    }
    return 0;
}

static int compare_offsets(const void *a, const void *b)
{
    const SafeTensor *x = a;
    const SafeTensor *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name);
}

/* Each tensor has to begin where the one before it ends. */
static int check_places(SafeHeader *header, const char *path, Error *error)
{
    qsort(header->tensors, (size_t)header->count, sizeof(*header->tensors), compare_offsets);
    uint64_t end = 0;
    for (int i = 0; i < header->count; i++) {
        const SafeTensor *tensor = &header->tensors[i];
        if (tensor->offset != end) {
            return error_set(
                error, "%s: tensor " NAME " %s: expected it to begin at byte %" PRIu64 ", found %" PRIu64,
                path, tensor->name,
                tensor->offset < end ? "overlaps the one before it" : "leaves a hole before it", end,
                tensor->offset);
        }
        end += tensor->bytes;
    }
    header->data_bytes = end;
    return 0;
}

static int parse_object(SafeHeader *header, uint64_t limit, const char *path, Error *error)
{
    const char *name;
    json_t *entry;
    json_object_foreach(header->json, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if (check_metadata(entry, path, error) != 0) {
                return -1;
            }
        } else if (parse_tensor(&header->tensors[header->count++], name, entry, limit, path, error) != 0) {
            return -1;
        }
    }
    if (check_places(header, path, error) != 0) {
        return -1;
    }
    qsort(header->tensors, (size_t)header->count, sizeof(*header->tensors), compare_names);
    return 0;
}

int safe_header_init(SafeHeader *header, const char *text, uint64_t text_bytes, uint64_t data_bytes_limit,
                     const char *path, Error *error)
{
    memset(header, 0, sizeof(*header));
    json_error_t reason;
    json_t *json = NULL;
    json_memory_watch();
    if (text_bytes > 0 && text[0] == '{') {
        json = json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES, &reason);
    } else {
        snprintf(reason.text, sizeof(reason.text), "it does not begin with {");
        reason.position = 0;
    }
    if (!json && json_memory_failed()) {
        error_set(error, "%s: cannot read its header: out of memory; let the program have more", path);
        return SAFE_NO_MEMORY;
    }
    if (!json_is_object(json)) {
        json_decref(json);
        return error_set(
            error,
            "%s: the header is not valid JSON: %s, at byte %d; the file is damaged or of another format",
            path, reason.text, reason.position);
    }
    header->json = json;
    header->data_begin = SAFETENSORS_LENGTH_BYTES + text_bytes;
    header->tensors = memory_alloc_zeroed(json_object_size(json), sizeof(*header->tensors), "tensor list");
    if (parse_object(header, data_bytes_limit, path, error) != 0) {
        safe_header_release(header);
        return -1;
    }
    return 0;
}

void safe_header_release(SafeHeader *header)
{
    json_decref(header->json);
    memory_free(header->tensors);
    memset(header, 0, sizeof(*header));
}

const SafeTensor *safe_header_find(const SafeHeader *header, const char *name)
{
    SafeTensor key = {.name = name};
    if (header->count == 0) {
        return NULL;
    }
    return bsearch(&key, header->tensors, (size_t)header->count, sizeof(key), compare_names);
}

const char *safe_header_metadata(const SafeHeader *header, const char *key)
{
    return json_string_value(json_object_get(json_object_get(header->json, "__metadata__"), key));
}

static int parse_file(SafeFile *file, Error *error)
{
    const MappedFile *mapped = &file->file;
    if (mapped->bytes < SAFETENSORS_LENGTH_BYTES) {
        return error_set(error, "%s: expected a safetensors file, found %" PRIu64 " bytes", file->path,
                         mapped->bytes);
    }
    int64_t text_bytes = safe_header_length(mapped->data, file->path, error);
    if (text_bytes < 0) {
        return -1;
    }
    uint64_t after_length = mapped->bytes - SAFETENSORS_LENGTH_BYTES;
    if ((uint64_t)text_bytes > after_length) {
        return error_set(error, "%s: truncated: expected a header of %" PRId64 " bytes, found %" PRIu64,
                         file->path, text_bytes, after_length);
    }
    uint64_t data_bytes = after_length - (uint64_t)text_bytes;
    if (safe_header_init(&file->header, (const char *)mapped->data + SAFETENSORS_LENGTH_BYTES,
                         (uint64_t)text_bytes, data_bytes, file->path, error) != 0) {
        return -1;
    }
    if (file->header.data_bytes != data_bytes) {
        return error_set(error, "%s: expected %" PRIu64 " bytes of tensors, found %" PRIu64, file->path,
                         file->header.data_bytes, data_bytes);
    }
    return 0;
}

int safe_file_init(SafeFile *file, const char *path, Error *error)
{
    memset(file, 0, sizeof(*file));
    if (snprintf(file->path, sizeof(file->path), "%s", path) >= (int)sizeof(file->path)) {
        return error_set(error, "%.200s...: the path is longer than %d bytes", path, PATH_BYTES_MAX);
    }
    if (mapped_file_init(&file->file, path, error) != 0) {
        return -1;
    }
    if (parse_file(file, error) != 0) {
        safe_file_release(file);
        return -1;
    }
    return 0;
}

void safe_file_release(SafeFile *file)
{
    safe_header_release(&file->header);
    mapped_file_release(&file->file);
}

const unsigned char *safe_file_data(const SafeFile *file, const SafeTensor *tensor)
{
    return file->file.data + file->header.data_begin + tensor->offset;
}
