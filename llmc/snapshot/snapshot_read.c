#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/frames.h"
#include "llmc/snapshot/snapshot.h"
#include "llmc/snapshot/snapshot_format.h"
#include "llmc/snapshot/snapshot_verify.h"

struct Snapshot {
    char path[PATH_BYTES_MAX];
    FrameReader reader;
    SnapshotInfo info;
    ParamTable table;      /* of the file's shape */
    uint64_t header_bytes; /* with the length before it */
};

/* A header may not be longer than a snapshot of this size on disk can explain, so that a few bytes cannot ask
 * for much memory. */
static int64_t read_header_length(FrameReader *reader, Error *error)
{
    unsigned char length_bytes[SAFETENSORS_LENGTH_BYTES];
    int status = frame_reader_read(reader, length_bytes, sizeof(length_bytes), error);
    if (status != FRAMES_OK) {
        return status;
    }
    int64_t length = safe_header_length(length_bytes, reader->path, error);
    int64_t length_max = (1 << 20) + 64 * (int64_t)reader->file_bytes;
    length_max = length_max < SNAPSHOT_HEADER_BYTES_MAX ? length_max : SNAPSHOT_HEADER_BYTES_MAX;
    if (length > length_max) {
        error_set(error, "%s: expected a header of at most %lld bytes, found %lld; the file is damaged",
                  reader->path, (long long)length_max, (long long)length);
    }
    return length < 0 || length > length_max ? FRAMES_DAMAGED : length;
}

/* Decompress and parse the header. Leaves the reader at the first tensor. */
static int read_header(SafeHeader *header, FrameReader *reader, Error *error)
{
    int64_t length = read_header_length(reader, error);
    if (length < 0) {
        return (int)length;
    }
    char *text = memory_alloc((size_t)length, 1, "snapshot header");
    int status = frame_reader_read(reader, text, (size_t)length, error);
    if (status == FRAMES_OK) {
        int parsed = safe_header_init(header, text, (uint64_t)length, INT64_MAX, reader->path, error);
        status = parsed == 0 ? FRAMES_OK : parsed == SAFE_NO_MEMORY ? FRAMES_UNREADABLE : FRAMES_DAMAGED;
    }
    memory_free(text);
    return status;
}

/* Decompress what is left and look at nothing but its checksums and its length. */
static int verify_data(FrameReader *reader, uint64_t data_bytes, Error *error)
{
    unsigned char *scratch = memory_alloc(SNAPSHOT_CHUNK_VALUES, 1, "snapshot plane");
    int status = FRAMES_OK;
    while (data_bytes > 0 && status == FRAMES_OK) {
        size_t take = data_bytes < SNAPSHOT_CHUNK_VALUES ? (size_t)data_bytes : SNAPSHOT_CHUNK_VALUES;
        status = frame_reader_read(reader, scratch, take, error);
        data_bytes -= take;
    }
    memory_free(scratch);
    return status == FRAMES_OK ? frame_reader_finish(reader, error) : status;
}

/* A file whose first frame is just the header was written by this program, which seals what it writes. */
static int check_sealed(const FrameReader *reader, uint64_t first_frame_bytes, uint64_t header_bytes,
                        Error *error)
{
    if (!reader->is_sealed && first_frame_bytes == header_bytes) {
        error_set(error, "%s: damaged or truncated: its last bytes are not those that were written",
                  reader->path);
        return FRAMES_DAMAGED;
    }
    return FRAMES_OK;
}

/* Read all of the file once, and believe nothing that does not hold. */
static int verify(Snapshot *snapshot, Error *error)
{
    SafeHeader header;
    uint64_t first_frame_bytes;
    int status = frame_reader_check_seal(&snapshot->reader, error);
    if (status == FRAMES_OK) {
        status = frame_reader_first_frame(&first_frame_bytes, &snapshot->reader, error);
    }
    if (status == FRAMES_OK) {
        status = read_header(&header, &snapshot->reader, error);
    }
    if (status != FRAMES_OK) {
        return status;
    }
    snapshot->header_bytes = header.data_begin;
    status = check_sealed(&snapshot->reader, first_frame_bytes, header.data_begin, error);
    if (status != FRAMES_OK) {
        safe_header_release(&header);
        return status;
    }
    status = snapshot_info_parse(&snapshot->info, &header, snapshot->path, error);
    if (status == FRAMES_OK) {
        params_init(&snapshot->table, &snapshot->info.shape);
        status = snapshot_header_check(&header, &snapshot->table, snapshot->path, error);
    }
    if (status == FRAMES_OK) {
        status = verify_data(&snapshot->reader, header.data_bytes, error);
    }
    safe_header_release(&header);
    return status;
}

int snapshot_open_status(Snapshot **snapshot, const char *path, Error *error)
{
    Snapshot *opened = memory_alloc_zeroed(1, sizeof(*opened), "snapshot");
    int status = FRAMES_UNREADABLE;
    if (snprintf(opened->path, sizeof(opened->path), "%s", path) >= (int)sizeof(opened->path)) {
        error_set(error, "%.200s...: the path is longer than %d bytes", path, PATH_BYTES_MAX);
    } else {
        status = frame_reader_init(&opened->reader, opened->path, error);
    }
    if (status == FRAMES_OK) {
        status = verify(opened, error);
    }
    if (status != FRAMES_OK) {
        snapshot_close(opened);
        opened = NULL;
    }
    *snapshot = opened;
    return status;
}

Snapshot *snapshot_open(const char *path, Error *error)
{
    Snapshot *snapshot;
    snapshot_open_status(&snapshot, path, error);
    return snapshot;
}

void snapshot_close(Snapshot *snapshot)
{
    if (snapshot) {
        frame_reader_release(&snapshot->reader);
        snapshot_info_release(&snapshot->info);
        params_release(&snapshot->table);
        memory_free(snapshot);
    }
}

const SnapshotInfo *snapshot_info(const Snapshot *snapshot)
{
    return &snapshot->info;
}

const char *snapshot_file(const Snapshot *snapshot)
{
    return snapshot->path;
}

/* Take `bytes` bytes from the reader and drop them. */
static int skip(FrameReader *reader, uint64_t bytes, unsigned char *scratch, size_t scratch_bytes,
                Error *error)
{
    while (bytes > 0) {
        size_t take = bytes < scratch_bytes ? (size_t)bytes : scratch_bytes;
        if (frame_reader_read(reader, scratch, take, error) != FRAMES_OK) {
            return -1;
        }
        bytes -= take;
    }
    return 0;
}

/* Put the four planes of a tensor together and hand over its first `count` values. Whether some value is not
 * finite. */
static int join_planes(const StateSink *sink, SavedState state, int64_t offset, const unsigned char *planes,
                       int64_t plane_bytes, int64_t count, float *values)
{
    int has_non_finite = 0;
    for (int64_t first = 0; first < count; first += SNAPSHOT_CHUNK_VALUES) {
        int64_t take = count - first < SNAPSHOT_CHUNK_VALUES ? count - first : SNAPSHOT_CHUNK_VALUES;
        const unsigned char *plane = planes + first;
        for (int64_t i = 0; i < take; i++) {
            uint32_t bits = (uint32_t)plane[i] | (uint32_t)plane[i + plane_bytes] << 8 |
                            (uint32_t)plane[i + 2 * plane_bytes] << 16 |
                            (uint32_t)plane[i + 3 * plane_bytes] << 24;
            memcpy(&values[i], &bits, sizeof(bits));
        }
        has_non_finite |= state_has_non_finite(values, take);
        sink->write(sink->context, state, offset + first, values, take);
    }
    return has_non_finite;
}

/* All tensors up to last_state, of which those from first_state on go to the sink. */
static int load_states(Snapshot *snapshot, const ParamTable *table, SavedState first_state,
                       SavedState last_state, const StateSink *sink, int must_be_finite, Error *error)
{
    int64_t largest = 0;
    for (int i = 0; i < snapshot->table.count; i++) {
        int64_t count = param_file_count(&snapshot->table.specs[i]);
        largest = count > largest ? count : largest;
    }
    size_t planes_bytes = (size_t)largest * SNAPSHOT_PLANES;
    unsigned char *planes = memory_alloc(planes_bytes, 1, "snapshot planes");
    float *values = memory_alloc(SNAPSHOT_CHUNK_VALUES, sizeof(float), "snapshot values");
    frame_reader_rewind(&snapshot->reader);
    int status = skip(&snapshot->reader, snapshot->header_bytes, planes, planes_bytes, error);
    for (int i = 0; i < ((int)last_state + 1) * table->count && status == 0; i++) {
        SavedState state = (SavedState)(i / table->count);
        const ParamSpec *spec = &table->specs[i % table->count];
        int64_t plane_bytes = param_file_count(&snapshot->table.specs[i % table->count]);
        status = frame_reader_read(&snapshot->reader, planes, (size_t)plane_bytes * SNAPSHOT_PLANES, error);
        if (status == 0 && state >= first_state &&
            join_planes(sink, state, spec->offset, planes, plane_bytes, param_file_count(spec), values) &&
            must_be_finite) {
            status = error_set(error,
                               "%s: tensor %s: expected finite %s, found a NaN or an infinity; move the file "
                               "away to go on from the one before it",
                               snapshot->path, spec->name, state == SAVED_WEIGHTS ? "weights" : "moments");
        }
    }
    memory_free(planes);
    memory_free(values);
    return status == 0 ? 0 : -1;
}

int snapshot_load(Snapshot *snapshot, const ParamTable *table, SavedState first_state, SavedState last_state,
                  const StateSink *sink, Error *error)
{
    if (model_shape_check_fits(&table->shape, &snapshot->info.shape, error) != 0) {
        return error_prefix(error, "%s", snapshot->path);
    }
    return load_states(snapshot, table, first_state, last_state, sink, 0, error);
}

int snapshot_load_finite(Snapshot *snapshot, const ParamTable *table, SavedState first_state,
                         SavedState last_state, const StateSink *sink, Error *error)
{
    if (model_shape_check_fits(&table->shape, &snapshot->info.shape, error) != 0) {
        return error_prefix(error, "%s", snapshot->path);
    }
    return load_states(snapshot, table, first_state, last_state, sink, 1, error);
}

int snapshot_read_info(SnapshotInfo *info, const char *path, Error *error)
{
    FrameReader reader;
    SafeHeader header;
    int status = frame_reader_init(&reader, path, error);
    if (status != FRAMES_OK) {
        return -1;
    }
    status = read_header(&header, &reader, error);
    if (status == FRAMES_OK) {
        status = snapshot_info_parse(info, &header, path, error);
        safe_header_release(&header);
    }
    frame_reader_release(&reader);
    return status == FRAMES_OK ? 0 : -1;
}
