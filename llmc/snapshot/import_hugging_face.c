/* Hugging Face's GPT-2: model.safetensors, whole or in pieces, with config.json. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/import_source.h"
#include "llmc/snapshot/json_memory.h"

enum {
    INDEX_BYTES_MAX = 64 << 20,
    PIECES_MAX = 1000,
    HEAD_COLUMNS = 64,
    NAME_BYTES = 128,
    COMPARE_VALUES = 4096
};

static const char prefix[] = "transformer.";
static const char lm_head[] = "lm_head.weight";

/* A tensor under exactly this name, in whichever file. */
static const SafeTensor *find_exact(const SafeFile **file, const HuggingFaceWeights *weights,
                                    const char *name)
{
    for (int i = 0; i < weights->file_count; i++) {
        const SafeTensor *tensor = safe_header_find(&weights->files[i].header, name);
        if (tensor) {
            *file = &weights->files[i];
            return tensor;
        }
    }
    return NULL;
}

const SafeTensor *hugging_face_find(const SafeFile **file, const HuggingFaceWeights *weights,
                                    const char *name)
{
    char prefixed[NAME_BYTES];
    snprintf(prefixed, sizeof(prefixed), "%s%s", prefix, name);
    const SafeTensor *tensor = find_exact(file, weights, prefixed);
    if (!tensor) {
        tensor = find_exact(file, weights, name);
    }
    if (!tensor && strcmp(name, "wte.weight") == 0) {
        /* Both are one tensor, and some programs keep this name of the two. */
        tensor = find_exact(file, weights, lm_head);
    }
    return tensor;
}

/* What messages call the model. */
static const char *weights_path(const HuggingFaceWeights *weights)
{
    return weights->files[0].path;
}

/* Shape from the tensors: wte (V,C), wpe (T,C), and as many blocks as there are. Heads leave no trace. */
static int infer_shape(HuggingFaceWeights *weights, Error *error)
{
    const SafeFile *file;
    const SafeTensor *wte = hugging_face_find(&file, weights, "wte.weight");
    const SafeTensor *wpe = hugging_face_find(&file, weights, "wpe.weight");
    if (!wte || !wpe || wte->dimensions != 2 || wpe->dimensions != 2) {
        return error_set(error, "%s: expected GPT-2's wte.weight and wpe.weight of two dimensions, found %s",
                         weights_path(weights), wte && wpe ? "other shapes" : "no such tensor");
    }
    int layers = 0;
    char name[NAME_BYTES];
    do {
        snprintf(name, sizeof(name), "h.%d.ln_1.weight", layers);
    } while (hugging_face_find(&file, weights, name) && ++layers <= MODEL_LAYERS_MAX);
    if (wte->shape[0] > INT_MAX || wte->shape[1] > INT_MAX || wpe->shape[0] > INT_MAX) {
        return error_set(error, "%s: wte.weight and wpe.weight are larger than any GPT-2",
                         weights_path(weights));
    }
    weights->shape = (ModelShape){.block_size = (int)wpe->shape[0],
                                  .vocab_size = (int)wte->shape[0],
                                  .n_layer = layers,
                                  .n_head = 1,
                                  .n_embd = (int)wte->shape[1]};
    if (model_shape_check(&weights->shape, error) != 0) {
        return error_prefix(error, "%s", weights_path(weights));
    }
    return 0;
}

/* One tensor of the table: there, of its shape and of a type that holds weights. */
static int check_tensor(const HuggingFaceWeights *weights, const ParamSpec *spec, Error *error)
{
    const SafeFile *file;
    const SafeTensor *tensor = hugging_face_find(&file, weights, spec->name);
    int64_t rows = spec->is_conv1d ? spec->columns : spec->rows;
    int64_t columns = spec->is_conv1d ? spec->rows : spec->columns;
    if (!tensor) {
        return error_set(error, "%s: expected tensor %s, found none", weights_path(weights), spec->name);
    }
    int is_shape = spec->dimensions == 2
                       ? tensor->dimensions == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns
                       : tensor->dimensions == 1 && tensor->shape[0] == columns;
    if (!is_shape) {
        char expected[64];
        snprintf(expected, sizeof(expected),
                 spec->dimensions == 2 ? "[%2$" PRId64 ", %1$" PRId64 "]" : "[%1$" PRId64 "]", columns, rows);
        return error_set(error, "%s: tensor %.100s: expected shape %s, found another of %" PRId64 " values",
                         file->path, tensor->name, expected, tensor->count);
    }
    if (tensor->dtype != SAFE_F32 && tensor->dtype != SAFE_F16 && tensor->dtype != SAFE_BF16) {
        return error_set(error, "%s: tensor %.100s: expected F32, F16 or BF16, found %s", file->path,
                         tensor->name, safe_dtype_name(tensor->dtype));
    }
    return 0;
}

/* Buffers of transformers that hold the causal mask: "h.11.attn.bias". */
static int is_mask(const char *name)
{
    if (strncmp(name, "h.", 2) != 0) {
        return 0;
    }
    const char *rest = name + 2 + strspn(name + 2, "0123456789");
    return rest > name + 2 && (strcmp(rest, ".attn.bias") == 0 || strcmp(rest, ".attn.masked_bias") == 0);
}

/* No tensor may be there that this model would leave out, or that is there twice. */
static int check_names(const HuggingFaceWeights *weights, const ParamTable *table, Error *error)
{
    for (int i = 0; i < weights->file_count; i++) {
        const SafeFile *file = &weights->files[i];
        for (int j = 0; j < file->header.count; j++) {
            const SafeTensor *tensor = &file->header.tensors[j];
            const char *name = tensor->name;
            name += strncmp(name, prefix, sizeof(prefix) - 1) == 0 ? sizeof(prefix) - 1 : 0;
            if (is_mask(name)) {
                continue;
            }
            int is_head = strcmp(tensor->name, lm_head) == 0;
            if (!is_head && params_find(table, name) < 0) {
                return error_set(error, "%s: tensor %.100s: not part of a GPT-2 of %d blocks", file->path,
                                 tensor->name, table->shape.n_layer);
            }
            const SafeFile *first_file;
            const SafeTensor *first = is_head ? find_exact(&first_file, weights, lm_head)
                                              : hugging_face_find(&first_file, weights, name);
            if (first != tensor) {
                return error_set(error, "%s: tensor %.100s: given twice", file->path, tensor->name);
            }
        }
    }
    return 0;
}

/* The output layer is the token embedding: a file whose two differ holds another model. */
static int check_head(const HuggingFaceWeights *weights, Error *error)
{
    const SafeFile *head_file;
    const SafeFile *wte_file;
    const SafeTensor *head = find_exact(&head_file, weights, lm_head);
    const SafeTensor *wte = hugging_face_find(&wte_file, weights, "wte.weight");
    if (!head || head == wte) {
        return 0;
    }
    if (head->dimensions != 2 || head->shape[0] != wte->shape[0] || head->shape[1] != wte->shape[1]) {
        return error_set(error, "%s: lm_head.weight: expected the shape of wte.weight, found another",
                         head_file->path);
    }
    float a[COMPARE_VALUES];
    float b[COMPARE_VALUES];
    for (int64_t first = 0; first < wte->count; first += COMPARE_VALUES) {
        int64_t count = wte->count - first < COMPARE_VALUES ? wte->count - first : COMPARE_VALUES;
        if (safe_file_floats(a, head_file, head, first, count) != 0) {
            return error_set(error, "%s: lm_head.weight: expected F32, F16 or BF16, found %s",
                             head_file->path, safe_dtype_name(head->dtype));
        }
        safe_file_floats(b, wte_file, wte, first, count);
        for (int64_t i = 0; i < count; i++) {
            if (a[i] != b[i]) {
                return error_set(
                    error,
                    "%s: lm_head.weight: expected it to equal wte.weight (GPT-2 ties them), found %.9g "
                    "and %.9g at row %" PRId64 ", column %" PRId64,
                    head_file->path, (double)a[i], (double)b[i], (first + i) / wte->shape[1],
                    (first + i) % wte->shape[1]);
            }
        }
    }
    return 0;
}

static int check_tensors(HuggingFaceWeights *weights, Error *error)
{
    ParamTable table;
    params_init(&table, &weights->shape);
    int status = 0;
    for (int i = 0; i < table.count && status == 0; i++) {
        status = check_tensor(weights, &table.specs[i], error);
    }
    if (status == 0) {
        status = check_names(weights, &table, error);
    }
    params_release(&table);
    return status == 0 ? check_head(weights, error) : -1;
}

/* config.json where it lies; a bare file without one has GPT-2's heads of 64. */
static int find_heads(HuggingFaceWeights *weights, const char *folder, int is_folder, Error *error)
{
    char path[PATH_BYTES_MAX];
    if (path_join(path, folder, "config.json", error) != 0) {
        return -1;
    }
    if (is_folder || path_exists(path)) {
        return hugging_face_check_config(&weights->shape, path, error);
    }
    if (weights->shape.n_embd % HEAD_COLUMNS != 0) {
        return error_set(
            error,
            "%s: expected config.json beside it, found none: n_head cannot be told from n_embd=%d; give "
            "the folder that holds both",
            weights_path(weights), weights->shape.n_embd);
    }
    weights->shape.n_head = weights->shape.n_embd / HEAD_COLUMNS;
    return 0;
}

static int open_piece(HuggingFaceWeights *weights, const char *folder, const char *name, Error *error)
{
    char path[PATH_BYTES_MAX];
    if (strchr(name, '/') || name[0] == '\0') {
        return error_set(error, "%s: expected names of files in this folder, found %.100s", folder, name);
    }
    if (path_join(path, folder, name, error) != 0) {
        return -1;
    }
    for (int i = 0; i < weights->file_count; i++) {
        if (strcmp(weights->files[i].path, path) == 0) {
            return 0;
        }
    }
    if (weights->file_count == PIECES_MAX) {
        return error_set(error, "%s: expected at most %d files of weights", folder, PIECES_MAX);
    }
    weights->files = memory_grow(weights->files, (size_t)weights->file_count, (size_t)weights->file_count + 1,
                                 sizeof(*weights->files), "weights files");
    if (safe_file_init(&weights->files[weights->file_count], path, error) != 0) {
        return -1;
    }
    weights->file_count++;
    return 0;
}

/* The files that model.safetensors.index.json names. */
static int open_index(HuggingFaceWeights *weights, const char *folder, const char *path, Error *error)
{
    size_t bytes;
    char *text = file_read(path, INDEX_BYTES_MAX, &bytes, error);
    if (!text) {
        return -1;
    }
    json_memory_watch();
    json_t *index = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    memory_free(text);
    if (!index && json_memory_failed()) {
        return error_set(error, "%s: cannot read: out of memory; let the program have more", path);
    }
    json_t *map = json_object_get(index, "weight_map");
    int status = json_object_size(map) > 0
                     ? 0
                     : error_set(error, "%s: expected JSON with weight_map, found none", path);
    const char *tensor;
    json_t *name;
    json_object_foreach(map, tensor, name)
    {
        if (status == 0) {
            status =
                json_is_string(name)
                    ? open_piece(weights, folder, json_string_value(name), error)
                    : error_set(error, "%s: weight_map: %.100s: expected the name of a file", path, tensor);
        }
    }
    json_decref(index);
    return status;
}

static int open_folder(HuggingFaceWeights *weights, const char *folder, Error *error)
{
    char whole[PATH_BYTES_MAX];
    char index[PATH_BYTES_MAX];
    if (path_join(whole, folder, "model.safetensors", error) != 0 ||
        path_join(index, folder, "model.safetensors.index.json", error) != 0) {
        return -1;
    }
    if (path_exists(whole)) {
        return open_piece(weights, folder, "model.safetensors", error);
    }
    if (path_exists(index)) {
        return open_index(weights, folder, index, error);
    }
    static const char *const checkpoints[] = {"ckpt.pt", "pytorch_model.bin", "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < sizeof(checkpoints) / sizeof(checkpoints[0]); i++) {
        if (path_join(whole, folder, checkpoints[i], NULL) == 0 && path_exists(whole)) {
            return error_set(
                error,
                "%s: expected config.json and model.safetensors, found %s of PyTorch; convert it "
                "first: scripts/convert_checkpoint.py %s FOLDER, then --init_from=FOLDER",
                folder, checkpoints[i], folder);
        }
    }
    return error_set(
        error,
        "%s: expected config.json and model.safetensors, found no model.safetensors; save the model with "
        "save_pretrained(folder, safe_serialization=True)",
        folder);
}

/* The folder that a file lies in, and its name. */
static const char *split_path(char folder[PATH_BYTES_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');
    int bytes = slash ? (int)(slash - path) : 1;
    snprintf(folder, PATH_BYTES_MAX, "%.*s", bytes ? bytes : 1, slash ? path : ".");
    return slash ? slash + 1 : path;
}

int hugging_face_open(HuggingFaceWeights *weights, const char *path, Error *error)
{
    char folder[PATH_BYTES_MAX];
    memset(weights, 0, sizeof(*weights));
    int is_folder = path_is_folder(path);
    int status;
    if (is_folder) {
        snprintf(folder, sizeof(folder), "%s", path);
        status = open_folder(weights, folder, error);
    } else {
        const char *name = split_path(folder, path);
        status = open_piece(weights, folder, name, error);
    }
    if (status == 0) {
        status = infer_shape(weights, error);
    }
    if (status == 0) {
        status = find_heads(weights, folder, is_folder, error);
    }
    if (status == 0) {
        status = check_tensors(weights, error);
    }
    if (status == 0 && model_shape_check(&weights->shape, error) != 0) {
        status = error_prefix(error, "%s", path);
    }
    if (status != 0) {
        hugging_face_close(weights);
    }
    return status;
}

void hugging_face_close(HuggingFaceWeights *weights)
{
    for (int i = 0; i < weights->file_count; i++) {
        safe_file_release(&weights->files[i]);
    }
    memory_free(weights->files);
    memset(weights, 0, sizeof(*weights));
}
