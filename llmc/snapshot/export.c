#include "llmc/snapshot/export.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/leftovers.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/export_files.h"
#include "llmc/snapshot/export_mark.h"
#include "llmc/snapshot/import_source.h"
#include "llmc/snapshot/safetensors.h"
#include "llmc/snapshot/transpose.h"

enum { CHUNK_VALUES = 1 << 16, TILE_COLUMNS = 64 /* of a matrix that is written transposed */ };

static void read_weights(float *values, const StateSource *source, const ParamSpec *spec, int64_t first,
                         int64_t count)
{
    source->read(source->context, SAVED_WEIGHTS, spec->offset + first, values, count);
}

/* A tensor as it lies in the arena. */
static int write_tensor(AtomicFile *file, const ParamSpec *spec, const StateSource *source, float *values,
                        Error *error)
{
    int64_t total = param_file_count(spec);
    for (int64_t first = 0; first < total; first += CHUNK_VALUES) {
        int64_t count = total - first < CHUNK_VALUES ? total - first : CHUNK_VALUES;
        read_weights(values, source, spec, first, count);
        if (atomic_file_write(file, values, (size_t)count * sizeof(float), error) != 0) {
            return -1;
        }
    }
    return 0;
}

/* A Conv1D matrix: [out,in] in the arena, [in,out] in the file. A row of the file is a column here, so the
 * matrix is read whole and turned a few columns at a time. */
static int write_transposed(AtomicFile *file, const ParamSpec *spec, const StateSource *source, float *matrix,
                            float *tile, Error *error)
{
    read_weights(matrix, source, spec, 0, param_file_count(spec));
    int status = 0;
    for (int64_t first = 0; first < spec->columns && status == 0; first += TILE_COLUMNS) {
        int64_t columns = spec->columns - first < TILE_COLUMNS ? spec->columns - first : TILE_COLUMNS;
        transpose_floats(tile, spec->rows, matrix + first, spec->columns, spec->rows, columns);
        status = atomic_file_write(file, tile, (size_t)(columns * spec->rows) * sizeof(float), error);
    }
    return status;
}

static char *create_header(uint64_t *bytes, const ParamTable *table, Error *error)
{
    SafeHeaderWriter writer = {0};
    int status = safe_header_writer_metadata(&writer, "format", "pt", error);
    if (status == 0) {
        status = safe_header_writer_metadata(&writer, EXPORT_MARK_KEY, EXPORT_MARK, error);
    }
    for (int i = 0; i < table->count && status == 0; i++) {
        const ParamSpec *spec = &table->specs[i];
        char name[sizeof(spec->name) + 16];
        int64_t shape[2] = {spec->is_conv1d ? spec->columns : spec->rows,
                            spec->is_conv1d ? spec->rows : spec->columns};
        snprintf(name, sizeof(name), "transformer.%s", spec->name);
        status = safe_header_writer_tensor(&writer, name, SAFE_F32, shape + (2 - spec->dimensions),
                                           spec->dimensions, error);
    }
    if (status != 0) {
        safe_header_writer_release(&writer);
        return NULL;
    }
    char *header = safe_header_writer_finish(&writer, bytes);
    if (!header) {
        error_set(error, "model.safetensors: out of memory for its header");
    }
    return header;
}

/* Values and rows of the largest matrix that is transposed. */
static void find_largest(int64_t *values, int64_t *rows, const ParamTable *table)
{
    *values = *rows = 1;
    for (int i = 0; i < table->count; i++) {
        const ParamSpec *spec = &table->specs[i];
        if (spec->is_conv1d) {
            *values = param_file_count(spec) > *values ? param_file_count(spec) : *values;
            *rows = spec->rows > *rows ? spec->rows : *rows;
        }
    }
}

static int write_weights(AtomicFile *file, const ParamTable *table, const StateSource *source, Error *error)
{
    uint64_t header_bytes;
    char *header = create_header(&header_bytes, table, error);
    if (!header) {
        return -1;
    }
    int status = atomic_file_write(file, header, header_bytes, error);
    float *values = memory_alloc(CHUNK_VALUES, sizeof(float), "weights to export");
    int64_t largest, tallest;
    find_largest(&largest, &tallest, table);
    float *matrix = memory_alloc((size_t)largest, sizeof(float), "matrix to export");
    float *tile = memory_alloc((size_t)(TILE_COLUMNS * tallest), sizeof(float), "matrix to export");
    for (int i = 0; i < table->count && status == 0; i++) {
        const ParamSpec *spec = &table->specs[i];
        status = spec->is_conv1d ? write_transposed(file, spec, source, matrix, tile, error)
                                 : write_tensor(file, spec, source, values, error);
    }
    memory_free(tile);
    memory_free(matrix);
    memory_free(values);
    memory_free(header);
    return status;
}

/* A small file of text, whole or not at all. */
static int write_text(const char *folder, const char *name, const char *text, size_t bytes, Error *error)
{
    char path[PATH_BYTES_MAX];
    AtomicFile file;
    if (path_join(path, folder, name, error) != 0 || leftovers_replace(&file, path, error) != 0) {
        return -1;
    }
    if (atomic_file_write(&file, text, bytes, error) != 0) {
        atomic_file_discard(&file);
        return -1;
    }
    return atomic_file_commit(&file, error);
}

/* All but a model card that somebody has written. */
static int write_small_files(const char *folder, const ExportFiles *files, Error *error)
{
    int status = 0;
    export_remove_stale(folder, files);
    for (int i = 0; i < files->count && status == 0; i++) {
        const ExportFile *file = &files->items[i];
        if (!export_card_stays(folder, file->name)) {
            status = write_text(folder, file->name, file->text, file->bytes, error);
        }
    }
    return status;
}

static int write_folder(const char *folder, const ParamTable *table, const StateSource *source,
                        const ExportFiles *files, Error *error)
{
    char path[PATH_BYTES_MAX];
    AtomicFile file;
    if (export_check_files(folder, files, error) != 0 ||
        path_join(path, folder, "model.safetensors", error) != 0 ||
        leftovers_replace(&file, path, error) != 0) {
        return -1;
    }
    /* The large file is what can fail; when it is complete, the small ones come first, so that weights never
     * stand beside another model's config. */
    if (write_weights(&file, table, source, error) != 0 || write_small_files(folder, files, error) != 0) {
        atomic_file_discard(&file);
        return -1;
    }
    return atomic_file_commit(&file, error);
}

int export_hugging_face(const char *folder, const ParamTable *table, const StateSource *source,
                        const Characters *characters, const ExportFacts *facts, Error *error)
{
    ExportFiles files;
    export_files_init(&files, &table->shape, characters, facts);
    int status = write_folder(folder, table, source, &files, error);
    export_files_release(&files);
    return status;
}

/* llm.c lays out all layers of one tensor after another. Rows of wte beyond the vocabulary are zeros. */
static int write_llmc(AtomicFile *file, const ParamTable *table, const StateSource *source, Error *error)
{
    const ModelShape *shape = &table->shape;
    int padded_vocab = model_shape_padded_vocab(shape);
    int32_t header[LLMC_MODEL_HEADER_BYTES / 4] = {LLMC_MODEL_MAGIC,  LLMC_VERSION_FP32, shape->block_size,
                                                   shape->vocab_size, shape->n_layer,    shape->n_head,
                                                   shape->n_embd,     padded_vocab};
    header[EXPORT_MARK_LLMC_INDEX] = EXPORT_MARK_LLMC;
    if (atomic_file_write(file, header, sizeof(header), error) != 0) {
        return -1;
    }
    float *values = memory_alloc_zeroed(CHUNK_VALUES, sizeof(float), "weights to export");
    int status = write_tensor(file, &table->specs[params_wte_index()], source, values, error);
    memset(values, 0, CHUNK_VALUES * sizeof(float));
    for (int row = shape->vocab_size; row < padded_vocab && status == 0; row++) {
        status = atomic_file_write(file, values, (size_t)shape->n_embd * sizeof(float), error);
    }
    if (status == 0) {
        status = write_tensor(file, &table->specs[params_wpe_index()], source, values, error);
    }
    for (int i = 0; i < BLOCK_TENSORS * shape->n_layer && status == 0; i++) {
        int index = params_block_index(i % shape->n_layer, (BlockTensor)(i / shape->n_layer));
        status = write_tensor(file, &table->specs[index], source, values, error);
    }
    for (int i = params_lnf_weight_index(table); i < table->count && status == 0; i++) {
        status = write_tensor(file, &table->specs[i], source, values, error);
    }
    memory_free(values);
    return status;
}

int export_llmc(const char *path, const ParamTable *table, const StateSource *source, Error *error)
{
    AtomicFile file;
    if (export_check_llmc(path, error) != 0 || leftovers_replace(&file, path, error) != 0) {
        return -1;
    }
    if (write_llmc(&file, table, source, error) != 0) {
        atomic_file_discard(&file);
        return -1;
    }
    return atomic_file_commit(&file, error);
}
