#include "llmc/run/run_model.h"

#include <string.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"

/* State crosses the seam in pieces of this many chunks; each chunk is drawn or hashed by one thread. */
enum { CHUNK_COUNT = 1 << 17, PIECE_CHUNKS = 64 };

_Static_assert((int)SAVED_WEIGHTS == (int)STATE_WEIGHTS && (int)SAVED_MOMENT1 == (int)STATE_MOMENT1 &&
                   (int)SAVED_MOMENT2 == (int)STATE_MOMENT2,
               "files and devices name states alike");

int run_model_init(RunModel *model, const Backend *backend, const ModelConfig *config, Error *error)
{
    memset(model, 0, sizeof(*model));
    model->model = backend->create(config, error);
    if (!model->model) {
        return -1;
    }
    model->backend = backend;
    params_init(&model->table, &config->shape);
    return 0;
}

void run_model_release(RunModel *model)
{
    if (model->model) {
        model->backend->release(model->model);
        params_release(&model->table);
    }
    memset(model, 0, sizeof(*model));
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void run_model_draw_weights(RunModel *model, uint64_t seed)
{
    const ParamTable *table = &model->table;
    const int64_t piece_count = (int64_t)CHUNK_COUNT * PIECE_CHUNKS;
    float *piece = memory_alloc((size_t)piece_count, sizeof(float), "initial weights");
    for (int i = 0; i < table->count; i++) {
        int64_t tensor_count = param_file_count(&table->specs[i]);
        for (int64_t first = 0; first < tensor_count; first += piece_count) {
            int64_t count = smaller(piece_count, tensor_count - first);
#pragma omp parallel for schedule(static, 1)
            for (int64_t begin = 0; begin < count; begin += CHUNK_COUNT) {
                params_draw_initial(piece + begin, table, i, first + begin,
                                    smaller(CHUNK_COUNT, count - begin), seed);
            }
            model->backend->write_state(model->model, STATE_WEIGHTS, table->specs[i].offset + first, piece,
                                        count);
        }
    }
    memory_free(piece);
}

uint64_t run_model_hash(const RunModel *model)
{
    const ParamTable *table = &model->table;
    const int64_t piece_count = (int64_t)CHUNK_COUNT * PIECE_CHUNKS;
    float *piece = memory_alloc((size_t)piece_count, sizeof(float), "hash of the weights");
    uint64_t hash = 0;
    for (int i = 0; i < table->count; i++) {
        int64_t tensor_count = param_file_count(&table->specs[i]);
        for (int64_t first = 0; first < tensor_count; first += piece_count) {
            int64_t count = smaller(piece_count, tensor_count - first);
            uint64_t chunk_hashes[PIECE_CHUNKS];
            model->backend->read_state(model->model, STATE_WEIGHTS, table->specs[i].offset + first, piece,
                                       count);
#pragma omp parallel for schedule(static, 1)
            for (int64_t begin = 0; begin < count; begin += CHUNK_COUNT) {
                size_t bytes = (size_t)smaller(CHUNK_COUNT, count - begin) * sizeof(float);
                chunk_hashes[begin / CHUNK_COUNT] = hash_bytes(piece + begin, bytes, 0);
            }
            size_t chunks = (size_t)((count + CHUNK_COUNT - 1) / CHUNK_COUNT);
            hash = hash_bytes(chunk_hashes, chunks * sizeof(uint64_t), hash);
        }
    }
    memory_free(piece);
    return hash;
}

static void read_state(void *context, SavedState state, int64_t offset, float *values, int64_t count)
{
    const RunModel *model = context;
    model->backend->read_state(model->model, (StateKind)state, offset, values, count);
}

static void write_state(void *context, SavedState state, int64_t offset, const float *values, int64_t count)
{
    RunModel *model = context;
    model->backend->write_state(model->model, (StateKind)state, offset, values, count);
}

StateSource run_model_source(RunModel *model)
{
    return (StateSource){.read = read_state, .context = model};
}

StateSink run_model_sink(RunModel *model)
{
    return (StateSink){.write = write_state, .context = model};
}
