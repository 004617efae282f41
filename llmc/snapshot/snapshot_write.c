#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/frames.h"
#include "llmc/snapshot/snapshot_draft.h"
#include "llmc/snapshot/snapshot_format.h"

/* What metadata take in pieces; the header's text for each tensor; zstd for each thread. */
enum { METADATA_BYTES = 1 << 19, ENTRY_BYTES = 120, THREAD_BYTES = 12 << 20 };

struct SnapshotDraft {
    const ParamTable *table; /* borrowed */
    FrameSpace space;
    FrameWriter writer;
    float *values;        /* as they come from the source */
    unsigned char *bytes; /* one of each */
    char *tensors;        /* their part of every header */
    uint64_t tensors_bytes, data_bytes;
    void *header_room; /* held for the header while none is made, or NULL */
};

int snapshot_path(char *path, const char *out_dir, int64_t step, Error *error)
{
    char name[64];
    snprintf(name, sizeof(name), "step-%08" PRId64 ".snap", step);
    return path_join(path, out_dir, name, error);
}

static size_t header_room_bytes(const ParamTable *table)
{
    return METADATA_BYTES + (size_t)SAVED_STATES * SNAPSHOT_PLANES * (size_t)table->count * ENTRY_BYTES;
}

SnapshotDraft *snapshot_draft_create(const ParamTable *table, int threads, Error *error)
{
    SnapshotDraft *draft = memory_alloc_zeroed(1, sizeof(*draft), "snapshot draft");
    draft->table = table;
    draft->values = memory_try_alloc(SNAPSHOT_CHUNK_VALUES, sizeof(float));
    draft->bytes = memory_try_alloc(SNAPSHOT_CHUNK_VALUES, 1);
    int status = draft->values && draft->bytes ? 0 : error_set(error, "out of memory for a snapshot");
    if (status == 0) {
        draft->tensors = snapshot_tensors_create(&draft->tensors_bytes, &draft->data_bytes, table, error);
        status = draft->tensors ? 0 : -1;
    }
    if (status != 0 || frame_space_init(&draft->space, threads, error) != 0) {
        snapshot_draft_free(draft);
        return NULL;
    }
    return draft;
}

void snapshot_draft_free(SnapshotDraft *draft)
{
    if (draft) {
        frame_space_release(&draft->space);
        memory_free(draft->values);
        memory_free(draft->bytes);
        memory_free(draft->tensors);
        memory_free(draft->header_room);
        memory_free(draft);
    }
}

size_t snapshot_draft_bytes(const ParamTable *table, int threads)
{
    return 2 * header_room_bytes(table) + (size_t)(threads > 1 ? threads + 1 : 1) * THREAD_BYTES;
}

static void hold_header_room(SnapshotDraft *draft)
{
    size_t bytes = header_room_bytes(draft->table);
    draft->header_room = memory_try_alloc(bytes, 1);
    if (draft->header_room) {
        memset(draft->header_room, 1, bytes);
    }
}

int snapshot_draft_touch(SnapshotDraft *draft, Error *error)
{
    hold_header_room(draft);
    memset(draft->values, 0, SNAPSHOT_CHUNK_VALUES * sizeof(float));
    memset(draft->bytes, 0, SNAPSHOT_CHUNK_VALUES);
    return frame_space_touch(&draft->space, error);
}

/* One byte of every value of a tensor. */
static int write_plane(SnapshotDraft *draft, const SnapshotDraftArgs *args, SavedState state,
                       const ParamSpec *spec, int plane, Error *error)
{
    int64_t total = param_file_count(spec);
    for (int64_t first = 0; first < total; first += SNAPSHOT_CHUNK_VALUES) {
        int64_t count = total - first < SNAPSHOT_CHUNK_VALUES ? total - first : SNAPSHOT_CHUNK_VALUES;
        if (args->is_unwanted && args->is_unwanted(args->context)) {
            error_set(error, "not wanted any more");
            return SNAPSHOT_UNWANTED;
        }
        args->source.read(args->source.context, state, spec->offset + first, draft->values, count);
        if (plane == 0 && args->must_be_finite && state_has_non_finite(draft->values, count)) {
            error_set(error, "tensor %s: its weights or moments are not finite", spec->name);
            return SNAPSHOT_NOT_FINITE;
        }
        const unsigned char *bytes = (const unsigned char *)draft->values + plane;
        for (int64_t i = 0; i < count; i++) {
            draft->bytes[i] = bytes[SNAPSHOT_PLANES * i];
        }
        if (frame_writer_write(&draft->writer, draft->bytes, (size_t)count, error) != 0) {
            return -1;
        }
    }
    return 0;
}

static int write_states(SnapshotDraft *draft, const SnapshotDraftArgs *args, Error *error)
{
    const ParamTable *table = draft->table;
    int tensors = SAVED_STATES * table->count * SNAPSHOT_PLANES;
    int status = 0;
    for (int i = 0; i < tensors && status == 0; i++) {
        const ParamSpec *spec = &table->specs[i / SNAPSHOT_PLANES % table->count];
        SavedState state = (SavedState)(i / SNAPSHOT_PLANES / table->count);
        status = write_plane(draft, args, state, spec, i % SNAPSHOT_PLANES, error);
    }
    return status;
}

static int write_file(SnapshotDraft *draft, const SnapshotDraftArgs *args, const char *path, Error *error)
{
    uint64_t header_bytes;
    FrameWriter *writer = &draft->writer;
    char *header = snapshot_header_create(&header_bytes, args->info, &draft->table->shape, draft->tensors,
                                          draft->tensors_bytes, error);
    if (!header) {
        return error_prefix(error, "%s", path);
    }
    int status = frame_writer_init(writer, path, &draft->space, error);
    if (status == 0) {
        frame_writer_begin(writer, header_bytes);
        status = frame_writer_write(writer, header, header_bytes, error);
        if (status == 0) {
            frame_writer_begin(writer, draft->data_bytes);
            status = write_states(draft, args, error);
        }
        if (status == 0) {
            status = frame_writer_seal(writer, error);
        }
        if (status != 0) {
            frame_writer_discard(writer);
        }
    }
    memory_free(header);
    return status;
}

int snapshot_draft_write(SnapshotDraft *draft, const SnapshotDraftArgs *args, Error *error)
{
    char path[PATH_BYTES_MAX];
    if (snapshot_path(path, args->out_dir, args->info->step, error) != 0 ||
        folder_create(args->out_dir, error) != 0) {
        return -1;
    }
    int holds_room = draft->header_room != NULL;
    memory_free(draft->header_room);
    draft->header_room = NULL;
    int status = write_file(draft, args, path, error);
    if (holds_room) {
        hold_header_room(draft);
    }
    return status;
}

int snapshot_draft_commit(uint64_t *bytes, SnapshotDraft *draft, Error *error)
{
    if (bytes) {
        *bytes = draft->writer.file_bytes;
    }
    return frame_writer_commit(&draft->writer, error);
}

void snapshot_draft_discard(SnapshotDraft *draft)
{
    frame_writer_discard(&draft->writer);
}

int snapshot_write(uint64_t *bytes, const char *out_dir, const SnapshotInfo *info, const ParamTable *table,
                   const StateSource *source, int threads, Error *error)
{
    SnapshotDraft *draft = snapshot_draft_create(table, threads, error);
    SnapshotDraftArgs args = {.out_dir = out_dir, .info = info, .source = *source};
    int status = draft ? snapshot_draft_write(draft, &args, error) : -1;
    if (status == 0) {
        status = snapshot_draft_commit(bytes, draft, error);
    }
    snapshot_draft_free(draft);
    return status;
}
