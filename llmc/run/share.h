/* Ranks that go on from what one of them has. out_dir may be a folder of each machine's own: at start ranks
 * compare what they found there, and whoever has the newest snapshot sends it to the others, piece by piece
 * into their models. Nothing of it is written to their disks.
 */
#ifndef LLMC_RUN_SHARE_H
#define LLMC_RUN_SHARE_H

#include "llmc/run/run_model.h"
#include "llmc/snapshot/snapshot.h"

enum { SHARE_NAME_BYTES = 512 };

/* Who has what. */
typedef struct Share {
    int64_t newest_step;         /* -1: no rank has a snapshot */
    int source;                  /* the lowest rank that has the newest */
    int is_needed;               /* another rank has not */
    char name[SHARE_NAME_BYTES]; /* the file; with is_needed, and on which rank and host */
} Share;

/* Collective: what the ranks have; step -1: nothing. */
void share_compare(Share *share, int64_t step);

/* Both collective, and only where it is needed. The source gives its snapshot, others NULL.
 * share_info fills *info, whose texts belong to it on all ranks but the source. */
void share_info(SnapshotInfo *info, Share *share, const Snapshot *snapshot);
/* The state up to last_state goes into each rank's model. -1 with *error: at the source when its file cannot
 * be read any more; at another when what came is not what was sent. */
int share_state(RunModel *model, const Share *share, Snapshot *snapshot, SavedState last_state, Error *error);

#endif
