/* What a snapshot looks like once it is decompressed: the names and places of its tensors and its metadata.
 * Shared by the writer and the reader. */
#ifndef LLMC_SNAPSHOT_SNAPSHOT_FORMAT_H
#define LLMC_SNAPSHOT_SNAPSHOT_FORMAT_H

#include "llmc/snapshot/safetensors.h"
#include "llmc/snapshot/snapshot.h"

enum {
    SNAPSHOT_PLANES = 4,             /* bytes of an fp32 */
    SNAPSHOT_CHUNK_VALUES = 1 << 18, /* handed over at a time */
    SNAPSHOT_NAME_BYTES = 80,
    SNAPSHOT_HEADER_BYTES_MAX = 32 << 20 /* MODEL_LAYERS_MAX layers need less */
};

/* "moment1.h.0.ln_1.bias/b3" */
void snapshot_tensor_name(char name[SNAPSHOT_NAME_BYTES], SavedState state, const ParamSpec *spec, int plane);

/* The part of the header that says where the tensors are, the same in every snapshot of a model, as a
 * header of its own; the size of what follows it. The caller frees it with memory_free. NULL with *error. */
char *snapshot_tensors_create(uint64_t *bytes, uint64_t *data_bytes, const ParamTable *table, Error *error);

/* The bytes that open the file: the metadata and the tensors' part. It needs little memory besides them. The
 * caller frees it with memory_free. NULL with *error. */
char *snapshot_header_create(uint64_t *bytes, const SnapshotInfo *info, const ModelShape *shape,
                             const char *tensors, uint64_t tensors_bytes, Error *error);

/* Read the metadata. 0, or FRAMES_UNREADABLE for a format of another version, or FRAMES_DAMAGED. */
int snapshot_info_parse(SnapshotInfo *info, const SafeHeader *header, const char *path, Error *error);

/* Whether the tensors are those of the table, each in its place, and no others. 0 or FRAMES_DAMAGED. */
int snapshot_header_check(const SafeHeader *header, const ParamTable *table, const char *path, Error *error);

#endif
