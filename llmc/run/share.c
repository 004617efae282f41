#include "llmc/run/share.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/base/work.h"
#include "llmc/comm/comm.h"

enum { PIECE_VALUES = 1 << 18 /* sent at once */ };

void share_compare(Share *share, int64_t step)
{
    int count = comm_rank_count();
    uint64_t *all = memory_alloc((size_t)count, sizeof(*all), "snapshots of ranks");
    memset(share, 0, sizeof(*share));
    comm_gather_uint64((uint64_t)(step + 1), all);
    for (int r = 1; r < count; r++) {
        share->source = all[r] > all[share->source] ? r : share->source;
    }
    for (int r = 0; r < count; r++) {
        share->is_needed |= all[r] < all[share->source];
    }
    share->newest_step = (int64_t)all[share->source] - 1;
    memory_free(all);
}

/* A text of the source, or NULL. The copy is the caller's, who frees it with memory_free. */
static char *share_text(const char *text, int source)
{
    int64_t bytes = text ? (int64_t)strlen(text) + 1 : 0;
    comm_broadcast(&bytes, sizeof(bytes), source);
    if (bytes == 0) {
        return NULL;
    }
    char *copy = memory_alloc((size_t)bytes, 1, "text of a snapshot");
    if (text) {
        memcpy(copy, text, (size_t)bytes);
    }
    comm_broadcast(copy, bytes, source);
    return copy;
}

void share_info(SnapshotInfo *info, Share *share, const Snapshot *snapshot)
{
    int is_source = comm_rank() == share->source;
    if (is_source) {
        *info = *snapshot_info(snapshot);
        snprintf(share->name, sizeof(share->name), "%.380s of rank %d (%.64s)", snapshot_file(snapshot),
                 share->source, comm_host());
    }
    const char *options = is_source ? info->options : NULL, *plans = is_source ? info->plans : NULL;
    const char *characters = is_source ? info->characters : NULL;
    comm_broadcast(share->name, sizeof(share->name), share->source);
    comm_broadcast(info, sizeof(*info), share->source);
    info->options = share_text(options, share->source);
    info->plans = share_text(plans, share->source);
    info->characters = share_text(characters, share->source);
}

/* What goes before each piece; a count of 0 ends them. */
typedef struct Piece {
    int64_t state, offset, count;
    uint64_t hash; /* of all values so far, this piece's included */
} Piece;

/* The source's end. */
typedef struct Sender {
    StateSink own;
    int source;
    uint64_t hash;
} Sender;

static void send_piece(Sender *sender, SavedState state, int64_t offset, const float *values, int64_t count)
{
    size_t bytes = (size_t)count * sizeof(float);
    sender->hash = hash_bytes(values, bytes, sender->hash);
    Piece piece = {.state = (int64_t)state, .offset = offset, .count = count, .hash = sender->hash};
    comm_broadcast(&piece, sizeof(piece), sender->source);
    comm_broadcast((void *)(uintptr_t)values, (int64_t)bytes, sender->source); /* a root's are only read */
    work_add();
}

static void send_values(void *context, SavedState state, int64_t offset, const float *values, int64_t count)
{
    Sender *sender = context;
    for (int64_t first = 0; first < count; first += PIECE_VALUES) {
        int64_t some = count - first < PIECE_VALUES ? count - first : PIECE_VALUES;
        send_piece(sender, state, offset + first, values + first, some);
    }
    sender->own.write(sender->own.context, state, offset, values, count);
}

static int send_state(RunModel *model, const Share *share, Snapshot *snapshot, SavedState last_state,
                      Error *error)
{
    Sender sender = {.own = run_model_sink(model), .source = share->source};
    StateSink sink = {send_values, &sender};
    if (snapshot_load_finite(snapshot, &model->table, SAVED_WEIGHTS, last_state, &sink, error) != 0) {
        return -1;
    }
    Piece end = {.hash = sender.hash};
    comm_broadcast(&end, sizeof(end), share->source);
    return 0;
}

static int receive_state(RunModel *model, const Share *share, Error *error)
{
    StateSink sink = run_model_sink(model);
    float *values = memory_alloc(PIECE_VALUES, sizeof(*values), "values of a snapshot");
    int64_t arena = model->table.arena_count;
    uint64_t hash = 0;
    int status = 0;
    Piece piece = {.count = 1};
    while (piece.count > 0 && status == 0) {
        comm_broadcast(&piece, sizeof(piece), share->source);
        int is_sound = piece.count >= 0 && piece.count <= PIECE_VALUES && piece.offset >= 0 &&
                       piece.offset <= arena - piece.count && piece.state >= 0 && piece.state < SAVED_STATES;
        if (is_sound && piece.count > 0) {
            comm_broadcast(values, piece.count * (int64_t)sizeof(float), share->source);
            hash = hash_bytes(values, (size_t)piece.count * sizeof(float), hash);
        }
        if (!is_sound || hash != piece.hash) {
            status = error_set(error,
                               "%s: expected checksum %016" PRIx64 " of what rank %d sent, found %016" PRIx64
                               "; the network or a memory is faulty, run again",
                               share->name, piece.hash, share->source, hash);
            error->may_pass = 1;
        } else if (piece.count > 0) {
            sink.write(sink.context, (SavedState)piece.state, piece.offset, values, piece.count);
        }
    }
    memory_free(values);
    return status;
}

int share_state(RunModel *model, const Share *share, Snapshot *snapshot, SavedState last_state, Error *error)
{
    return comm_rank() == share->source ? send_state(model, share, snapshot, last_state, error)
                                        : receive_state(model, share, error);
}
