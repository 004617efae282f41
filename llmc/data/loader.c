#define _GNU_SOURCE
#include "llmc/data/loader.h"

#include <pthread.h>
#include <signal.h>

#include "llmc/base/memory.h"
#include "llmc/data/sample_index.h"

/* One buffer is with the caller; the others are ahead of it, so that a slow disk is met while slots compute.
 */
enum { RING_BUFFERS = 4 };

typedef struct SlotBuffer {
    int32_t *tokens;  /* (B,T) */
    int32_t *targets; /* (B,T) */
    int status;       /* 0, or -1 with the error below */
    Error error;
} SlotBuffer;

struct Loader {
    LoaderConfig config;
    SlotBuffer ring[RING_BUFFERS];
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows; a buffer's content belongs to one side at a time */
    pthread_cond_t is_made;
    pthread_cond_t is_free;
    int64_t made_count; /* slots made since the start */
    int64_t taken_count;
    int64_t freed_count;
    int is_stopping;
};

/* Fill one buffer with this rank's slot number `made` since the start. */
static void make_slot(const LoaderConfig *config, SlotBuffer *buffer, int64_t made)
{
    int B = config->batch_size;
    int T = config->window_tokens;
    uint64_t step = (uint64_t)(config->first_step + made / config->slot_count);
    uint64_t slot = (uint64_t)(config->first_slot + made % config->slot_count);
    uint64_t first_sample = (step * (uint64_t)config->slots_per_step + slot) * (uint64_t)B;
    int64_t windows = data_set_windows(config->set);
    buffer->status = 0;
    for (int b = 0; b < B && buffer->status == 0; b++) {
        int64_t window = sample_index(first_sample + (uint64_t)b, windows, config->seed, config->is_shuffled);
        buffer->status =
            data_set_window(config->set, window, config->vocab_size, buffer->tokens + (int64_t)b * T,
                            buffer->targets + (int64_t)b * T, &buffer->error);
    }
}

/* Make slots as long as there is room, until told to stop or a slot fails. */
static void *run_thread(void *argument)
{
    Loader *loader = argument;
    pthread_mutex_lock(&loader->mutex);
    for (;;) {
        while (!loader->is_stopping && loader->made_count - loader->freed_count == RING_BUFFERS) {
            pthread_cond_wait(&loader->is_free, &loader->mutex);
        }
        if (loader->is_stopping) {
            break;
        }
        int64_t made = loader->made_count;
        SlotBuffer *buffer = &loader->ring[made % RING_BUFFERS];
        pthread_mutex_unlock(&loader->mutex);
        make_slot(&loader->config, buffer, made);
        pthread_mutex_lock(&loader->mutex);
        loader->made_count++;
        pthread_cond_signal(&loader->is_made);
        if (buffer->status != 0) {
            break;
        }
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

Loader *loader_create(const LoaderConfig *config)
{
    CHECK(config->batch_size > 0 && config->window_tokens > 0 && config->slot_count > 0 &&
              config->first_slot >= 0 && config->first_slot + config->slot_count <= config->slots_per_step &&
              config->first_step >= 0,
          "loader: %d x %d tokens, slots %d + %d of %d, step %lld", config->batch_size, config->window_tokens,
          config->first_slot, config->slot_count, config->slots_per_step, (long long)config->first_step);
    Loader *loader = memory_alloc_zeroed(1, sizeof(*loader), "loader");
    loader->config = *config;
    size_t slot_tokens = (size_t)config->batch_size * (size_t)config->window_tokens;
    for (int i = 0; i < RING_BUFFERS; i++) {
        loader->ring[i].tokens = memory_alloc(slot_tokens, sizeof(int32_t), "loader tokens");
        loader->ring[i].targets = memory_alloc(slot_tokens, sizeof(int32_t), "loader targets");
    }
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->is_made, NULL);
    pthread_cond_init(&loader->is_free, NULL);

    /* Signals are for the thread that trains. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&loader->thread, NULL, run_thread, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    CHECK(!failed, "cannot start the loader's thread (error %d); raise the limit on processes", failed);
    return loader;
}

void loader_free(Loader *loader)
{
    if (!loader) {
        return;
    }
    pthread_mutex_lock(&loader->mutex);
    loader->is_stopping = 1;
    pthread_cond_signal(&loader->is_free);
    pthread_mutex_unlock(&loader->mutex);
    pthread_join(loader->thread, NULL);
    pthread_cond_destroy(&loader->is_made);
    pthread_cond_destroy(&loader->is_free);
    pthread_mutex_destroy(&loader->mutex);
    for (int i = 0; i < RING_BUFFERS; i++) {
        memory_free(loader->ring[i].tokens);
        memory_free(loader->ring[i].targets);
    }
    memory_free(loader);
}

int loader_next(Loader *loader, const int32_t **tokens, const int32_t **targets, Error *error)
{
    pthread_mutex_lock(&loader->mutex);
    if (loader->freed_count < loader->taken_count) {
        SlotBuffer *last = &loader->ring[(loader->taken_count - 1) % RING_BUFFERS];
        if (last->status == 0) {
            loader->freed_count = loader->taken_count;
            pthread_cond_signal(&loader->is_free);
        } else {
            loader->taken_count--; /* an error stays: there is no slot after it */
        }
    }
    while (loader->made_count == loader->taken_count) {
        pthread_cond_wait(&loader->is_made, &loader->mutex);
    }
    SlotBuffer *buffer = &loader->ring[loader->taken_count % RING_BUFFERS];
    loader->taken_count++;
    pthread_mutex_unlock(&loader->mutex);
    if (buffer->status != 0) {
        *error = buffer->error;
        return -1;
    }
    *tokens = buffer->tokens;
    *targets = buffer->targets;
    return 0;
}
