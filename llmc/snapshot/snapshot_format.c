#define _GNU_SOURCE
#include "llmc/snapshot/snapshot_format.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/model/plans.h"
#include "llmc/snapshot/frames.h"
#include "llmc/snapshot/json_memory.h"
#include "llmc/snapshot/snapshot_verify.h"
#include "llmc/text/characters.h"

static const char format_name[] = "llmc-snapshot";
static const char format_version[] = "1";

static const char *const state_names[SAVED_STATES] = {
    [SAVED_WEIGHTS] = "param",
    [SAVED_MOMENT1] = "moment1",
    [SAVED_MOMENT2] = "moment2",
};

/* The fields of the model's shape, under the names of their options. */
static const struct {
    const char *key;
    size_t offset;
} shape_fields[] = {
    {"block_size", offsetof(ModelShape, block_size)}, {"vocab_size", offsetof(ModelShape, vocab_size)},
    {"n_layer", offsetof(ModelShape, n_layer)},       {"n_head", offsetof(ModelShape, n_head)},
    {"n_embd", offsetof(ModelShape, n_embd)},
};
enum { SHAPE_FIELDS = sizeof(shape_fields) / sizeof(shape_fields[0]) };

void snapshot_tensor_name(char name[SNAPSHOT_NAME_BYTES], SavedState state, const ParamSpec *spec, int plane)
{
    snprintf(name, SNAPSHOT_NAME_BYTES, "%s.%s/b%d", state_names[state], spec->name, plane);
}

void snapshot_info_release(SnapshotInfo *info)
{
    free(info->options);
    free(info->plans);
    free(info->characters);
    info->options = NULL;
    info->plans = NULL;
    info->characters = NULL;
}

/* Options have to be an object, so that readers need not care what they are. FRAMES_DAMAGED when they are
 * none, FRAMES_UNREADABLE when memory ran out. */
static int check_options(const char *options, const char *path, Error *error)
{
    json_memory_watch();
    json_t *json = options ? json_loads(options, JSON_REJECT_DUPLICATES, NULL) : NULL;
    int is_object = json_is_object(json);
    json_decref(json);
    if (!is_object && json_memory_failed()) {
        error_set(error, "%s: cannot read its options: out of memory; let the program have more", path);
        return FRAMES_UNREADABLE;
    }
    if (!is_object || strlen(options) > SNAPSHOT_OPTIONS_BYTES_MAX) {
        error_set(error, "%s: options: expected a JSON object of at most %d bytes", path,
                  SNAPSHOT_OPTIONS_BYTES_MAX);
        return FRAMES_DAMAGED;
    }
    return FRAMES_OK;
}

/* Plans are for a device to understand; their form is checked here, so that a bad one is never used. */
static int check_plans(const char *text, const char *path, Error *error)
{
    Plans *plans = memory_alloc(1, sizeof(*plans), "plans");
    int status = strlen(text) < PLANS_BYTES_MAX
                     ? plans_parse(plans, text, error)
                     : error_set(error, "expected at most %d bytes", PLANS_BYTES_MAX - 1);
    memory_free(plans);
    return status == 0 ? 0 : error_prefix(error, "%s: plans", path);
}

/* The vocabulary has as many characters as the model has tokens. FRAMES_DAMAGED or FRAMES_UNREADABLE. */
static int check_characters(const char *json, const ModelShape *shape, const char *path, Error *error)
{
    json_memory_watch();
    Characters *characters = characters_parse_json(json, strlen(json), error);
    if (!characters) {
        error_prefix(error, "%s: characters", path);
        return json_memory_failed() ? FRAMES_UNREADABLE : FRAMES_DAMAGED;
    }
    int count = characters_count(characters);
    characters_free(characters);
    if (count != shape->vocab_size) {
        error_set(error, "%s: characters: expected vocab_size=%d of them, found %d", path, shape->vocab_size,
                  count);
        return FRAMES_DAMAGED;
    }
    return FRAMES_OK;
}

static int add_number(SafeHeaderWriter *writer, const char *key, int64_t number, Error *error)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64, number);
    return safe_header_writer_metadata(writer, key, text, error);
}

static int add_metadata(SafeHeaderWriter *writer, const SnapshotInfo *info, const ModelShape *shape,
                        Error *error)
{
    char sample[32];
    char fingerprint[32];
    char best_loss[32];
    snprintf(sample, sizeof(sample), "%" PRIu64, info->sample);
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, info->data_fingerprint);
    snprintf(best_loss, sizeof(best_loss), "%.17g", info->best_loss);
    if (check_options(info->options, "snapshot", error) != 0 ||
        safe_header_writer_metadata(writer, "format", format_name, error) != 0 ||
        safe_header_writer_metadata(writer, "format_version", format_version, error) != 0 ||
        safe_header_writer_metadata(writer, "version", info->version, error) != 0 ||
        add_number(writer, "step", info->step, error) != 0 ||
        safe_header_writer_metadata(writer, "sample", sample, error) != 0 ||
        safe_header_writer_metadata(writer, "best_loss", best_loss, error) != 0 ||
        add_number(writer, "bad_steps", info->bad_steps, error) != 0 ||
        safe_header_writer_metadata(writer, "data_fingerprint", fingerprint, error) != 0 ||
        safe_header_writer_metadata(writer, "options", info->options, error) != 0) {
        return -1;
    }
    if (info->plans && (check_plans(info->plans, "snapshot", error) != 0 ||
                        safe_header_writer_metadata(writer, "plans", info->plans, error) != 0)) {
        return -1;
    }
    if (info->characters &&
        (check_characters(info->characters, shape, "snapshot", error) != 0 ||
         safe_header_writer_metadata(writer, "characters", info->characters, error) != 0)) {
        return -1;
    }
    for (int i = 0; i < SHAPE_FIELDS; i++) {
        int value = *(const int *)((const char *)shape + shape_fields[i].offset);
        if (add_number(writer, shape_fields[i].key, value, error) != 0) {
            return -1;
        }
    }
    return 0;
}

static int tensor_shape(int64_t shape[2], const ParamSpec *spec)
{
    shape[0] = spec->dimensions == 2 ? spec->rows : spec->columns;
    shape[1] = spec->columns;
    return spec->dimensions;
}

char *snapshot_tensors_create(uint64_t *bytes, uint64_t *data_bytes, const ParamTable *table, Error *error)
{
    SafeHeaderWriter writer = {0};
    int status = 0;
    int tensors = SAVED_STATES * table->count * SNAPSHOT_PLANES;
    for (int i = 0; i < tensors && status == 0; i++) {
        const ParamSpec *spec = &table->specs[i / SNAPSHOT_PLANES % table->count];
        char name[SNAPSHOT_NAME_BYTES];
        int64_t shape[2];
        snapshot_tensor_name(name, (SavedState)(i / SNAPSHOT_PLANES / table->count), spec,
                             i % SNAPSHOT_PLANES);
        status = safe_header_writer_tensor(&writer, name, SAFE_U8, shape, tensor_shape(shape, spec), error);
    }
    *data_bytes = writer.data_bytes;
    char *text = status == 0 ? safe_header_writer_finish(&writer, bytes) : NULL;
    if (status == 0 && !text) {
        error_set(error, "out of memory for its header");
    }
    safe_header_writer_release(&writer);
    return text;
}

/* Without the spaces that fill it up. */
static uint64_t text_end(const char *text, uint64_t bytes)
{
    while (text[bytes - 1] == ' ') {
        bytes--;
    }
    return bytes;
}

/* `{"__metadata__":{..}}` and `{"param.wte.weight/b0":{..}, ..}`, each behind 8 bytes of length, become
 * one. */
static char *join_headers(uint64_t *bytes, const char *metadata, uint64_t metadata_bytes, const char *tensors,
                          uint64_t tensors_bytes)
{
    uint64_t begin_bytes = text_end(metadata, metadata_bytes) - 1; /* without its last brace */
    uint64_t rest_bytes = text_end(tensors, tensors_bytes) - SAFETENSORS_LENGTH_BYTES - 1;
    uint64_t length = (begin_bytes + 1 + rest_bytes - SAFETENSORS_LENGTH_BYTES + 7) / 8 * 8;
    *bytes = SAFETENSORS_LENGTH_BYTES + length;
    char *header = memory_try_alloc(*bytes, 1);
    if (header) {
        memset(header, ' ', *bytes);
        memcpy(header, metadata, begin_bytes);
        header[begin_bytes] = ',';
        memcpy(header + begin_bytes + 1, tensors + SAFETENSORS_LENGTH_BYTES + 1, rest_bytes);
        for (int i = 0; i < SAFETENSORS_LENGTH_BYTES; i++) {
            header[i] = (char)(length >> (8 * i) & 0xff);
        }
    }
    return header;
}

char *snapshot_header_create(uint64_t *bytes, const SnapshotInfo *info, const ModelShape *shape,
                             const char *tensors, uint64_t tensors_bytes, Error *error)
{
    SafeHeaderWriter writer = {0};
    uint64_t metadata_bytes;
    int status = add_metadata(&writer, info, shape, error);
    char *metadata = status == 0 ? safe_header_writer_finish(&writer, &metadata_bytes) : NULL;
    char *header = metadata ? join_headers(bytes, metadata, metadata_bytes, tensors, tensors_bytes) : NULL;
    if (status == 0 && !header) {
        error_set(error, "out of memory for its header");
    }
    safe_header_writer_release(&writer);
    memory_free(metadata);
    return header;
}

/* A whole number of at least `least` in plain decimal digits. */
static int parse_number(int64_t *number, const SafeHeader *header, const char *key, int64_t least,
                        const char *path, Error *error)
{
    const char *text = safe_header_metadata(header, key);
    char *end = NULL;
    errno = 0;
    long long value = text && (*text == '-' || (*text >= '0' && *text <= '9')) ? strtoll(text, &end, 10) : 0;
    if (!end || *end != '\0' || errno != 0 || value < least) {
        error_set(error, "%s: %s: expected a whole number of %" PRId64 " or more, found %.100s", path, key,
                  least, text ? text : "none");
        return FRAMES_DAMAGED;
    }
    *number = value;
    return FRAMES_OK;
}

static int parse_shape(ModelShape *shape, const SafeHeader *header, const char *path, Error *error)
{
    for (int i = 0; i < SHAPE_FIELDS; i++) {
        int64_t value;
        if (parse_number(&value, header, shape_fields[i].key, 1, path, error) != 0) {
            return FRAMES_DAMAGED;
        }
        *(int *)((char *)shape + shape_fields[i].offset) = value > INT32_MAX ? INT32_MAX : (int)value;
    }
    if (model_shape_check(shape, error) != 0) {
        error_prefix(error, "%s", path);
        return FRAMES_DAMAGED;
    }
    return FRAMES_OK;
}

/* A field of text, which may not be missing. */
static const char *text_field(const SafeHeader *header, const char *key, const char *path, Error *error)
{
    const char *text = safe_header_metadata(header, key);
    if (!text) {
        error_set(error, "%s: expected %s in the metadata, found none", path, key);
    }
    return text;
}

static int parse_counters(SnapshotInfo *info, const SafeHeader *header, const char *path, Error *error)
{
    const char *best_loss = text_field(header, "best_loss", path, error);
    const char *sample = text_field(header, "sample", path, error);
    const char *fingerprint = text_field(header, "data_fingerprint", path, error);
    if (!best_loss || !sample || !fingerprint ||
        parse_number(&info->step, header, "step", 0, path, error) != 0 ||
        parse_number(&info->bad_steps, header, "bad_steps", 0, path, error) != 0) {
        return FRAMES_DAMAGED;
    }
    char *loss_end;
    char *sample_end;
    char *fingerprint_end;
    errno = 0;
    info->best_loss = strtod(best_loss, &loss_end);
    info->sample = strtoull(sample, &sample_end, 10);
    info->data_fingerprint = strtoull(fingerprint, &fingerprint_end, 16);
    int is_whole = loss_end != best_loss && sample_end != sample && !*loss_end && !*sample_end &&
                   fingerprint_end == fingerprint + 16 && !*fingerprint_end && sample[0] != '-';
    if (!is_whole || errno == ERANGE || isnan(info->best_loss)) {
        error_set(
            error,
            "%s: expected numbers for best_loss, sample and data_fingerprint, found %.40s, %.40s, %.40s",
            path, best_loss, sample, fingerprint);
        return FRAMES_DAMAGED;
    }
    return FRAMES_OK;
}

int snapshot_info_parse(SnapshotInfo *info, const SafeHeader *header, const char *path, Error *error)
{
    SnapshotInfo parsed = {0};
    const char *format = safe_header_metadata(header, "format");
    const char *version = safe_header_metadata(header, "format_version");
    if (!format || strcmp(format, format_name) != 0) {
        error_set(error, "%s: expected a snapshot, found a safetensors file of another kind", path);
        return FRAMES_DAMAGED;
    }
    if (!version || strcmp(version, format_version) != 0) {
        error_set(error, "%s: expected snapshot format %s, found %.40s; use the program that wrote it", path,
                  format_version, version ? version : "none");
        return FRAMES_UNREADABLE;
    }
    const char *program = text_field(header, "version", path, error);
    const char *options = text_field(header, "options", path, error);
    const char *plans = safe_header_metadata(header, "plans");           /* most runs have none */
    const char *characters = safe_header_metadata(header, "characters"); /* nor these */
    if (!program || !options) {
        return FRAMES_DAMAGED;
    }
    int status = check_options(options, path, error);
    if (status != FRAMES_OK) {
        return status;
    }
    if ((plans && check_plans(plans, path, error) != 0) ||
        parse_shape(&parsed.shape, header, path, error) != 0 ||
        parse_counters(&parsed, header, path, error) != 0) {
        return FRAMES_DAMAGED;
    }
    status = characters ? check_characters(characters, &parsed.shape, path, error) : FRAMES_OK;
    if (status != FRAMES_OK) {
        return status;
    }
    snprintf(parsed.version, sizeof(parsed.version), "%s", program);
    parsed.options = strdup(options);
    parsed.plans = plans ? strdup(plans) : NULL;
    parsed.characters = characters ? strdup(characters) : NULL;
    CHECK(parsed.options && !parsed.plans == !plans && !parsed.characters == !characters, "%s: out of memory",
          path);
    *info = parsed;
    return FRAMES_OK;
}

static int check_tensor(const SafeTensor *tensor, const ParamSpec *spec, const char *name, uint64_t offset,
                        const char *path, Error *error)
{
    int64_t shape[2];
    int dimensions = tensor_shape(shape, spec);
    if (!tensor) {
        return error_set(error, "%s: expected tensor %s, found none", path, name);
    }
    if (tensor->dtype != SAFE_U8 || tensor->dimensions != dimensions || tensor->shape[0] != shape[0] ||
        (dimensions == 2 && tensor->shape[1] != shape[1])) {
        return error_set(error,
                         "%s: tensor %s: expected U8 of %" PRId64 " x %" PRId64 ", found %s of another shape",
                         path, name, spec->rows, spec->columns, safe_dtype_name(tensor->dtype));
    }
    if (tensor->offset != offset) {
        return error_set(error, "%s: tensor %s: expected it at byte %" PRIu64 ", found it at %" PRIu64, path,
                         name, offset, tensor->offset);
    }
    return 0;
}

int snapshot_header_check(const SafeHeader *header, const ParamTable *table, const char *path, Error *error)
{
    int tensors = SAVED_STATES * table->count * SNAPSHOT_PLANES;
    uint64_t offset = 0;
    for (int i = 0; i < tensors; i++) {
        const ParamSpec *spec = &table->specs[i / SNAPSHOT_PLANES % table->count];
        char name[SNAPSHOT_NAME_BYTES];
        snapshot_tensor_name(name, (SavedState)(i / SNAPSHOT_PLANES / table->count), spec,
                             i % SNAPSHOT_PLANES);
        if (check_tensor(safe_header_find(header, name), spec, name, offset, path, error) != 0) {
            return FRAMES_DAMAGED;
        }
        offset += (uint64_t)param_file_count(spec);
    }
    if (header->count != tensors) {
        error_set(error, "%s: expected %d tensors, found %d", path, tensors, header->count);
        return FRAMES_DAMAGED;
    }
    return FRAMES_OK;
}

int model_shape_check_fits(const ModelShape *model, const ModelShape *file, Error *error)
{
    for (int i = 0; i < SHAPE_FIELDS; i++) {
        int wanted = *(const int *)((const char *)model + shape_fields[i].offset);
        int found = *(const int *)((const char *)file + shape_fields[i].offset);
        int is_block_size = shape_fields[i].offset == offsetof(ModelShape, block_size);
        if (is_block_size ? wanted > found : wanted != found) {
            return error_set(
                error, "expected a model of %s=%d%s, found %d; use the options that the model was made with",
                shape_fields[i].key, wanted, is_block_size ? " or more" : "", found);
        }
    }
    return 0;
}
