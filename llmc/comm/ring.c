#include "llmc/comm/ring.h"

#include "llmc/base/memory.h"
#include "llmc/base/work.h"
#include "llmc/model/dtype.h"

void ring_init(Ring *ring, int rank, int rank_count)
{
    *ring = (Ring){.rank = rank, .rank_count = rank_count};
    ring->arrived = memory_alloc(RING_CHUNK_BYTES, 1, "ring buffer");
}

void ring_release(Ring *ring)
{
    memory_free(ring->arrived);
    ring->arrived = NULL;
}

/* Sums wrap around, as those of any other order would. */
static void add_int64(int64_t *values, const int64_t *arrived, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (int64_t)((uint64_t)values[i] + (uint64_t)arrived[i]);
    }
}

static void max_int64(int64_t *values, const int64_t *arrived, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = arrived[i] > values[i] ? arrived[i] : values[i];
    }
}

static void add_float(float *values, const float *arrived, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] += arrived[i];
    }
}

static void add_bf16(bf16 *values, const bf16 *arrived, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = bf16_from_float(bf16_to_float(values[i]) + bf16_to_float(arrived[i]));
    }
}

static void combine(char *values, const void *arrived, size_t bytes, const AllReduce *what)
{
    if (what->type == COMM_FLOAT) {
        add_float((float *)values, arrived, bytes / sizeof(float));
    } else if (what->type == COMM_BF16) {
        add_bf16((bf16 *)values, arrived, bytes / sizeof(bf16));
    } else if (what->operation == COMM_MAX) {
        max_int64((int64_t *)values, arrived, bytes / sizeof(int64_t));
    } else {
        add_int64((int64_t *)values, arrived, bytes / sizeof(int64_t));
    }
}

/* A part of the values, in bytes. */
typedef struct Segment {
    char *begin;
    size_t bytes;
} Segment;

static Segment segment(const Ring *ring, const AllReduce *what, int number)
{
    int N = ring->rank_count;
    int64_t i = (number % N + N) % N;
    int64_t share = what->count / N, rest = what->count % N;
    int64_t first = i * share + (i < rest ? i : rest);
    size_t element_bytes = comm_type_bytes(what->type);
    return (Segment){.begin = (char *)what->values + (size_t)first * element_bytes,
                     .bytes = (size_t)(share + (i < rest)) * element_bytes};
}

static size_t chunk(size_t bytes)
{
    return bytes < RING_CHUNK_BYTES ? bytes : RING_CHUNK_BYTES;
}

/* One step: pass `out` on while `in` arrives, and add what arrives (what != NULL) or take it. In chunks, so
 * that what arrives is added while it is in the cache and the next chunk is on its way. */
static int pass(Ring *ring, Segment out, Segment in, const AllReduce *what)
{
    while (out.bytes > 0 || in.bytes > 0) {
        size_t send_bytes = chunk(out.bytes), receive_bytes = chunk(in.bytes);
        work_add();
        void *target = what ? ring->arrived : in.begin;
        if (ring->exchange(ring->context, out.begin, send_bytes, target, receive_bytes) != 0) {
            return -1;
        }
        if (what && receive_bytes > 0) {
            combine(in.begin, ring->arrived, receive_bytes, what);
        }
        out = (Segment){out.begin + send_bytes, out.bytes - send_bytes};
        in = (Segment){in.begin + receive_bytes, in.bytes - receive_bytes};
    }
    return 0;
}

int ring_all_reduce(Ring *ring, const AllReduce *what)
{
    int status = 0;
    for (int step = 0; step < ring->rank_count - 1 && status == 0; step++) {
        status = pass(ring, segment(ring, what, ring->rank - step),
                      segment(ring, what, ring->rank - step - 1), what);
    }
    for (int step = 0; step < ring->rank_count - 1 && status == 0; step++) {
        status = pass(ring, segment(ring, what, ring->rank - step + 1),
                      segment(ring, what, ring->rank - step), NULL);
    }
    return status;
}

int ring_broadcast(Ring *ring, void *data, int64_t bytes, int root)
{
    int is_last = (ring->rank + 1) % ring->rank_count == root;
    Segment rest = {data, (size_t)bytes};
    while (rest.bytes > 0) {
        size_t some = chunk(rest.bytes);
        work_add();
        if (ring->rank != root && ring->exchange(ring->context, NULL, 0, rest.begin, some) != 0) {
            return -1;
        }
        if (!is_last && ring->exchange(ring->context, rest.begin, some, NULL, 0) != 0) {
            return -1;
        }
        rest = (Segment){rest.begin + some, rest.bytes - some};
    }
    return 0;
}
