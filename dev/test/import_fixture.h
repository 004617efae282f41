/* Writes models as other programs save them, whole or with one thing wrong, for the tests of import.
 * Include cmocka.h before. */
#ifndef DEV_TEST_IMPORT_FIXTURE_H
#define DEV_TEST_IMPORT_FIXTURE_H

#include <stdint.h>

#include "dev/test/snapshot_fixture.h"
#include "llmc/model/dtype.h"
#include "llmc/snapshot/import.h"
#include "llmc/snapshot/safetensors.h"

/* What is unusual about a file; all zero: as transformers saves it. */
typedef struct HuggingFaceFile {
    int has_no_prefix;
    int has_masks;
    const char *head;       /* "equal", "other", "only" (instead of wte), or NULL: none */
    const char *left_out;   /* name of a tensor that is missing */
    const char *twice;      /* name of a tensor that also stands there without the prefix */
    const char *extra;      /* full name of a tensor more */
    const char *reshaped;   /* name of a matrix whose rows and columns are exchanged */
    const char *retyped;    /* name of a tensor that is saved as I32 */
    const char *not_finite; /* name of a tensor whose last value is a NaN */
    SafeDType dtype;        /* SAFE_F32 where it is 0 */
    int first, last;        /* rows of the table that are in this file; last 0: all */
} HuggingFaceFile;

/* A growing file: header and data side by side. */
typedef struct FileParts {
    SafeHeaderWriter writer;
    unsigned char *data;
    size_t bytes;
} FileParts;

static inline int is_named(const char *name, const char *other)
{
    return other && strcmp(name, other) == 0;
}

static inline void add_value(FileParts *parts, SafeDType dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (dtype == SAFE_BF16) {
        bits >>= 16;
    } else if (dtype == SAFE_F16) {
        /* Only for values that half precision holds: sign, rebiased exponent, ten bits. */
        bits = (bits >> 16 & 0x8000) |
               (value == 0 ? 0 : ((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff));
    }
    memcpy(parts->data + parts->bytes, &bits, (size_t)safe_dtype_bytes(dtype));
    parts->bytes += (size_t)safe_dtype_bytes(dtype);
}

static inline void add_spec(FileParts *parts, const Arenas *arenas, const ParamSpec *spec,
                            const char *full_name, const HuggingFaceFile *file)
{
    const float *values = arenas->values[SAVED_WEIGHTS] + spec->offset;
    SafeDType dtype = is_named(spec->name, file->retyped) ? SAFE_I32 : file->dtype ? file->dtype : SAFE_F32;
    int is_turned = spec->is_conv1d != is_named(spec->name, file->reshaped);
    int64_t shape[2] = {is_turned ? spec->columns : spec->rows, is_turned ? spec->rows : spec->columns};
    int64_t count = param_file_count(spec);
    Error error;
    assert_int_equal(safe_header_writer_tensor(&parts->writer, full_name, dtype, shape + 2 - spec->dimensions,
                                               spec->dimensions, &error),
                     0);
    for (int64_t i = 0; i < count; i++) {
        /* Conv1D: place (in, out) of the file is place (out, in) of the arena. */
        int64_t from = spec->is_conv1d ? i % spec->rows * spec->columns + i / spec->rows : i;
        float value = values[from];
        if (is_named(spec->name, file->not_finite) && i == count - 1) {
            value = __builtin_nanf("");
        }
        add_value(parts, dtype, value);
    }
}

static inline void add_masks(FileParts *parts, const Arenas *arenas)
{
    Error error;
    int64_t T = arenas->table.shape.block_size;
    int64_t shape[4] = {1, 1, T, T};
    for (int l = 0; l < arenas->table.shape.n_layer; l++) {
        char name[64];
        snprintf(name, sizeof(name), "h.%d.attn.bias", l);
        safe_header_writer_tensor(&parts->writer, name, SAFE_BOOL, shape, 4, &error);
        snprintf(name, sizeof(name), "h.%d.attn.masked_bias", l);
        safe_header_writer_tensor(&parts->writer, name, SAFE_F32, NULL, 0, &error);
        memset(parts->data + parts->bytes, 1, (size_t)(T * T + 4));
        parts->bytes += (size_t)(T * T + 4);
    }
}

static inline void add_head(FileParts *parts, const Arenas *arenas, const HuggingFaceFile *file)
{
    add_spec(parts, arenas, &arenas->table.specs[params_wte_index()], "lm_head.weight", file);
    if (is_named("other", file->head)) {
        parts->data[parts->bytes - 2] ^= 1;
    }
}

/* Write the arena's weights as a safetensors file. */
static inline void write_hugging_face(const char *path, const Arenas *arenas, const HuggingFaceFile *file)
{
    FileParts parts = {0};
    const ParamTable *table = &arenas->table;
    parts.data = malloc((size_t)(2 * table->arena_count) * sizeof(float) + (1 << 16));
    int last = file->last ? file->last : table->count - 1;
    for (int i = file->first; i <= last; i++) {
        const ParamSpec *spec = &table->specs[i];
        char name[80];
        snprintf(name, sizeof(name), "%s%s", file->has_no_prefix ? "" : "transformer.", spec->name);
        if (is_named(spec->name, file->left_out) || (i == 0 && is_named("only", file->head))) {
            continue;
        }
        add_spec(&parts, arenas, spec, name, file);
        if (is_named(spec->name, file->twice)) {
            add_spec(&parts, arenas, spec, spec->name, file);
        }
    }
    if (file->extra) {
        add_spec(&parts, arenas, &table->specs[table->count - 1], file->extra, file);
    }
    if (file->has_masks) {
        add_masks(&parts, arenas);
    }
    if (file->head) {
        add_head(&parts, arenas, file);
    }
    uint64_t header_bytes;
    char *header = safe_header_writer_finish(&parts.writer, &header_bytes);
    FILE *out = fopen(path, "wb");
    fwrite(header, 1, header_bytes, out);
    fwrite(parts.data, 1, parts.bytes, out);
    fclose(out);
    memory_free(header);
    free(parts.data);
}

static inline void write_text(const char *folder, const char *name, const char *text)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    fputs(text, out);
    fclose(out);
}

/* config.json of this shape, with `more` (", \"key\": value") at its end. */
static inline void write_config(const char *folder, const ModelShape *shape, const char *more)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_positions\": %d, \"n_embd\": %d, "
             "\"n_layer\": %d, "
             "\"n_head\": %d%s}",
             shape->vocab_size, shape->block_size, shape->n_embd, shape->n_layer, shape->n_head, more);
    write_text(folder, "config.json", text);
}

/* A folder with both. */
static inline const char *write_folder(const Arenas *arenas, const HuggingFaceFile *file, const char *more)
{
    Error error;
    const char *folder = new_folder();
    char path[PATH_BYTES_MAX];
    assert_int_equal(folder_create(folder, &error), 0);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    write_hugging_face(path, arenas, file);
    write_config(folder, &arenas->table.shape, more);
    return folder;
}

/* Weights that every dtype holds exactly: small multiples of 1/8. */
static inline void fill_exact(Arenas *arenas)
{
    for (int i = 0; i < arenas->table.count; i++) {
        const ParamSpec *spec = &arenas->table.specs[i];
        for (int64_t j = 0; j < param_file_count(spec); j++) {
            arenas->values[SAVED_WEIGHTS][spec->offset + j] = (float)((spec->offset + 7 * j) % 255 - 127) / 8;
        }
    }
}

/* Load the path into an arena of its own shape, or of block_size where that is not 0. */
static inline void load_weights(Arenas *arenas, const char *path, int block_size)
{
    Error error;
    WeightsFile *weights = weights_open(path, &error);
    if (!weights) {
        fail_msg("%s", error.text);
    }
    ModelShape shape = weights_shape(weights);
    shape.block_size = block_size ? block_size : shape.block_size;
    arenas_init(arenas, &shape);
    StateSink sink = {write_state, arenas};
    if (weights_load(weights, &arenas->table, &sink, &error) != 0) {
        fail_msg("%s", error.text);
    }
    weights_close(weights);
}

static inline void check_weights(const char *path, const Arenas *expected)
{
    Arenas loaded;
    load_weights(&loaded, path, 0);
    assert_memory_equal(&loaded.table.shape, &expected->table.shape, sizeof(ModelShape));
    assert_memory_equal(loaded.values[SAVED_WEIGHTS], expected->values[SAVED_WEIGHTS],
                        (size_t)expected->table.arena_count * sizeof(float));
    arenas_release(&loaded);
}

/* Opening or loading fails with a message that holds `expected`. */
static inline void check_not_loaded(const char *path, const char *expected)
{
    Error error = {.text = ""};
    int status = -1;
    WeightsFile *weights = weights_open(path, &error);
    if (weights) {
        Arenas arenas;
        ModelShape shape = weights_shape(weights);
        arenas_init(&arenas, &shape);
        StateSink sink = {write_state, &arenas};
        status = weights_load(weights, &arenas.table, &sink, &error);
        arenas_release(&arenas);
        weights_close(weights);
    }
    if (status == 0 || !strstr(error.text, expected)) {
        fail_msg("%s: expected an error with '%s', found '%s'", path, expected,
                 status == 0 ? "none" : error.text);
    }
}

#endif
