/* Whose out_dir is, and what it has to go on from. Rank 0 holds the lock of its folder as long as it may
 * write there. Where the other machines have folders of their own, the ranks that write there hold those. */
#include <stdlib.h>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/run/ending.h"
#include "llmc/run/origin.h"
#include "llmc/run/run.h"
#include "llmc/snapshot/snapshot.h"

enum { LOCK_WAIT_MS = 3000 /* for a run that is ending, when a supervisor has begun the next */ };

static int take_lock(Run *run, double wait_ms, Error *error)
{
    if (folder_lock_take(&run->lock, run->options.out_dir, wait_ms, error) != 0) {
        return error_prefix(error, "out_dir");
    }
    if (run->is_writer) {
        ending_own(run->lock.path);
    }
    return 0;
}

/* ---- what there is ------------------------------------------------------------------------------------- */

/* Rank 0 of a run that may train looks as the owner of out_dir. If another run is, this one may still read
 * there; if it has updates to make, it waits a moment, looks again, or ends. */
static int find_first(Origin *origin, Run *run, Error *error)
{
    const Options *options = &run->options;
    int may_train = !options->eval_only && !options->sample_only && options->max_iters > 0;
    Error refusal;
    int is_refused = may_train && path_is_folder(options->out_dir) && take_lock(run, 0, &refusal) != 0;
    if (origin_find(origin, options, run->lock.descriptor >= 0, error) != 0) {
        return -1;
    }
    if (!is_refused || origin->step >= options->max_iters) {
        return 0;
    }
    origin_close(origin);
    return take_lock(run, LOCK_WAIT_MS, error) == 0 ? origin_find(origin, options, 1, error) : -1;
}

/* Rank 0 does everything first: it sets damaged snapshots aside, and what is wrong at all ranks is said
 * once. */
int run_open_origin(Origin *origin, Run *run, Error *error)
{
    if (run->rank != 0) {
        comm_barrier();
    }
    int status =
        run->rank == 0 ? find_first(origin, run, error) : origin_find(origin, &run->options, 0, error);
    if (run->rank == 0 && status == 0) {
        comm_barrier();
    }
    if (status == 0) {
        status = origin_settle(origin, &run->options, error);
    }
    if (run->rank != 0 && status == 0) {
        comm_barrier();
    }
    if (status == 0) {
        status = origin_adopt(origin, &run->options, error);
    }
    if (run->rank == 0 && status == 0) {
        comm_barrier();
    }
    if (status != 0) {
        origin_close(origin);
    }
    return status;
}

/* ---- who writes ---------------------------------------------------------------------------------------- */

/* Make out_dir this run's own, if it is not yet: until now there was no such folder. */
static int own_out_dir(Run *run, const Origin *origin, Error *error)
{
    const Options *options = &run->options;
    if (run->lock.descriptor < 0) {
        if (folder_create(options->out_dir, error) != 0) {
            return error_prefix(error, "out_dir");
        }
        if (take_lock(run, LOCK_WAIT_MS, error) != 0) {
            return -1;
        }
        if (!origin->info && origin_refuse_overwriting(options, error) != 0) {
            return -1; /* another run was quicker */
        }
    }
    int moved = origin_clear_way(origin, options, error);
    if (moved > 0) {
        error_print("notice: %.500s: %d later snapshot%s set aside as *.aside", options->out_dir, moved,
                    moved == 1 ? " is" : "s are");
    }
    return moved < 0 ? -1 : snapshot_remove_leftovers(options->out_dir, error);
}

/* Another rank than 0, whose folder may be the one of a rank before it, which then has the mark. */
static int own_apart(Run *run, const Origin *origin, uint64_t mark, Error *error)
{
    const char *out_dir = run->options.out_dir;
    if (folder_lock_has_mark(out_dir, mark)) {
        run->is_writer = 0;
        snapshot_writer_free(run->writer);
        run->writer = NULL;
        return 0;
    }
    if (!run->is_writer && !path_is_folder(out_dir)) {
        return 0;
    }
    if (own_out_dir(run, origin, error) != 0) {
        return -1;
    }
    if (run->is_writer) {
        folder_lock_mark(&run->lock, mark);
    } else {
        folder_lock_release(&run->lock);
    }
    return 0;
}

int run_own_out_dir(Run *run, const Origin *origin, Error *error)
{
    if (run->rank == 0 && own_out_dir(run, origin, error) != 0) {
        return -1;
    }
    int has_others = run->options.snapshot_on == SNAPSHOT_ON_EVERY_NODE || origin_goes_back(&run->options);
    if (run->rank_count == 1 || !has_others) {
        return 0;
    }
    double now_ms = clock_ms();
    uint64_t mark = hash_bytes(&now_ms, sizeof(now_ms), hash_bytes(comm_host(), 1, (uint64_t)run->rank));
    uint64_t *writers = memory_alloc((size_t)run->rank_count, sizeof(*writers), "ranks that write");
    comm_broadcast(&mark, sizeof(mark), 0);
    if (run->rank == 0) {
        folder_lock_mark(&run->lock, mark);
    }
    comm_gather_uint64((uint64_t)(run->is_writer || origin_goes_back(&run->options)), writers);
    int status = 0;
    for (int r = 1; r < run->rank_count && status == 0; r++) {
        if (writers[r]) {
            comm_barrier(); /* the one before has its mark */
            status = r == run->rank ? own_apart(run, origin, mark, error) : 0;
        }
    }
    memory_free(writers);
    return status;
}
