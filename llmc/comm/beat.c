#include "llmc/comm/beat.h"

#include <pthread.h>
#include <string.h>

#include "llmc/base/work.h"
#include "llmc/comm/unanswered.h"

/* A collective that takes longer than this is a reason to look at the connections. */
enum { LOOK_AFTER_MS = 1000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    int descriptors[BEAT_NAMED_MAX], ranks[BEAT_NAMED_MAX];
    int count;
} named; /* guarded by the lock */

static struct {
    int descriptor; /* that is not answered */
    double since_ms;
} silent = {.descriptor = -1}; /* of the one thread that reads beats */

void beat_name_peer(int descriptor, int rank)
{
    pthread_mutex_lock(&lock);
    if (named.count < BEAT_NAMED_MAX) {
        named.descriptors[named.count] = descriptor;
        named.ranks[named.count++] = rank;
    }
    pthread_mutex_unlock(&lock);
}

static int rank_of(int descriptor)
{
    int rank = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < named.count; i++) {
        rank = named.descriptors[i] == descriptor ? named.ranks[i] : rank;
    }
    pthread_mutex_unlock(&lock);
    return rank;
}

static int is_waiting(const Beat *beat)
{
    for (int c = 0; c < CHANNEL_COUNT; c++) {
        if (beat->progress[c].is_inside && beat->progress[c].inside_ms > LOOK_AFTER_MS) {
            return 1;
        }
    }
    return 0;
}

void beat_read(Beat *beat, double now_ms)
{
    Unanswered found;
    memset(beat, 0, sizeof(*beat));
    progress_read(beat->progress);
    beat->work_count = work_count();
    beat->unanswered_rank = -1;
    if (!is_waiting(beat) || !unanswered_find(&found)) {
        silent.descriptor = -1;
        return;
    }
    if (found.descriptor != silent.descriptor) {
        silent.descriptor = found.descriptor;
        silent.since_ms = now_ms;
    }
    beat->unanswered_ms = now_ms - silent.since_ms;
    beat->unanswered_rank = rank_of(found.descriptor);
    memcpy(beat->unanswered_address, found.address, HOST_BYTES);
}
