#include "llmc/comm/buckets.h"

int buckets_most(int64_t arena_count, int64_t element_bytes, int64_t bucket_bytes, int gaps)
{
    return (int)(arena_count * element_bytes / bucket_bytes) + 2 + gaps;
}

void buckets_begin(Buckets *buckets)
{
    buckets->pending_count = 0;
    buckets->covered_count = 0;
    buckets->count = 0;
}

/* Elements that make the next bucket full. */
static int64_t capacity(const Buckets *buckets)
{
    int64_t bytes = buckets->bucket_bytes;
    if (buckets->count == 0 && bytes > BUCKET_FIRST_BYTES) {
        bytes = BUCKET_FIRST_BYTES;
    }
    int64_t elements = bytes / buckets->element_bytes;
    return elements > 0 ? elements : 1;
}

/* Take `count` pending elements from the top as a bucket. */
static void launch(Buckets *buckets, int64_t count)
{
    buckets->pending_count -= count;
    buckets->count++;
    buckets->launch(buckets->context, (Bucket){buckets->pending_offset + buckets->pending_count, count});
}

void buckets_finish(Buckets *buckets)
{
    if (buckets->pending_count > 0) {
        launch(buckets, buckets->pending_count);
    }
}

/* Pending is then all that joins this range, and the range. */
static void join(Buckets *buckets, int64_t offset, int64_t count)
{
    if (buckets->pending_count > 0 && offset + count != buckets->pending_offset) {
        buckets_finish(buckets);
    }
    buckets->covered_count += count;
    buckets->pending_offset = offset;
    buckets->pending_count += count;
}

void buckets_add(Buckets *buckets, int64_t offset, int64_t count)
{
    join(buckets, offset, count);
    for (int64_t full = capacity(buckets); buckets->pending_count >= full; full = capacity(buckets)) {
        launch(buckets, full);
    }
}

void buckets_add_last(Buckets *buckets, int64_t offset, int64_t count)
{
    join(buckets, offset, count);
    buckets_finish(buckets);
}
