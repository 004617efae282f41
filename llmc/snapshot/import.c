#include "llmc/snapshot/import.h"

#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/import_source.h"
#include "llmc/snapshot/snapshot_verify.h"
#include "llmc/snapshot/transpose.h"

enum {
    CHUNK_VALUES = 1 << 16,
    TILE_ROWS = 128, /* of a transposed matrix, handed over at a time */
    STRIP_COLUMNS = 16,
    TOKEN_FILE_MAGIC = 20240520
};

struct WeightsFile {
    char path[PATH_BYTES_MAX];
    WeightsKind kind;
    ModelShape shape;
    Snapshot *snapshot;
    HuggingFaceWeights hugging_face;
    LlmcWeights llmc;
};

/* The first bytes of a file; fewer where it is shorter. */
static int read_beginning(unsigned char beginning[16], const char *path, Error *error)
{
    MappedFile file;
    memset(beginning, 0, 16);
    if (mapped_file_init(&file, path, error) != 0) {
        return -1;
    }
    if (file.bytes > 0) {
        memcpy(beginning, file.data, file.bytes < 16 ? (size_t)file.bytes : 16);
    }
    mapped_file_release(&file);
    return 0;
}

/* torch.save writes a zip of pickles; before PyTorch 1.6 it wrote pickles one after another. */
static int is_pytorch(const unsigned char beginning[16])
{
    return memcmp(beginning, "PK\3\4", 4) == 0 ||
           (beginning[0] == 0x80 && beginning[1] >= 2 && beginning[1] <= 5);
}

/* Which format a path holds, by content. */
static int tell_kind(WeightsKind *kind, const char *path, Error *error)
{
    static const unsigned char zstd_magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    unsigned char beginning[16];
    int32_t magic;
    if (path_is_folder(path)) {
        *kind = WEIGHTS_HUGGING_FACE;
        return 0;
    }
    if (read_beginning(beginning, path, error) != 0) {
        return -1;
    }
    memcpy(&magic, beginning, sizeof(magic));
    if (memcmp(beginning, zstd_magic, sizeof(zstd_magic)) == 0) {
        *kind = WEIGHTS_SNAPSHOT;
    } else if (magic == LLMC_MODEL_MAGIC) {
        *kind = WEIGHTS_LLMC;
    } else if (beginning[SAFETENSORS_LENGTH_BYTES] == '{') {
        *kind = WEIGHTS_HUGGING_FACE;
    } else if (is_pytorch(beginning)) {
        return error_set(error,
                         "%s: expected a model (snapshot, Hugging Face folder, model.safetensors or llm.c's "
                         ".bin), found a checkpoint of PyTorch; convert it first: "
                         "scripts/convert_checkpoint.py %s FOLDER, then --init_from=FOLDER",
                         path, path);
    } else {
        return error_set(
            error,
            "%s: expected a model (snapshot, Hugging Face folder, model.safetensors or llm.c's .bin), "
            "found %s",
            path, magic == TOKEN_FILE_MAGIC ? "a token file" : "something else");
    }
    return 0;
}

static int open_kind(WeightsFile *weights, Error *error)
{
    switch (weights->kind) {
    case WEIGHTS_SNAPSHOT:
        weights->snapshot = snapshot_open(weights->path, error);
        if (!weights->snapshot) {
            return -1;
        }
        weights->shape = snapshot_info(weights->snapshot)->shape;
        return 0;
    case WEIGHTS_HUGGING_FACE:
        if (hugging_face_open(&weights->hugging_face, weights->path, error) != 0) {
            return -1;
        }
        weights->shape = weights->hugging_face.shape;
        return 0;
    case WEIGHTS_LLMC:
        if (llmc_weights_open(&weights->llmc, weights->path, error) != 0) {
            return -1;
        }
        weights->shape = weights->llmc.shape;
        return 0;
    }
    return -1;
}

WeightsFile *weights_open(const char *path, Error *error)
{
    WeightsFile *weights = memory_alloc_zeroed(1, sizeof(*weights), "weights file");
    int status = 0;
    if (strlen(path) >= sizeof(weights->path)) {
        status = error_set(error, "%.200s...: the path is longer than %d bytes", path, PATH_BYTES_MAX);
    } else {
        memcpy(weights->path, path, strlen(path) + 1);
        status = tell_kind(&weights->kind, path, error);
    }
    if (status == 0) {
        status = open_kind(weights, error);
    }
    if (status != 0) {
        memory_free(weights);
        return NULL;
    }
    return weights;
}

void weights_close(WeightsFile *weights)
{
    if (weights) {
        snapshot_close(weights->snapshot);
        hugging_face_close(&weights->hugging_face);
        llmc_weights_close(&weights->llmc);
        memory_free(weights);
    }
}

WeightsKind weights_kind(const WeightsFile *weights)
{
    return weights->kind;
}

const char *weights_kind_name(const WeightsFile *weights)
{
    static const char *const names[] = {
        [WEIGHTS_SNAPSHOT] = "snapshot", [WEIGHTS_HUGGING_FACE] = "Hugging Face", [WEIGHTS_LLMC] = "llm.c"};
    return names[weights->kind];
}

ModelShape weights_shape(const WeightsFile *weights)
{
    return weights->shape;
}

const SnapshotInfo *weights_snapshot_info(const WeightsFile *weights)
{
    return weights->snapshot ? snapshot_info(weights->snapshot) : NULL;
}

/* Hand values over, unless one of them could never be trained away. */
static int hand_over(const StateSink *sink, const WeightsFile *weights, const ParamSpec *spec, int64_t first,
                     const float *values, int64_t count, Error *error)
{
    if (state_has_non_finite(values, count)) {
        return error_set(error, "%s: tensor %s: expected finite weights, found a NaN or an infinity",
                         weights->path, spec->name);
    }
    sink->write(sink->context, SAVED_WEIGHTS, spec->offset + first, values, count);
    return 0;
}

/* What loading needs beside the model. */
typedef struct LoadSpace {
    float *values; /* (CHUNK_VALUES) */
    float *tile;   /* (TILE_ROWS, columns of the widest matrix) */
} LoadSpace;

static void load_space_init(LoadSpace *space, const ParamTable *table)
{
    int64_t widest = 1;
    for (int i = 0; i < table->count; i++) {
        widest =
            table->specs[i].is_conv1d && table->specs[i].columns > widest ? table->specs[i].columns : widest;
    }
    space->values = memory_alloc(CHUNK_VALUES, sizeof(float), "weights");
    space->tile = memory_alloc((size_t)(TILE_ROWS * widest), sizeof(float), "weights");
}

static void load_space_release(LoadSpace *space)
{
    memory_free(space->values);
    memory_free(space->tile);
}

/* A matrix that lies [in,out] in the file goes out as [out,in], a few rows of it at a time. */
static int load_transposed(const WeightsFile *weights, const ParamSpec *spec, const SafeFile *file,
                           const SafeTensor *tensor, const StateSink *sink, const LoadSpace *space,
                           Error *error)
{
    int status = 0;
    for (int64_t row = 0; row < spec->rows && status == 0; row += TILE_ROWS) {
        int64_t rows = spec->rows - row < TILE_ROWS ? spec->rows - row : TILE_ROWS;
        for (int64_t column = 0; column < spec->columns; column += STRIP_COLUMNS) {
            int64_t left = spec->columns - column;
            int64_t columns = left < STRIP_COLUMNS ? left : STRIP_COLUMNS;
            float strip[STRIP_COLUMNS * TILE_ROWS]; /* columns as they lie in the file */
            for (int64_t c = 0; c < columns; c++) {
                safe_file_floats(strip + c * rows, file, tensor, (column + c) * spec->rows + row, rows);
            }
            transpose_floats(space->tile + column, spec->columns, strip, rows, columns, rows);
        }
        status =
            hand_over(sink, weights, spec, row * spec->columns, space->tile, rows * spec->columns, error);
    }
    return status;
}

/* The first values of a tensor of the table, in the order in which they lie in the file. */
static int load_tensor(const WeightsFile *weights, const ParamTable *table, int index, const StateSink *sink,
                       const LoadSpace *space, Error *error)
{
    const ParamSpec *spec = &table->specs[index];
    const SafeFile *file = NULL;
    const SafeTensor *tensor = NULL;
    if (weights->kind == WEIGHTS_HUGGING_FACE) {
        tensor = hugging_face_find(&file, &weights->hugging_face, spec->name);
        if (spec->is_conv1d) {
            return load_transposed(weights, spec, file, tensor, sink, space, error);
        }
    }
    int64_t total = param_file_count(spec);
    int status = 0;
    for (int64_t first = 0; first < total && status == 0; first += CHUNK_VALUES) {
        int64_t count = total - first < CHUNK_VALUES ? total - first : CHUNK_VALUES;
        if (tensor) {
            safe_file_floats(space->values, file, tensor, first, count);
        } else {
            llmc_weights_floats(space->values, &weights->llmc, index, first, count);
        }
        status = hand_over(sink, weights, spec, first, space->values, count, error);
    }
    return status;
}

int weights_load(WeightsFile *weights, const ParamTable *table, const StateSink *sink, Error *error)
{
    if (weights->kind == WEIGHTS_SNAPSHOT) {
        return snapshot_load_finite(weights->snapshot, table, SAVED_WEIGHTS, SAVED_WEIGHTS, sink, error);
    }
    if (model_shape_check_fits(&table->shape, &weights->shape, error) != 0) {
        return error_prefix(error, "%s", weights->path);
    }
    LoadSpace space;
    load_space_init(&space, table);
    int status = 0;
    for (int i = 0; i < table->count && status == 0; i++) {
        status = load_tensor(weights, table, i, sink, &space, error);
    }
    load_space_release(&space);
    return status;
}
