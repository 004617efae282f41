/* Safetensors and model files of any bytes: an error that names the file, or tensors that fill the data
 * without overlap, and weights that are all finite. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dev/fuzz/fuzz.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/import.h"
#include "llmc/snapshot/import_source.h"
#include "llmc/snapshot/safetensors.h"

const char *const fuzz_words[] = {"{",
                                  "}",
                                  "[",
                                  "]",
                                  ",",
                                  ":",
                                  "\"",
                                  "\"dtype\"",
                                  "\"F32\"",
                                  "\"BF16\"",
                                  "\"F16\"",
                                  "\"I64\"",
                                  "\"shape\"",
                                  "\"data_offsets\"",
                                  "[0,4]",
                                  "\"__metadata__\":{\"a\":\"b\"}",
                                  "-1",
                                  "0",
                                  "1e9",
                                  "18446744073709551616",
                                  "9223372036854775807",
                                  "\\u0000",
                                  "transformer.",
                                  "lm_head.weight",
                                  "h.0.attn.bias",
                                  NULL};

enum { TINY_EMBD = 64 };

/* The weights of the smallest model whose heads can be told from its tensors. */
static size_t tiny_model(uint8_t *data, SafeDType dtype, const char *prefix)
{
    const ModelShape shape = {
        .block_size = 1, .vocab_size = 2, .n_layer = 1, .n_head = 1, .n_embd = TINY_EMBD};
    ParamTable table;
    SafeHeaderWriter writer = {0};
    Error error;
    params_init(&table, &shape);
    for (int i = 0; i < table.count; i++) {
        const ParamSpec *spec = &table.specs[i];
        char name[80] = "";
        strcat(strcat(name, prefix), spec->name);
        int64_t sizes[2] = {spec->is_conv1d ? spec->columns : spec->rows,
                            spec->is_conv1d ? spec->rows : spec->columns};
        safe_header_writer_tensor(&writer, name, dtype, sizes + 2 - spec->dimensions, spec->dimensions,
                                  &error);
    }
    uint64_t data_bytes = writer.data_bytes;
    uint64_t header_bytes;
    char *header = safe_header_writer_finish(&writer, &header_bytes);
    size_t bytes = header_bytes + data_bytes;
    CHECK(bytes <= FUZZ_INPUT_BYTES_MAX, "a model of %zu bytes to start from", bytes);
    memcpy(data, header, header_bytes);
    memset(data + header_bytes, 0, data_bytes);
    memory_free(header);
    params_release(&table);
    return bytes;
}

/* llm.c's file of a model of one channel. */
static size_t tiny_llmc(uint8_t *data)
{
    const int32_t header[8] = {LLMC_MODEL_MAGIC, LLMC_VERSION_FP32, 2, 3, 1, 1, 1, 4};
    const ModelShape shape = {.block_size = 2, .vocab_size = 3, .n_layer = 1, .n_head = 1, .n_embd = 1};
    size_t bytes = LLMC_MODEL_HEADER_BYTES + 4 * (size_t)llmc_tensor_total(&shape, 4);
    memset(data, 0, bytes);
    memcpy(data, header, sizeof(header));
    return bytes;
}

size_t fuzz_seed(uint8_t *data, int index)
{
    static const char small[] =
        "\x94\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}}  12345678abcd";
    switch (index) {
    case 0:
        memcpy(data, small, sizeof(small) - 1);
        data[0] = (uint8_t)(sizeof(small) - 1 - 8 - 12);
        return sizeof(small) - 1;
    case 1:
        return tiny_llmc(data);
    case 2:
        return tiny_model(data, SAFE_BF16, "transformer.");
    case 3:
        return tiny_model(data, SAFE_F16, "");
    default:
        return 0;
    }
}

static void check_header(const uint8_t *data, size_t bytes)
{
    Error error = {.text = ""};
    SafeHeader header;
    int64_t length = bytes >= SAFETENSORS_LENGTH_BYTES ? safe_header_length(data, "file", &error) : -1;
    if (length < 0 || (uint64_t)length > bytes - SAFETENSORS_LENGTH_BYTES) {
        return;
    }
    uint64_t data_bytes = bytes - SAFETENSORS_LENGTH_BYTES - (uint64_t)length;
    if (safe_header_init(&header, (const char *)data + SAFETENSORS_LENGTH_BYTES, (uint64_t)length, data_bytes,
                         "file", &error) != 0) {
        CHECK(strncmp(error.text, "file: ", 6) == 0, "an error without its file");
        return;
    }
    uint64_t sum = 0;
    for (int i = 0; i < header.count; i++) {
        const SafeTensor *tensor = &header.tensors[i];
        CHECK(tensor->offset + tensor->bytes <= header.data_bytes &&
                  tensor->bytes == (uint64_t)(tensor->count * safe_dtype_bytes(tensor->dtype)) &&
                  safe_header_find(&header, tensor->name) == tensor,
              "tensor %s", tensor->name);
        sum += tensor->bytes;
    }
    CHECK(sum == header.data_bytes && sum <= data_bytes, "tensors of %llu bytes", (unsigned long long)sum);
    safe_header_release(&header);
}

static void check_value(void *context, SavedState state, int64_t offset, const float *values, int64_t count)
{
    const ParamTable *table = context;
    CHECK(state == SAVED_WEIGHTS && offset >= 0 && offset + count <= table->arena_count,
          "values outside the arena");
    for (int64_t i = 0; i < count; i++) {
        CHECK(isfinite(values[i]), "a weight that is not finite");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Error error = {.text = ""};
    check_header(data, bytes);
    WeightsFile *weights = weights_open(fuzz_file(data, bytes), &error);
    if (!weights) {
        CHECK(strchr(error.text, ':'), "an error without its file");
        return 0;
    }
    ModelShape shape = weights_shape(weights);
    ParamTable table;
    params_init(&table, &shape);
    StateSink sink = {check_value, &table};
    weights_load(weights, &table, &sink, &error);
    params_release(&table);
    weights_close(weights);
    return 0;
}
