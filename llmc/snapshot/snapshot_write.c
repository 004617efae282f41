#include <inttypes.h>
#include <stdio.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/frames.h"
#include "llmc/snapshot/snapshot.h"
#include "llmc/snapshot/snapshot_format.h"

/* Values as they come from the source, and one byte of each. */
typedef struct PlaneBuffers {
    float *values;
    unsigned char *bytes;
} PlaneBuffers;

int snapshot_path(char *path, const char *out_dir, int64_t step, Error *error)
{
    char name[64];
    snprintf(name, sizeof(name), "step-%08" PRId64 ".snap", step);
    return path_join(path, out_dir, name, error);
}

/* One byte of every value of a tensor. */
static int write_plane(FrameWriter *writer, PlaneBuffers *buffers, const StateSource *source,
                       SavedState state, const ParamSpec *spec, int plane, Error *error)
{
    int64_t total = param_file_count(spec);
    for (int64_t first = 0; first < total; first += SNAPSHOT_CHUNK_VALUES) {
        int64_t count = total - first < SNAPSHOT_CHUNK_VALUES ? total - first : SNAPSHOT_CHUNK_VALUES;
        source->read(source->context, state, spec->offset + first, buffers->values, count);
        const unsigned char *bytes = (const unsigned char *)buffers->values + plane;
        for (int64_t i = 0; i < count; i++) {
            buffers->bytes[i] = bytes[SNAPSHOT_PLANES * i];
        }
        if (frame_writer_write(writer, buffers->bytes, (size_t)count, error) != 0) {
            return -1;
        }
    }
    return 0;
}

static int write_states(FrameWriter *writer, const ParamTable *table, const StateSource *source, Error *error)
{
    PlaneBuffers buffers = {memory_alloc(SNAPSHOT_CHUNK_VALUES, sizeof(float), "snapshot values"),
                            memory_alloc(SNAPSHOT_CHUNK_VALUES, 1, "snapshot plane")};
    int tensors = SAVED_STATES * table->count * SNAPSHOT_PLANES;
    int status = 0;
    for (int i = 0; i < tensors && status == 0; i++) {
        const ParamSpec *spec = &table->specs[i / SNAPSHOT_PLANES % table->count];
        SavedState state = (SavedState)(i / SNAPSHOT_PLANES / table->count);
        status = write_plane(writer, &buffers, source, state, spec, i % SNAPSHOT_PLANES, error);
    }
    memory_free(buffers.values);
    memory_free(buffers.bytes);
    return status;
}

int snapshot_write(uint64_t *bytes, const char *out_dir, const SnapshotInfo *info, const ParamTable *table,
                   const StateSource *source, int threads, Error *error)
{
    char path[PATH_BYTES_MAX];
    uint64_t header_bytes;
    uint64_t data_bytes;
    FrameWriter writer;
    if (snapshot_path(path, out_dir, info->step, error) != 0 || folder_create(out_dir, error) != 0) {
        return -1;
    }
    char *header = snapshot_header_create(&header_bytes, &data_bytes, info, table, error);
    if (!header) {
        return error_prefix(error, "%s", path);
    }
    int status = frame_writer_init(&writer, path, threads, error);
    if (status == 0) {
        frame_writer_begin(&writer, header_bytes);
        status = frame_writer_write(&writer, header, header_bytes, error);
        if (status == 0) {
            frame_writer_begin(&writer, data_bytes);
            status = write_states(&writer, table, source, error);
        }
        if (status == 0) {
            status = frame_writer_commit(&writer, error);
        } else {
            frame_writer_discard(&writer);
        }
    }
    memory_free(header);
    if (status == 0 && bytes) {
        *bytes = writer.file_bytes;
    }
    return status;
}
