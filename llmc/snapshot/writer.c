#define _GNU_SOURCE
#include "llmc/snapshot/writer.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"

typedef enum WriterStage { STAGE_IDLE, STAGE_COPYING, STAGE_WRITING, STAGE_ENDED } WriterStage;

enum { COPY_CHUNK = 1 << 16 }; /* values read at once */

struct SnapshotWriter {
    SnapshotWriterConfig config;
    float *copies[SAVED_STATES]; /* arenas; padding is never read */
    SnapshotInfo info;           /* of the one in flight */
    char *options, *plans;       /* its texts */

    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    WriterStage stage;
    int has_result; /* not yet polled */
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
        if (!writer->copies[state]) {
            writer->copies[state] = memory_alloc((size_t)table->arena_count, sizeof(float), "snapshot copy");
        }
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

/* Compress and write the copy, then delete what is old. A failure stays in the result. */
static void write_copy(SnapshotWriter *writer, SnapshotResult *result)
{
    const SnapshotWriterConfig *config = &writer->config;
    StateSource source = {read_copy, writer};
    memset(result, 0, sizeof(*result));
    result->step = writer->info.step;
    result->has_failed = snapshot_write(&result->bytes, config->out_dir, &writer->info, config->table,
                                        &source, config->threads, &result->error) != 0;
    if (!result->has_failed) {
        result->has_failed =
            snapshot_prune(config->out_dir, config->keep, config->milestone_interval, &result->error) != 0;
    }
}

static void *run_thread(void *argument)
{
    SnapshotWriter *writer = argument;
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
        copy_state(writer);
        set_stage(writer, STAGE_WRITING);
        SnapshotResult result;
        write_copy(writer, &result);
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

SnapshotWriter *snapshot_writer_create(const SnapshotWriterConfig *config)
{
    SnapshotWriter *writer = memory_alloc_zeroed(1, sizeof(*writer), "snapshot writer");
    writer->config = *config;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    sigset_t all, before; /* signals are the training thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&writer->thread, NULL, run_thread, writer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK(status == 0, "cannot start the snapshot thread: %s", strerror(status));
    return writer;
}

void snapshot_writer_free(SnapshotWriter *writer)
{
    if (!writer) {
        return;
    }
    snapshot_writer_wait(writer);
    set_stage(writer, STAGE_ENDED);
    pthread_join(writer->thread, NULL);
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->changed);
    for (int state = 0; state < SAVED_STATES; state++) {
        memory_free(writer->copies[state]);
    }
    memory_free(writer->options);
    memory_free(writer->plans);
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
    writer->options = memory_copy_text(info->options, "snapshot options");
    writer->plans = memory_copy_text(info->plans, "snapshot plans");
    writer->info = *info;
    writer->info.options = writer->options;
    writer->info.plans = writer->plans;
    writer->result.stall_ms = 0;
    writer->begin_ms = clock_ms();
    set_stage(writer, STAGE_COPYING);
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
