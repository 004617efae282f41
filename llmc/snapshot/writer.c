#define _GNU_SOURCE
#include "llmc/snapshot/writer.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/snapshot_draft.h"

typedef enum WriterStage { STAGE_IDLE, STAGE_COPYING, STAGE_WRITING, STAGE_ENDED } WriterStage;

enum { COPY_CHUNK = 1 << 16 /* values read at once */, STACK_BYTES = 1 << 20 };

struct SnapshotWriter {
    SnapshotWriterConfig config;
    float *copies[SAVED_STATES]; /* arenas; padding is never read; NULL where the writer is direct */
    SnapshotDraft *draft;
    SnapshotInfo info;                  /* of the one in flight */
    char *options, *plans, *characters; /* its texts */

    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    WriterStage stage;
    SnapshotVerdict verdict; /* on the one in flight */
    int has_result;          /* not yet polled */
    SnapshotResult result;
    double begin_ms;
};

static void set_stage(SnapshotWriter *writer, WriterStage stage)
{
    pthread_mutex_lock(&writer->lock);
    writer->stage = stage;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

static void copy_state(SnapshotWriter *writer)
{
    const ParamTable *table = writer->config.table;
    const StateSource *source = &writer->config.source;
    for (int state = 0; state < SAVED_STATES; state++) {
        for (int i = 0; i < table->count; i++) {
            const ParamSpec *spec = &table->specs[i];
            int64_t total = param_file_count(spec);
            for (int64_t first = 0; first < total; first += COPY_CHUNK) {
                int64_t count = total - first < COPY_CHUNK ? total - first : COPY_CHUNK;
                int64_t offset = spec->offset + first;
                source->read(source->context, (SavedState)state, offset, writer->copies[state] + offset,
                             count);
            }
        }
    }
}

static void read_copy(void *context, SavedState state, int64_t offset, float *values, int64_t count)
{
    const SnapshotWriter *writer = context;
    memcpy(values, writer->copies[state] + offset, (size_t)count * sizeof(float));
}

static int is_unwanted(void *context)
{
    SnapshotWriter *writer = context;
    pthread_mutex_lock(&writer->lock);
    int is_bad = writer->verdict == SNAPSHOT_BAD;
    pthread_mutex_unlock(&writer->lock);
    return is_bad;
}

/* Compress and write the copy, or the live state, under a temporary name. Returns as snapshot_draft_write. */
static int write_draft(SnapshotWriter *writer, Error *error)
{
    SnapshotDraftArgs args = {.out_dir = writer->config.out_dir,
                              .info = &writer->info,
                              .source = {read_copy, writer},
                              .must_be_finite = 1,
                              .is_unwanted = is_unwanted,
                              .context = writer};
    if (writer->config.is_direct) {
        args.source = writer->config.source;
    }
    return snapshot_draft_write(writer->draft, &args, error);
}

static SnapshotVerdict await_verdict(SnapshotWriter *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->verdict == SNAPSHOT_UNJUDGED) {
        pthread_cond_wait(&writer->changed, &writer->lock);
    }
    SnapshotVerdict verdict = writer->verdict;
    pthread_mutex_unlock(&writer->lock);
    return verdict;
}

/* Show what was written if it is worth it, then delete what is old. */
static void show_draft(SnapshotWriter *writer, SnapshotResult *result)
{
    const SnapshotWriterConfig *config = &writer->config;
    SnapshotVerdict verdict = await_verdict(writer);
    if (verdict == SNAPSHOT_BAD) {
        snapshot_draft_discard(writer->draft);
        error_set(&result->error, "the update after it was skipped");
        result->is_dropped = 1;
        return;
    }
    result->has_failed = snapshot_draft_commit(&result->bytes, writer->draft, &result->error) != 0;
    if (!result->has_failed && verdict == SNAPSHOT_GOOD) {
        result->has_failed =
            snapshot_prune(config->out_dir, config->keep, config->milestone_interval, &result->error) != 0;
    }
}

/* All of one snapshot. A failure stays in the result. */
static void make_snapshot(SnapshotWriter *writer, SnapshotResult *result)
{
    int status = 0;
    memset(result, 0, sizeof(*result));
    result->step = writer->info.step;
    if (writer->config.is_direct) {
        status = write_draft(writer, &result->error);
        set_stage(writer, STAGE_WRITING);
    } else {
        copy_state(writer);
        set_stage(writer, STAGE_WRITING);
        status = write_draft(writer, &result->error);
    }
    if (status == 0) {
        show_draft(writer, result);
    } else if (status == SNAPSHOT_UNWANTED) {
        error_set(&result->error, "the update after it was skipped");
        result->is_dropped = 1;
    } else {
        result->is_dropped = status == SNAPSHOT_NOT_FINITE;
        result->has_failed = !result->is_dropped;
    }
}

static void touch(void *block, size_t bytes)
{
    enum { PAGE_BYTES = 4096 };
    for (size_t i = 0; i < bytes; i += PAGE_BYTES) {
        ((volatile char *)block)[i] = 0;
    }
}

/* Now, not when the first snapshot is due: who has too little memory should learn it before any work is done.
 * Training begins meanwhile. */
static void touch_memory(SnapshotWriter *writer)
{
    Error error;
    for (int state = 0; state < SAVED_STATES && !writer->config.is_direct; state++) {
        touch(writer->copies[state], (size_t)writer->config.table->arena_count * sizeof(float));
    }
    CHECK(snapshot_draft_touch(writer->draft, &error) == 0, "%s", error.text);
}

static void *run_thread(void *argument)
{
    SnapshotWriter *writer = argument;
    touch_memory(writer);
    for (;;) {
        pthread_mutex_lock(&writer->lock);
        while (writer->stage == STAGE_IDLE) {
            pthread_cond_wait(&writer->changed, &writer->lock);
        }
        WriterStage stage = writer->stage;
        pthread_mutex_unlock(&writer->lock);
        if (stage == STAGE_ENDED) {
            return NULL;
        }
        SnapshotResult result;
        make_snapshot(writer, &result);
        pthread_mutex_lock(&writer->lock);
        result.stall_ms = writer->result.stall_ms;
        result.write_ms = clock_ms() - writer->begin_ms;
        writer->result = result;
        writer->has_result = 1;
        writer->stage = STAGE_IDLE;
        pthread_cond_broadcast(&writer->changed);
        pthread_mutex_unlock(&writer->lock);
    }
}

static void start_thread(SnapshotWriter *writer)
{
    sigset_t all, before; /* signals are the training thread's */
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES); /* by default what the main thread may have */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&writer->thread, &attributes, run_thread, writer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    CHECK(status == 0, "cannot start the snapshot thread: %s", strerror(status));
}

static size_t copy_bytes(const SnapshotWriterConfig *config)
{
    return config->is_direct ? 0 : (size_t)config->table->arena_count * sizeof(float) * SAVED_STATES;
}

size_t snapshot_writer_bytes(const SnapshotWriterConfig *config)
{
    return copy_bytes(config) + snapshot_draft_bytes(config->table, config->threads);
}

static void free_copies(SnapshotWriter *writer)
{
    for (int state = 0; state < SAVED_STATES; state++) {
        memory_free(writer->copies[state]);
        writer->copies[state] = NULL;
    }
}

SnapshotWriter *snapshot_writer_create(const SnapshotWriterConfig *config, Error *error)
{
    SnapshotWriter *writer = memory_alloc_zeroed(1, sizeof(*writer), "snapshot writer");
    writer->config = *config;
    writer->draft = snapshot_draft_create(config->table, config->threads, error);
    if (!writer->draft) {
        memory_free(writer);
        return NULL;
    }
    for (int state = 0; state < SAVED_STATES && !writer->config.is_direct; state++) {
        writer->copies[state] = memory_try_alloc((size_t)config->table->arena_count, sizeof(float));
        writer->config.is_direct = !writer->copies[state];
    }
    if (writer->config.is_direct) {
        free_copies(writer);
    }
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    start_thread(writer);
    return writer;
}

int snapshot_writer_is_direct(const SnapshotWriter *writer)
{
    return writer->config.is_direct;
}

void snapshot_writer_free(SnapshotWriter *writer)
{
    if (!writer) {
        return;
    }
    pthread_mutex_lock(&writer->lock);
    int is_unjudged = writer->stage != STAGE_IDLE && writer->verdict == SNAPSHOT_UNJUDGED;
    pthread_mutex_unlock(&writer->lock);
    if (is_unjudged) {
        snapshot_writer_judge(writer, SNAPSHOT_BAD);
    }
    snapshot_writer_wait(writer);
    set_stage(writer, STAGE_ENDED);
    pthread_join(writer->thread, NULL);
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->changed);
    free_copies(writer);
    snapshot_draft_free(writer->draft);
    memory_free(writer->options);
    memory_free(writer->plans);
    memory_free(writer->characters);
    memory_free(writer);
}

/* Wait while the stage is one of first .. last. */
static void wait_while(SnapshotWriter *writer, WriterStage first, WriterStage last)
{
    double begin_ms = clock_ms();
    pthread_mutex_lock(&writer->lock);
    if (writer->stage >= first && writer->stage <= last) {
        while (writer->stage >= first && writer->stage <= last) {
            pthread_cond_wait(&writer->changed, &writer->lock);
        }
        writer->result.stall_ms += clock_ms() - begin_ms;
    }
    pthread_mutex_unlock(&writer->lock);
}

void snapshot_writer_start(SnapshotWriter *writer, const SnapshotInfo *info)
{
    CHECK(writer->stage == STAGE_IDLE && !writer->has_result,
          "a snapshot is started while another is in flight");
    memory_free(writer->options);
    memory_free(writer->plans);
    memory_free(writer->characters);
    writer->options = memory_copy_text(info->options, "snapshot options");
    writer->plans = memory_copy_text(info->plans, "snapshot plans");
    writer->characters = memory_copy_text(info->characters, "snapshot vocabulary");
    writer->info = *info;
    writer->info.options = writer->options;
    writer->info.plans = writer->plans;
    writer->info.characters = writer->characters;
    writer->result.stall_ms = 0;
    writer->begin_ms = clock_ms();
    writer->verdict = writer->config.awaits_judge ? SNAPSHOT_UNJUDGED : SNAPSHOT_GOOD;
    set_stage(writer, STAGE_COPYING);
}

void snapshot_writer_judge(SnapshotWriter *writer, SnapshotVerdict verdict)
{
    pthread_mutex_lock(&writer->lock);
    writer->verdict = verdict;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

void snapshot_writer_copied(SnapshotWriter *writer)
{
    wait_while(writer, STAGE_COPYING, STAGE_COPYING);
}

void snapshot_writer_wait(SnapshotWriter *writer)
{
    wait_while(writer, STAGE_COPYING, STAGE_WRITING);
}

int snapshot_writer_poll(SnapshotWriter *writer, SnapshotResult *result)
{
    pthread_mutex_lock(&writer->lock);
    int has_result = writer->has_result;
    if (has_result) {
        *result = writer->result;
        writer->has_result = 0;
    }
    pthread_mutex_unlock(&writer->lock);
    return has_result;
}
