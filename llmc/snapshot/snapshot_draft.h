/* A snapshot on its way: written and synced under a temporary name, then shown under its final one, or thrown
 * away. A draft serves one snapshot after another with the memory that it took at first.
 */
#ifndef LLMC_SNAPSHOT_SNAPSHOT_DRAFT_H
#define LLMC_SNAPSHOT_SNAPSHOT_DRAFT_H

#include "llmc/snapshot/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SnapshotDraft SnapshotDraft;

/* threads: for compression; 0 or 1: none but the caller's. NULL with *error when memory runs out. The caller
 * frees. */
SnapshotDraft *snapshot_draft_create(const ParamTable *table, int threads, Error *error);
void snapshot_draft_free(SnapshotDraft *draft);

/* What a draft holds once it is touched, about. */
size_t snapshot_draft_bytes(const ParamTable *table, int threads);
/* Take all of it now, pages included. -1 with *error when memory runs out. */
int snapshot_draft_touch(SnapshotDraft *draft, Error *error);

typedef struct SnapshotDraftArgs {
    const char *out_dir;
    const SnapshotInfo *info;
    StateSource source;
    int must_be_finite; /* a NaN or an infinity is refused */
    /* Asked now and then; not 0: give up. May be NULL. */
    int (*is_unwanted)(void *context);
    void *context;
} SnapshotDraftArgs;

/* Write and sync the state under a temporary name. 0; then commit or discard. -1 with *error (disk full, not
 * writable, no memory), SNAPSHOT_NOT_FINITE or SNAPSHOT_UNWANTED with *error: nothing is left. */
enum { SNAPSHOT_NOT_FINITE = -2, SNAPSHOT_UNWANTED = -3 };
int snapshot_draft_write(SnapshotDraft *draft, const SnapshotDraftArgs *args, Error *error);

/* Show it, durably. bytes: size of the file on disk; may be NULL. -1 with *error, and nothing is left. */
int snapshot_draft_commit(uint64_t *bytes, SnapshotDraft *draft, Error *error);
void snapshot_draft_discard(SnapshotDraft *draft);

#ifdef __cplusplus
}
#endif
#endif
