#define _GNU_SOURCE
#include "data_prep/pipeline.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data_prep/character_table.h"
#include "data_prep/documents.h"
#include "data_prep/input_files.h"
#include "data_prep/progress.h"
#include "data_prep/sink.h"
#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/text/tokenizer.h"

enum { JOBS_PER_THREAD = 3, SIGNAL_WAIT_US = 1000 };

/* A chunk on its way. Job n % jobs_count is chunk n. */
typedef struct Job {
    Chunk chunk;
    TokenBuffer tokens;
    int64_t text_tokens; /* without <|endoftext|> */
    size_t *ends;        /* where in the tokens documents end; owned */
    size_t ends_count;
    size_t ends_capacity;
    int is_ready; /* encoded, waits to be written */
} Job;

typedef struct Pipeline {
    const TokenizeOptions *options; /* folders are expanded in them */
    const TokenizeOptions *named;   /* as the user gave them */
    Tokenizer *tokenizer;           /* one of these two */
    CharacterTable *characters;     /* of all texts */

    pthread_mutex_t read_mutex; /* held while a chunk is read; taken before state_mutex */
    Documents *documents;
    int64_t read_count; /* chunks */
    int is_read;        /* all of them */
    int64_t drop_count; /* documents that an earlier run has read */

    pthread_mutex_t write_mutex; /* held while `sink` is used; taken before state_mutex */
    Sink sink;
    atomic_int is_stopping; /* a signal waits for the mutex */
    int is_over;            /* shards are in place, or removed */
    Progress progress;

    pthread_mutex_t state_mutex; /* guards all below, and is_ready of each job */
    pthread_cond_t job_written;
    int64_t written_count; /* chunks */
    int is_writing;
    int has_failed;
    Error error; /* the first */
    TokenizeTotals totals;
    int64_t text_tokens, val_text_tokens;
    Job *jobs;
    int jobs_count;
} Pipeline;

static void set_failed(Pipeline *pipeline, const Error *error)
{
    pthread_mutex_lock(&pipeline->state_mutex);
    if (!pipeline->has_failed) {
        pipeline->has_failed = 1;
        pipeline->error = *error;
    }
    pthread_cond_broadcast(&pipeline->job_written);
    pthread_mutex_unlock(&pipeline->state_mutex);
}

/* Wait until job n % jobs_count is free for chunk n. Returns 0 when the run has failed. */
static int wait_for_job(Pipeline *pipeline, int64_t n)
{
    pthread_mutex_lock(&pipeline->state_mutex);
    while (!pipeline->has_failed && n - pipeline->written_count >= pipeline->jobs_count) {
        pthread_cond_wait(&pipeline->job_written, &pipeline->state_mutex);
    }
    int go_on = !pipeline->has_failed;
    pthread_mutex_unlock(&pipeline->state_mutex);
    return go_on;
}

/* Read the next chunk. Returns its job, or NULL when there is no more or the run has failed. */
static Job *read_job(Pipeline *pipeline)
{
    Job *job = NULL;
    pthread_mutex_lock(&pipeline->read_mutex);
    if (!pipeline->is_read && wait_for_job(pipeline, pipeline->read_count)) {
        Error error;
        job = &pipeline->jobs[pipeline->read_count % pipeline->jobs_count];
        int more = documents_next(pipeline->documents, &job->chunk, &error);
        if (more > 0) {
            chunk_drop_documents(&job->chunk, &pipeline->drop_count);
            pipeline->read_count++;
        } else {
            pipeline->is_read = 1;
            job = NULL;
        }
        if (more < 0) {
            set_failed(pipeline, &error);
        }
    }
    pthread_mutex_unlock(&pipeline->read_mutex);
    return job;
}

static void append_eot(TokenBuffer *tokens)
{
    if (tokens->count == tokens->capacity) {
        size_t capacity = tokens->capacity * 2 + 64;
        tokens->tokens =
            memory_grow(tokens->tokens, tokens->count, capacity, sizeof(*tokens->tokens), "token ids");
        tokens->capacity = capacity;
    }
    tokens->tokens[tokens->count++] = TOKENIZER_EOT;
}

static void note_end(Job *job)
{
    if (job->ends_count == job->ends_capacity) {
        size_t capacity = job->ends_capacity * 2 + 16;
        job->ends = memory_grow(job->ends, job->ends_count, capacity, sizeof(*job->ends), "documents");
        job->ends_capacity = capacity;
    }
    job->ends[job->ends_count++] = job->tokens.count;
}

/* encoder: NULL for characters. -1 with *error. */
static int encode_job(Job *job, Encoder *encoder, const Pipeline *pipeline, Error *error)
{
    const TokenizeOptions *options = pipeline->options;
    const Chunk *chunk = &job->chunk;
    job->tokens.count = 0;
    job->ends_count = 0;
    int64_t eot_count = 0;
    size_t done = 0;
    for (size_t i = 0; i <= chunk->marks_count; i++) {
        const DocumentMark *mark = i < chunk->marks_count ? &chunk->marks[i] : NULL;
        size_t end = mark ? mark->offset : chunk->bytes;
        if (encoder) {
            encoder_encode(encoder, &job->tokens, chunk->text + done, end - done);
        } else if (character_table_encode(pipeline->characters, &job->tokens, chunk->text + done, end - done,
                                          error) != 0) {
            return -1;
        }
        done = end;
        if (!mark) {
            break;
        }
        if ((mark->kind == MARK_END && options->eot == EOT_APPEND) ||
            (mark->kind == MARK_BEGIN && options->eot == EOT_PREPEND)) {
            append_eot(&job->tokens);
            eot_count++;
        }
        if (mark->kind == MARK_END) {
            note_end(job);
        }
    }
    job->text_tokens = (int64_t)job->tokens.count - eot_count;
    return 0;
}

static int write_job(Pipeline *pipeline, const Job *job)
{
    Error error;
    const ChunkPlace *from = &job->chunk.place;
    Place place = {.input = from->input, .entry = from->entry, .documents = from->document};
    PartialChunk chunk = {.tokens = job->tokens.tokens,
                          .tokens_count = job->tokens.count,
                          .ends = job->ends,
                          .ends_count = job->ends_count,
                          .text_tokens = job->text_tokens,
                          .text_bytes = (int64_t)job->chunk.bytes,
                          .place = job->chunk.has_place ? &place : NULL};
    pthread_mutex_lock(&pipeline->write_mutex);
    int failed = (job->chunk.is_val && shard_writer_begin_val(&pipeline->sink.writer, &error) != 0) ||
                 sink_append(&pipeline->sink, &chunk, &error) != 0;
    *(job->chunk.is_val ? &pipeline->val_text_tokens : &pipeline->text_tokens) += job->text_tokens;
    pipeline->totals.documents += (int64_t)job->ends_count;
    pipeline->totals.text_bytes += (int64_t)job->chunk.bytes;
    if (!failed) {
        progress_show(&pipeline->progress, documents_bytes_read(pipeline->documents),
                      sink_tokens(&pipeline->sink));
    }
    pthread_mutex_unlock(&pipeline->write_mutex);
    if (failed) {
        set_failed(pipeline, &error);
    }
    return failed;
}

/* This job is encoded. If nobody writes, write all that are ready and whose turn has come. */
static void finish_job(Pipeline *pipeline, Job *job)
{
    pthread_mutex_lock(&pipeline->state_mutex);
    job->is_ready = 1;
    while (!pipeline->is_writing && !pipeline->has_failed) {
        Job *next = &pipeline->jobs[pipeline->written_count % pipeline->jobs_count];
        if (!next->is_ready) {
            break;
        }
        next->is_ready = 0;
        pipeline->is_writing = 1;
        pthread_mutex_unlock(&pipeline->state_mutex);
        write_job(pipeline, next);
        pthread_mutex_lock(&pipeline->state_mutex);
        pipeline->is_writing = 0;
        pipeline->written_count++;
        pthread_cond_broadcast(&pipeline->job_written);
    }
    pthread_mutex_unlock(&pipeline->state_mutex);
}

static void *work(void *argument)
{
    Pipeline *pipeline = argument;
    Encoder *encoder = pipeline->tokenizer ? encoder_create(pipeline->tokenizer) : NULL;
    Error error;
    for (Job *job; (job = read_job(pipeline));) {
        if (encode_job(job, encoder, pipeline, &error) != 0) {
            set_failed(pipeline, &error);
            break;
        }
        finish_job(pipeline, job);
    }
    encoder_free(encoder);
    return NULL;
}

/* Wakes the thread that waits for signals when the run is over; by itself it means nothing to a program. */
enum { WAKE_SIGNAL = SIGURG };

/* The signals that end a run, and the one that ends waiting for them. One that was ignored when the program
 * began (nohup) stays ignored. */
static void awaited_signals(sigset_t *set)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(set);
    sigaddset(set, WAKE_SIGNAL);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(set, signals[i]);
        }
    }
}

/* End the program as the signal would have, if it had not been blocked. */
static void end_by_signal(int signal_number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* The signals are blocked in all threads, and this one waits for them: so it can clean up like any other
 * code. */
static void *wait_for_signal(void *argument)
{
    Pipeline *pipeline = argument;
    sigset_t set;
    awaited_signals(&set);
    for (;;) {
        int signal_number;
        int failed = sigwait(&set, &signal_number);
        CHECK(!failed, "cannot wait for signals: %s", strerror(failed));
        atomic_store(&pipeline->is_stopping, signal_number != WAKE_SIGNAL);
        pthread_mutex_lock(&pipeline->write_mutex);
        if (!pipeline->is_over && signal_number != WAKE_SIGNAL) {
            fprintf(stderr, "tokenize: stopped by signal %d (%s): nothing was written\n", signal_number,
                    strsignal(signal_number));
            sink_release(&pipeline->sink);
            end_by_signal(signal_number);
        }
        int is_over = pipeline->is_over;
        pthread_mutex_unlock(&pipeline->write_mutex);
        if (is_over) {
            return NULL;
        }
    }
}

/* Between two parts of a long piece of work: a signal that waits for the mutex ends the program. */
static void let_signal_in(void *context)
{
    Pipeline *pipeline = context;
    while (atomic_load(&pipeline->is_stopping)) {
        pthread_mutex_unlock(&pipeline->write_mutex);
        usleep(SIGNAL_WAIT_US);
        pthread_mutex_lock(&pipeline->write_mutex);
    }
}

/* What a program that ends by CHECK leaves behind: nothing new. */
static Sink *abandoned_sink;

static void abandon_shards(int exit_code)
{
    (void)exit_code;
    sink_abandon(abandoned_sink);
}

/* Let all threads work until everything is written or the run has failed. */
static void run_threads(Pipeline *pipeline)
{
    pthread_t threads[THREADS_MAX];
    int others = pipeline->options->threads - 1;
    for (int i = 0; i < others; i++) {
        int failed = pthread_create(&threads[i], NULL, work, pipeline);
        CHECK(!failed, "cannot start a thread: %s; lower --threads", strerror(failed));
    }
    work(pipeline);
    for (int i = 0; i < others; i++) {
        pthread_join(threads[i], NULL);
    }
}

static int finish(Pipeline *pipeline, Error *error)
{
    if (pipeline->has_failed) {
        *error = pipeline->error;
        return -1;
    }
    const TokenizeOptions *named = pipeline->named;
    if (pipeline->text_tokens == 0) {
        return error_set(error, "%s%s: expected text, found none: there are no tokens to write",
                         named->inputs[0], named->inputs_count > 1 ? " .." : "");
    }
    if (named->val_inputs_count > 0 && pipeline->val_text_tokens == 0) {
        return error_set(error, "--val-input=%s%s: expected text, found none: there are no tokens to write",
                         named->val_inputs[0], named->val_inputs_count > 1 ? " .." : "");
    }
    if (!pipeline->characters) {
        return sink_finish(&pipeline->sink, let_signal_in, pipeline, error);
    }
    uint16_t *tokens = memory_alloc_zeroed(CHARACTERS_MAX, sizeof(*tokens), "characters");
    Characters *characters = character_table_finish(pipeline->characters, tokens, error);
    shard_writer_set_characters(&pipeline->sink.writer, characters, tokens);
    int result = characters ? sink_finish(&pipeline->sink, let_signal_in, pipeline, error) : -1;
    pipeline->totals.characters = characters ? characters_count(characters) : 0;
    shard_writer_set_characters(&pipeline->sink.writer, NULL, NULL);
    characters_free(characters);
    memory_free(tokens);
    return result;
}

static void pipeline_init(Pipeline *pipeline)
{
    pipeline->jobs_count = pipeline->options->threads * JOBS_PER_THREAD;
    pthread_mutex_init(&pipeline->read_mutex, NULL);
    pthread_mutex_init(&pipeline->write_mutex, NULL);
    pthread_mutex_init(&pipeline->state_mutex, NULL);
    pthread_cond_init(&pipeline->job_written, NULL);
}

/* What reads and encodes, once the inputs and the output are known to be there. */
static void pipeline_prepare(Pipeline *pipeline, int64_t input_bytes)
{
    if (pipeline->options->tokenizer == TOKENS_CHAR) {
        pipeline->characters = character_table_create();
    } else {
        pipeline->tokenizer = tokenizer_create();
    }
    pipeline->documents = documents_create(pipeline->options, pipeline->tokenizer);
    pipeline->jobs = memory_alloc_zeroed((size_t)pipeline->jobs_count, sizeof(*pipeline->jobs), "chunks");
    progress_init(&pipeline->progress, input_bytes);
}

/* Begin where an earlier run has ended. */
static void begin_reading(Pipeline *pipeline)
{
    PartialState begun = sink_begun(&pipeline->sink);
    pipeline->drop_count = begun.documents - begun.place.documents;
    pipeline->text_tokens = begun.text_tokens;
    pipeline->totals.documents = begun.documents;
    pipeline->totals.text_bytes = begun.text_bytes;
    documents_begin_at(pipeline->documents, begun.place.input, begun.place.entry);
}

static void release_jobs(Pipeline *pipeline)
{
    for (int i = 0; i < pipeline->jobs_count; i++) {
        chunk_release(&pipeline->jobs[i].chunk);
        token_buffer_release(&pipeline->jobs[i].tokens);
        memory_free(pipeline->jobs[i].ends);
    }
    memory_free(pipeline->jobs);
}

/* The run whose inputs are files. */
static int run_files(TokenizeTotals *totals, const TokenizeOptions *options, const TokenizeOptions *named,
                     int64_t input_bytes, Error *error)
{
    double begin_ms = clock_ms();
    Pipeline pipeline = {.options = options, .named = named};
    pipeline_init(&pipeline);
    sigset_t set;
    awaited_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (sink_init(&pipeline.sink, options, error) != 0) {
        return -1;
    }
    abandoned_sink = &pipeline.sink;
    error_set_abort_hook(abandon_shards);
    pthread_t signal_thread;
    int failed = pthread_create(&signal_thread, NULL, wait_for_signal, &pipeline);
    CHECK(!failed, "cannot start a thread: %s", strerror(failed));

    pipeline_prepare(&pipeline, input_bytes);
    begin_reading(&pipeline);
    run_threads(&pipeline);
    progress_end(&pipeline.progress);

    pthread_mutex_lock(&pipeline.write_mutex);
    int result = finish(&pipeline, error);
    sink_release(&pipeline.sink);
    error_set_abort_hook(NULL);
    pipeline.is_over = 1;
    pthread_mutex_unlock(&pipeline.write_mutex);
    pthread_kill(signal_thread, WAKE_SIGNAL);
    pthread_join(signal_thread, NULL);

    *totals = pipeline.totals;
    totals->tokens = pipeline.sink.writer.tokens;
    totals->val_tokens = pipeline.sink.writer.val_tokens;
    totals->removed_shards = pipeline.sink.writer.removed_count;
    totals->ms = clock_ms() - begin_ms;
    release_jobs(&pipeline);
    documents_free(pipeline.documents);
    tokenizer_free(pipeline.tokenizer);
    character_table_free(pipeline.characters);
    return result;
}

int pipeline_run(TokenizeTotals *totals, const TokenizeOptions *options, Error *error)
{
    InputFiles files;
    TokenizeOptions expanded = *options;
    int result = input_files_init(&files, options, error);
    if (result == 0) {
        expanded.inputs = files.paths;
        expanded.inputs_count = (int)files.count;
        expanded.val_first = (int)files.val_first;
        result = run_files(totals, &expanded, options, files.bytes, error);
    }
    input_files_release(&files);
    return result;
}
