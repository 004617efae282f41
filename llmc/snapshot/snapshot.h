/* Snapshots: everything that a run needs to go on bit for bit, in one file, out_dir/step-%08d.snap.
 *
 * The file is a row of zstd frames, each with a content checksum (`zstd -t` verifies it). Decompressed
 * (`zstd -d`) it is a safetensors file. Its `__metadata__` holds, all as strings:
 *
 * - format "llmc-snapshot", format_version "1", version of the program that wrote it;
 * - step, updates made; sample, the next sample n (section "Data" of the loader);
 * - best_loss, the lowest validation loss so far, "inf" before the first evaluation;
 * - bad_steps, updates skipped in a row just before this one;
 * - data_fingerprint, 16 hex digits; options, one JSON object;
 * - block_size, vocab_size, n_layer, n_head, n_embd;
 * - plans, how products are computed (model/plans.h), in runs that timed it;
 * - characters, the vocabulary (text/characters.h, as in characters.json), in runs of characters.
 *
 * Its tensors are those of the parameter table, three times over: `param.NAME` (fp32 master weights),
 * `moment1.NAME`, `moment2.NAME` (AdamW's), each as four U8 tensors `.../b0` .. `/b3` of the parameter's
 * shape: byte 0 (lowest) to byte 3 (sign and exponent) of every value. NAME is Hugging Face's without
 * `transformer.`; matrices are [out,in]; vocabulary padding is not in the file.
 *
 * A file that opens has been read to its end: every checksum, the header, and each tensor's name, type,
 * shape and place hold. So nothing of a damaged file ever reaches a model.
 */
#ifndef LLMC_SNAPSHOT_SNAPSHOT_H
#define LLMC_SNAPSHOT_SNAPSHOT_H

#include <stdint.h>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/model/params.h"
#include "llmc/snapshot/state.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SNAPSHOT_OPTIONS_BYTES_MAX = 1 << 20, SNAPSHOT_VERSION_BYTES_MAX = 64 };

typedef struct SnapshotInfo {
    ModelShape shape;
    int64_t step;      /* updates made; names the file */
    uint64_t sample;   /* next sample n */
    double best_loss;  /* INFINITY before the first evaluation */
    int64_t bad_steps; /* skipped in a row just before */
    uint64_t data_fingerprint;
    char version[SNAPSHOT_VERSION_BYTES_MAX];
    char *options;    /* one JSON object. snapshot_write borrows it; after a read the info owns it */
    char *plans;      /* how products are computed (model/plans.h), or NULL; owned like options */
    char *characters; /* the vocabulary as JSON (text/characters.h), NULL for GPT-2's; owned like options */
} SnapshotInfo;

/* Frees what a read put into *info. */
void snapshot_info_release(SnapshotInfo *info);

/* Write the state as out_dir/step-%08d.snap. out_dir is made if it is missing. Memory is constant: the source
 * is asked for each chunk four times, once a byte plane. The file appears whole and durable, or not at all;
 * an existing one of this step is replaced. bytes     size of the file on disk; may be NULL threads   for
 * compression; 0 or 1: none but the caller's -1 with *error (disk full, not writable, options that are not
 * JSON) and nothing left behind. */
int snapshot_write(uint64_t *bytes, const char *out_dir, const SnapshotInfo *info, const ParamTable *table,
                   const StateSource *source, int threads, Error *error);

/* out_dir/step-%08d.snap in a buffer of PATH_BYTES_MAX. */
int snapshot_path(char *path, const char *out_dir, int64_t step, Error *error);

/* A verified snapshot, open for loading. The caller closes it. */
typedef struct Snapshot Snapshot;

/* Open and verify. NULL with *error naming the file and what is wrong with it. */
Snapshot *snapshot_open(const char *path, Error *error);
void snapshot_close(Snapshot *snapshot);

/* Both belong to the snapshot. */
const SnapshotInfo *snapshot_info(const Snapshot *snapshot);
const char *snapshot_file(const Snapshot *snapshot);

/* Hand states first_state .. last_state to the sink, tensor by tensor in the table's order. The table must be
 * of the snapshot's shape, but for a lower block_size: then the first positions are taken. -1 with *error,
 * before anything is handed over, when the shapes differ; or when the file changed since it was verified. */
int snapshot_load(Snapshot *snapshot, const ParamTable *table, SavedState first_state, SavedState last_state,
                  const StateSink *sink, Error *error);

/* The same, and -1 with *error naming the tensor when a value is a NaN or an infinity: no training goes on
 * from there. Some of it has been handed over then. */
int snapshot_load_finite(Snapshot *snapshot, const ParamTable *table, SavedState first_state,
                         SavedState last_state, const StateSink *sink, Error *error);

/* Only the header of a file: cheap, verifies nothing else. Release *info. */
int snapshot_read_info(SnapshotInfo *info, const char *path, Error *error);

/* Steps for which out_dir holds a snapshot, newest first. Leftovers, damaged files that were set aside and
 * everything else are not listed; a missing folder holds none. Returns the count, or -1 with *error when the
 * folder cannot be read to its end. The caller frees *steps with memory_free. */
int snapshot_list(int64_t **steps, const char *out_dir, Error *error);

/* Open the newest snapshot of out_dir that verifies. A damaged one is named on stderr and renamed to
 * NAME.damaged, then the one before it is tried; where another run owns out_dir it is only passed over.
 * is_owner: the caller holds out_dir's lock (base/folder_lock.h). NULL with *error when there is none, when
 * all were damaged, or when a file cannot be read (permissions, a newer format, no memory, no regular file):
 * such a file is not damaged and stays. *found, unless NULL, tells which it was. */
typedef enum SnapshotSearch {
    SNAPSHOT_FOUND,
    SNAPSHOT_NONE,
    SNAPSHOT_ALL_DAMAGED,
    SNAPSHOT_UNREADABLE
} SnapshotSearch;
Snapshot *snapshot_open_newest(SnapshotSearch *found, const char *out_dir, int is_owner, Error *error);

/* Take the snapshots of later steps out of the way, and that of this step if it is another file than
 * `kept_path`: each keeps its content under NAME.aside, or NAME.aside.2 .. where that is taken. For who holds
 * out_dir's lock. Returns how many; -1 with *error. */
int snapshot_set_aside_later(const char *out_dir, int64_t step, const char *kept_path, Error *error);

/* The name of a snapshot of out_dir that was set aside. 1; 0 when there is none; -1 with *error. */
enum { SNAPSHOT_FILE_BYTES_MAX = 64 };
int snapshot_find_damaged(char name[SNAPSHOT_FILE_BYTES_MAX], const char *out_dir, Error *error);

/* Delete all snapshots but the `keep` newest and those of steps that milestone_interval divides (0: none).
 * keep 0 deletes nothing. Call it after a new snapshot is durable. */
int snapshot_prune(const char *out_dir, int keep, int64_t milestone_interval, Error *error);

/* Remove what writers left behind that were killed (step-*.snap.tmp.*). For who holds out_dir's lock: no
 * other run writes there. */
int snapshot_remove_leftovers(const char *out_dir, Error *error);

#ifdef __cplusplus
}
#endif
#endif
