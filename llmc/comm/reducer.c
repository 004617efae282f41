#include "llmc/comm/reducer.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/model/dtype.h"

enum {
    WHAT_BYTES = 24,
    LATE_CHUNK_BYTES = 8 << 20, /* of late rows summed at once */
    GAPS_MAX = 60,              /* ranges that do not join */
    EXTRA_TIMINGS = 3,          /* late rows, their marks, the tail */
    ROWS_PER_WORD = 4           /* marks of rows: 16-bit counters of ranks, four in an int64 */
};

struct Reducer {
    ReducerConfig config;
    int64_t arena_bytes, wire_bytes; /* of one element */
    Buckets cutter;                  /* only backward's thread touches it */
    ReducerTimes times;

    Bucket *buckets; /* of this step, in order */
    BucketTiming *timings;
    char (*names)[WHAT_BYTES];
    int capacity;

    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int bucket_count; /* final and launched */
    int done_count;   /* summed */
    int is_waiting;   /* wait_for_sums runs: without overlap buckets start only now */
    int is_ending;

    int timing_count;  /* buckets, then late rows and tail */
    bf16 *wire;        /* one bucket of bf16, which is no range of an fp32 arena */
    int64_t *marks;    /* which rows any rank has */
    int64_t *late;     /* one chunk of rows */
    int *late_numbers; /* of the rows in the chunk */
    int late_rows_max; /* rows in a chunk */
};

static void sum_timed(Reducer *reducer, int timing, void *values, int64_t count, CommType type, int64_t bytes)
{
    BucketTiming *own = &reducer->timings[timing];
    own->what = reducer->names[timing];
    own->bytes = bytes;
    own->begin_ms = clock_ms();
    comm_bucket_sum(values, count, type, own->what);
    own->end_ms = clock_ms();
}

/* The arena's own elements go over the wire, but for bf16, which is a copy there and back. */
static void sum_bucket(Reducer *reducer, int index, Bucket bucket)
{
    char *elements = (char *)reducer->config.elements + bucket.offset * reducer->arena_bytes;
    int64_t bytes = bucket.count * reducer->wire_bytes;
    snprintf(reducer->names[index], WHAT_BYTES, "bucket %d", index);
    if (reducer->config.type != COMM_BF16) {
        sum_timed(reducer, index, elements, bucket.count, reducer->config.type, bytes);
        return;
    }
    float *values = (float *)elements;
    for (int64_t i = 0; i < bucket.count; i++) {
        reducer->wire[i] = bf16_from_float(values[i]);
    }
    sum_timed(reducer, index, reducer->wire, bucket.count, COMM_BF16, bytes);
    for (int64_t i = 0; i < bucket.count; i++) {
        values[i] = bf16_to_float(reducer->wire[i]);
    }
}

static void *run_thread(void *argument)
{
    Reducer *reducer = argument;
    pthread_mutex_lock(&reducer->lock);
    for (;;) {
        int may_start = reducer->config.overlaps || reducer->is_waiting;
        if (reducer->done_count < reducer->bucket_count && may_start) {
            int index = reducer->done_count;
            Bucket bucket = reducer->buckets[index];
            pthread_mutex_unlock(&reducer->lock);
            sum_bucket(reducer, index, bucket);
            pthread_mutex_lock(&reducer->lock);
            reducer->done_count++;
            pthread_cond_broadcast(&reducer->changed);
        } else if (reducer->is_ending) {
            break;
        } else {
            pthread_cond_wait(&reducer->changed, &reducer->lock);
        }
    }
    pthread_mutex_unlock(&reducer->lock);
    return NULL;
}

/* Backward's thread hands a bucket to the communication thread. */
static void launch(void *context, Bucket bucket)
{
    Reducer *reducer = context;
    pthread_mutex_lock(&reducer->lock);
    CHECK(reducer->bucket_count + EXTRA_TIMINGS < reducer->capacity, "more than %d buckets in a step",
          reducer->capacity);
    reducer->buckets[reducer->bucket_count++] = bucket;
    pthread_cond_broadcast(&reducer->changed);
    pthread_mutex_unlock(&reducer->lock);
}

static Reducer *create(const ReducerConfig *config, Error *error)
{
    (void)error;
    Reducer *reducer = memory_alloc_zeroed(1, sizeof(*reducer), "reducer");
    reducer->config = *config;
    reducer->arena_bytes = config->type == COMM_INT64 ? 8 : 4;
    reducer->wire_bytes = config->type == COMM_INT64 ? 8 : config->type == COMM_FLOAT ? 4 : 2;
    reducer->cutter = (Buckets){.element_bytes = reducer->wire_bytes,
                                .bucket_bytes = config->bucket_bytes,
                                .launch = launch,
                                .context = reducer};
    reducer->capacity =
        buckets_most(config->count, reducer->wire_bytes, config->bucket_bytes, GAPS_MAX) + EXTRA_TIMINGS;
    reducer->buckets = memory_alloc((size_t)reducer->capacity, sizeof(*reducer->buckets), "buckets");
    reducer->timings =
        memory_alloc_zeroed((size_t)reducer->capacity, sizeof(*reducer->timings), "bucket times");
    reducer->names = memory_alloc_zeroed((size_t)reducer->capacity, WHAT_BYTES, "bucket names");
    if (config->type == COMM_BF16) {
        int64_t elements = config->bucket_bytes / (int64_t)sizeof(bf16) + 1;
        reducer->wire = memory_alloc((size_t)elements, sizeof(bf16), "bf16 bucket");
    }
    if (config->type == COMM_INT64) {
        int64_t row_bytes = (int64_t)config->row_count * 8;
        int64_t rows = LATE_CHUNK_BYTES / row_bytes;
        reducer->late_rows_max = rows < 1 ? 1 : rows > config->rows ? config->rows : (int)rows;
        reducer->marks = memory_alloc((size_t)config->rows / ROWS_PER_WORD + 1, sizeof(int64_t), "late rows");
        reducer->late = memory_alloc((size_t)reducer->late_rows_max, (size_t)row_bytes, "late rows");
        reducer->late_numbers = memory_alloc((size_t)reducer->late_rows_max, sizeof(int), "late rows");
    }
    pthread_mutex_init(&reducer->lock, NULL);
    pthread_cond_init(&reducer->changed, NULL);
    int status = pthread_create(&reducer->thread, NULL, run_thread, reducer);
    CHECK(status == 0, "cannot start the communication thread: %s", strerror(status));
    return reducer;
}

static void reducer_free(Reducer *reducer)
{
    if (!reducer) {
        return;
    }
    pthread_mutex_lock(&reducer->lock);
    reducer->is_ending = 1;
    pthread_cond_broadcast(&reducer->changed);
    pthread_mutex_unlock(&reducer->lock);
    pthread_join(reducer->thread, NULL);
    pthread_mutex_destroy(&reducer->lock);
    pthread_cond_destroy(&reducer->changed);
    memory_free(reducer->buckets);
    memory_free(reducer->timings);
    memory_free(reducer->names);
    memory_free(reducer->marks);
    memory_free(reducer->wire);
    memory_free(reducer->late);
    memory_free(reducer->late_numbers);
    memory_free(reducer);
}

/* Count for every row how many ranks have it: tokens become marks, summed over ranks. */
static void sum_marks(Reducer *reducer, const ReducerRest *rest, int timing)
{
    int64_t words = reducer->config.rows / ROWS_PER_WORD + 1;
    memset(reducer->marks, 0, (size_t)words * sizeof(int64_t));
    for (int i = 0; i < rest->count; i++) {
        int row = rest->tokens[i];
        reducer->marks[row / ROWS_PER_WORD] += (int64_t)1 << (16 * (row % ROWS_PER_WORD));
    }
    snprintf(reducer->names[timing], WHAT_BYTES, "late row marks");
    sum_timed(reducer, timing, reducer->marks, words, COMM_INT64, words * 8);
}

static int is_marked(const Reducer *reducer, int row)
{
    return ((uint64_t)reducer->marks[row / ROWS_PER_WORD] >> (16 * (row % ROWS_PER_WORD)) & 0xffff) != 0;
}

/* Fill a chunk with this rank's part of the next marked rows. Returns how many; *row and *own move on. */
static int gather_rows(Reducer *reducer, const ReducerRest *rest, int *rows, int *row, int *own)
{
    int64_t C = reducer->config.row_count;
    int count = 0;
    for (; *row < reducer->config.rows && count < reducer->late_rows_max; (*row)++) {
        if (!is_marked(reducer, *row)) {
            continue;
        }
        int64_t *values = reducer->late + count * C;
        if (*own < rest->count && rest->tokens[*own] == *row) {
            memcpy(values, rest->sums + *own * C, (size_t)C * sizeof(int64_t));
            (*own)++;
        } else {
            memset(values, 0, (size_t)C * sizeof(int64_t));
        }
        rows[count++] = *row;
    }
    return count;
}

static void sum_late_rows(Reducer *reducer, const ReducerRest *rest, int timing)
{
    int64_t C = reducer->config.row_count;
    int *rows = reducer->late_numbers;
    int row = 0, own = 0;
    double begin_ms = clock_ms();
    int64_t bytes = 0;
    snprintf(reducer->names[timing], WHAT_BYTES, "late rows");
    for (;;) {
        int count = gather_rows(reducer, rest, rows, &row, &own);
        if (count == 0) {
            break;
        }
        bytes += count * C * 8;
        sum_timed(reducer, timing, reducer->late, count * C, COMM_INT64, bytes);
        for (int i = 0; i < count; i++) {
            int64_t *sums = (int64_t *)reducer->config.elements + reducer->config.row_offset + rows[i] * C;
            for (int64_t c = 0; c < C; c++) {
                sums[c] += reducer->late[i * C + c];
            }
        }
    }
    reducer->timings[timing].begin_ms = begin_ms;
    reducer->timings[timing].what = reducer->names[timing];
}

/* Hand over what backward left and wait until the thread has summed all buckets. Returns their number. */
static int wait_for_buckets(Reducer *reducer)
{
    buckets_finish(&reducer->cutter);
    buckets_begin(&reducer->cutter);
    pthread_mutex_lock(&reducer->lock);
    reducer->is_waiting = 1;
    pthread_cond_broadcast(&reducer->changed);
    while (reducer->done_count < reducer->bucket_count) {
        pthread_cond_wait(&reducer->changed, &reducer->lock);
    }
    int count = reducer->bucket_count;
    reducer->is_waiting = 0;
    reducer->bucket_count = 0;
    reducer->done_count = 0;
    pthread_mutex_unlock(&reducer->lock);
    return count;
}

static void wait_for_sums(Reducer *reducer, const ReducerRest *rest)
{
    const ReducerConfig *config = &reducer->config;
    reducer->times.wait_begin_ms = clock_ms();
    int count = wait_for_buckets(reducer); /* the thread is idle now: this thread uses its channel */
    if (config->type == COMM_INT64) {
        sum_marks(reducer, rest, count);
        sum_late_rows(reducer, rest, count + 1);
        count += 2;
    }
    snprintf(reducer->names[count], WHAT_BYTES, "tail");
    sum_timed(reducer, count, config->tail, config->tail_count, COMM_INT64, config->tail_count * 8);
    reducer->times.wait_end_ms = clock_ms();
    reducer->times.buckets = reducer->timings;
    reducer->times.bucket_count = count + 1;
}

static void range_done(Reducer *reducer, int64_t offset, int64_t count)
{
    buckets_add(&reducer->cutter, offset, count);
}

static void read_times(Reducer *reducer, ReducerTimes *times)
{
    *times = reducer->times;
}

static const char *name(const Reducer *reducer)
{
    (void)reducer;
    return comm_transport_name();
}

const ReducerKind host_reducer = {.create = create,
                                  .free = reducer_free,
                                  .name = name,
                                  .range_done = range_done,
                                  .wait = wait_for_sums,
                                  .read_times = read_times};
