#include "dev/reference/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/import.h"
#include "llmc/snapshot/safetensors.h"

static const char gradient_prefix[] = "grad.";
static const char hugging_face_prefix[] = "transformer.";
static const char remake_hint[] = "make the folder again with dev/reference/make_reference.py";

enum { EXTRA_TENSORS = 4 /* tokens, targets, logits, loss */, SHAPE_TEXT_BYTES = 128 };

/* "(2,33,129)" */
static void shape_text(char text[SHAPE_TEXT_BYTES], const int64_t *shape, int dimensions)
{
    size_t used = (size_t)snprintf(text, SHAPE_TEXT_BYTES, "(");
    for (int i = 0; i < dimensions && used < SHAPE_TEXT_BYTES; i++) {
        used += (size_t)snprintf(text + used, SHAPE_TEXT_BYTES - used, "%s%lld", i ? "," : "",
                                 (long long)shape[i]);
    }
    if (used < SHAPE_TEXT_BYTES) {
        snprintf(text + used, SHAPE_TEXT_BYTES - used, ")");
    }
}

/* What a tensor has to be. */
typedef struct Expected {
    const char *name;
    SafeDType dtype;
    int dimensions;
    int64_t shape[3];
} Expected;

/* The tensor, or NULL with *error when it is missing or of another kind. */
static const SafeTensor *find_tensor(const SafeFile *file, const Expected *expected, Error *error)
{
    char wanted[SHAPE_TEXT_BYTES], found[SHAPE_TEXT_BYTES];
    shape_text(wanted, expected->shape, expected->dimensions);
    const SafeTensor *tensor = safe_header_find(&file->header, expected->name);
    if (!tensor) {
        error_set(error, "%s: expected tensor %s %s %s, found none of that name; %s", file->path,
                  expected->name, safe_dtype_name(expected->dtype), wanted, remake_hint);
        return NULL;
    }
    int is_same = tensor->dtype == expected->dtype && tensor->dimensions == expected->dimensions;
    for (int i = 0; is_same && i < expected->dimensions; i++) {
        is_same = tensor->shape[i] == expected->shape[i];
    }
    if (!is_same) {
        shape_text(found, tensor->shape, tensor->dimensions);
        error_set(error, "%s: expected tensor %s to be %s %s, found %s %s; %s", file->path, expected->name,
                  safe_dtype_name(expected->dtype), wanted, safe_dtype_name(tensor->dtype), found,
                  remake_hint);
        return NULL;
    }
    return tensor;
}

static int read_floats(float *out, const SafeFile *file, const SafeTensor *tensor, Error *error)
{
    if (safe_file_floats(out, file, tensor, 0, tensor->count)) {
        return error_set(error, "%s: cannot read tensor %s", file->path, tensor->name);
    }
    for (int64_t i = 0; i < tensor->count; i++) {
        if (!isfinite(out[i])) {
            return error_set(error, "%s: expected finite numbers in tensor %s, found %g at element %lld; %s",
                             file->path, tensor->name, (double)out[i], (long long)i, remake_hint);
        }
    }
    return 0;
}

static int read_ids(int32_t *out, const SafeFile *file, const char *name, const Reference *reference,
                    Error *error)
{
    int V = reference->table.shape.vocab_size;
    const SafeTensor *tensor =
        find_tensor(file, &(Expected){name, SAFE_I64, 2, {reference->B, reference->T}}, error);
    if (!tensor) {
        return -1;
    }
    const unsigned char *bytes = safe_file_data(file, tensor);
    for (int64_t i = 0; i < tensor->count; i++) {
        int64_t id;
        memcpy(&id, bytes + i * (int64_t)sizeof(id), sizeof(id));
        if (id < 0 || id >= V) {
            return error_set(error, "%s: expected %s in 0 .. %d, found %lld at element %lld; %s", file->path,
                             name, V - 1, (long long)id, (long long)i, remake_hint);
        }
        out[i] = (int32_t)id;
    }
    return 0;
}

/* B and T from the shape of tokens. */
static int read_batch_shape(Reference *reference, const SafeFile *file, Error *error)
{
    const SafeTensor *tokens = safe_header_find(&file->header, "tokens");
    int block_size = reference->table.shape.block_size;
    if (!tokens || tokens->dimensions != 2) {
        return error_set(error, "%s: expected tensor tokens I64 (B,T), found %s; %s", file->path,
                         tokens ? "another shape" : "none of that name", remake_hint);
    }
    if (tokens->shape[0] < 1 || tokens->shape[0] > 65536 || tokens->shape[1] < 1 ||
        tokens->shape[1] > block_size) {
        return error_set(error,
                         "%s: expected tokens (B,T) with B in 1 .. 65536 and T in 1 .. %d, "
                         "found (%lld,%lld); %s",
                         file->path, block_size, (long long)tokens->shape[0], (long long)tokens->shape[1],
                         remake_hint);
    }
    reference->B = (int)tokens->shape[0];
    reference->T = (int)tokens->shape[1];
    return 0;
}

/* One gradient into the arena as [out,in]. */
static int read_gradient(Reference *reference, const SafeFile *file, const ParamSpec *spec, Error *error)
{
    char name[sizeof(spec->name) + 32];
    snprintf(name, sizeof(name), "%s%s%s", gradient_prefix, hugging_face_prefix, spec->name);
    Expected expected = {name, SAFE_F32, spec->dimensions, {spec->columns}};
    if (spec->dimensions == 2) {
        expected.shape[0] = spec->is_conv1d ? spec->columns : spec->rows;
        expected.shape[1] = spec->is_conv1d ? spec->rows : spec->columns;
    }
    const SafeTensor *tensor = find_tensor(file, &expected, error);
    if (!tensor) {
        return -1;
    }
    float *out = reference->gradients + spec->offset;
    float *values = memory_alloc((size_t)tensor->count, sizeof(*values), "reference gradient");
    int status = read_floats(values, file, tensor, error);
    for (int64_t i = 0; !status && i < tensor->count; i++) {
        int64_t row = i / spec->columns, column = i % spec->columns;
        out[i] = values[spec->is_conv1d ? column * spec->rows + row : i];
    }
    memory_free(values);
    return status;
}

/* Tensors that nobody asked for are as suspicious as missing ones. */
static int check_no_others(const Reference *reference, const SafeFile *file, Error *error)
{
    if (file->header.count == reference->table.count + EXTRA_TENSORS) {
        return 0;
    }
    size_t skip = strlen(gradient_prefix) + strlen(hugging_face_prefix);
    for (int i = 0; i < file->header.count; i++) {
        const char *name = file->header.tensors[i].name;
        int is_gradient = strncmp(name, gradient_prefix, strlen(gradient_prefix)) == 0;
        if (is_gradient && (strlen(name) < skip || params_find(&reference->table, name + skip) < 0)) {
            return error_set(error, "%s: expected gradients of this model's %d parameters only, found %s; %s",
                             file->path, reference->table.count, name, remake_hint);
        }
    }
    return 0; /* others than gradients may say more than we ask */
}

static int read_reference(Reference *reference, const SafeFile *file, Error *error)
{
    ParamTable *table = &reference->table;
    if (read_batch_shape(reference, file, error)) {
        return -1;
    }
    int64_t M = (int64_t)reference->B * reference->T, V = table->shape.vocab_size;
    const SafeTensor *logits =
        find_tensor(file, &(Expected){"logits", SAFE_F32, 3, {reference->B, reference->T, V}}, error);
    const SafeTensor *loss = logits ? find_tensor(file, &(Expected){"loss", SAFE_F32, 1, {1}}, error) : NULL;
    if (!loss) {
        return -1;
    }
    reference->tokens = memory_alloc((size_t)M, sizeof(int32_t), "tokens");
    reference->targets = memory_alloc((size_t)M, sizeof(int32_t), "targets");
    reference->logits = memory_alloc((size_t)(M * V), sizeof(float), "reference logits");
    reference->gradients = memory_alloc_zeroed((size_t)table->arena_count, sizeof(float), "gradients");
    if (read_ids(reference->tokens, file, "tokens", reference, error) ||
        read_ids(reference->targets, file, "targets", reference, error) ||
        read_floats(reference->logits, file, logits, error) ||
        read_floats(&reference->loss, file, loss, error)) {
        return -1;
    }
    for (int i = 0; i < table->count; i++) {
        if (read_gradient(reference, file, &table->specs[i], error)) {
            return -1;
        }
    }
    return check_no_others(reference, file, error);
}

static void write_weights(void *context, SavedState state, int64_t offset, const float *values, int64_t count)
{
    (void)state; /* only weights are asked for */
    memcpy((float *)context + offset, values, (size_t)count * sizeof(float));
}

static int read_weights(Reference *reference, const char *folder, Error *error)
{
    WeightsFile *file = weights_open(folder, error);
    if (!file) {
        return -1;
    }
    ModelShape shape = weights_shape(file);
    int status = model_shape_check(&shape, error);
    if (!status) {
        params_init(&reference->table, &shape);
        reference->weights =
            memory_alloc_zeroed((size_t)reference->table.arena_count, sizeof(float), "weights");
        StateSink sink = {write_weights, reference->weights};
        status = weights_load(file, &reference->table, &sink, error);
    }
    weights_close(file);
    return status;
}

int reference_init(Reference *reference, const char *folder, Error *error)
{
    char path[PATH_BYTES_MAX];
    SafeFile file;
    memset(reference, 0, sizeof(*reference));
    if (!path_is_folder(folder)) {
        return error_set(error, "%s: expected a reference folder, found %s; see dev/reference", folder,
                         path_exists(folder) ? "a file" : "nothing");
    }
    if (read_weights(reference, folder, error) || path_join(path, folder, "reference.safetensors", error) ||
        safe_file_init(&file, path, error)) {
        reference_release(reference);
        return -1;
    }
    int status = read_reference(reference, &file, error);
    safe_file_release(&file);
    if (status) {
        reference_release(reference);
    }
    return status;
}

void reference_release(Reference *reference)
{
    memory_free(reference->gradients);
    memory_free(reference->logits);
    memory_free(reference->targets);
    memory_free(reference->tokens);
    memory_free(reference->weights);
    if (reference->table.specs) {
        params_release(&reference->table);
    }
    memset(reference, 0, sizeof(*reference));
}
