/* The values of tensors, and headers to write. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/model/dtype.h"
#include "llmc/snapshot/json_memory.h"
#include "llmc/snapshot/safetensors.h"

/* IEEE half precision: subnormals are multiples of 2^-24, the largest exponent holds infinities and NaNs. */
static float float_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    uint32_t bits;
    if (exponent == 0) {
        float value = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &value, sizeof(bits));
    } else if (exponent == 31) {
        bits = 0x7f800000u | mantissa << 13;
    } else {
        bits = (exponent + 112) << 23 | mantissa << 13;
    }
    bits |= sign;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

int safe_file_floats(float *out, const SafeFile *file, const SafeTensor *tensor, int64_t first, int64_t count)
{
    CHECK(first >= 0 && count >= 0 && first + count <= tensor->count, "%s: elements %lld + %lld of %lld",
          tensor->name, (long long)first, (long long)count, (long long)tensor->count);
    const unsigned char *data = safe_file_data(file, tensor) + first * safe_dtype_bytes(tensor->dtype);
    if (tensor->dtype == SAFE_F32) {
        memcpy(out, data, (size_t)count * sizeof(float));
        return 0;
    }
    if (tensor->dtype != SAFE_F16 && tensor->dtype != SAFE_BF16) {
        return -1;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t half = (uint16_t)(data[2 * i] | data[2 * i + 1] << 8);
        out[i] = tensor->dtype == SAFE_F16 ? float_from_half(half) : bf16_to_float(half);
    }
    return 0;
}

/* Put a new value in, which the object then owns. */
static int set_new(json_t *object, const char *key, json_t *value, Error *error)
{
    if (json_object_get(object, key)) {
        json_decref(value);
        return error_set(error, "%.100s: given twice in a safetensors header", key);
    }
    if (!object || !value || json_object_set_new(object, key, value) != 0) {
        return error_set(error,
                         json_memory_failed() ? "%.100s: out of memory for a safetensors header"
                                              : "%.100s: expected UTF-8 for a safetensors header",
                         key);
    }
    return 0;
}

/* NULL when memory runs out. */
static json_t *writer_json(SafeHeaderWriter *writer)
{
    json_memory_watch();
    if (!writer->json) {
        writer->json = json_object();
    }
    return writer->json;
}

int safe_header_writer_metadata(SafeHeaderWriter *writer, const char *key, const char *value, Error *error)
{
    json_t *json = writer_json(writer);
    if (!json_object_get(json, "__metadata__") && set_new(json, "__metadata__", json_object(), error) != 0) {
        return -1;
    }
    return set_new(json_object_get(json, "__metadata__"), key, json_string(value), error);
}

int safe_header_writer_tensor(SafeHeaderWriter *writer, const char *name, SafeDType dtype,
                              const int64_t *shape, int dimensions, Error *error)
{
    json_t *json = writer_json(writer);
    json_t *sizes = json_array();
    int64_t bytes = safe_dtype_bytes(dtype);
    int has_sizes = sizes != NULL;
    for (int i = 0; i < dimensions; i++) {
        has_sizes = has_sizes && json_array_append_new(sizes, json_integer(shape[i])) == 0;
        bytes *= shape[i];
    }
    if (!has_sizes) {
        json_decref(sizes);
        return error_set(error, "%.100s: out of memory for a safetensors header", name);
    }
    uint64_t end = writer->data_bytes + (uint64_t)bytes;
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", safe_dtype_name(dtype), "shape", sizes,
                              "data_offsets", (json_int_t)writer->data_bytes, (json_int_t)end);
    if (set_new(json, name, entry, error) != 0) {
        return -1;
    }
    writer->data_bytes = end;
    return 0;
}

char *safe_header_writer_finish(SafeHeaderWriter *writer, uint64_t *bytes)
{
    char *text = json_dumps(writer_json(writer), JSON_COMPACT);
    if (!text) {
        safe_header_writer_release(writer);
        return NULL;
    }
    uint64_t text_bytes = strlen(text);
    uint64_t length = (text_bytes + 7) / 8 * 8;
    char *header = memory_alloc(SAFETENSORS_LENGTH_BYTES + length, 1, "safetensors header");
    for (int i = 0; i < SAFETENSORS_LENGTH_BYTES; i++) {
        header[i] = (char)(length >> (8 * i) & 0xff);
    }
    memcpy(header + SAFETENSORS_LENGTH_BYTES, text, text_bytes);
    memset(header + SAFETENSORS_LENGTH_BYTES + text_bytes, ' ', length - text_bytes);
    free(text);
    safe_header_writer_release(writer);
    *bytes = SAFETENSORS_LENGTH_BYTES + length;
    return header;
}

void safe_header_writer_release(SafeHeaderWriter *writer)
{
    json_decref(writer->json);
    memset(writer, 0, sizeof(*writer));
}
