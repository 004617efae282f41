/* Matrix products by oneDNN, one call a tile.
 *
 * The library sees one tile at a time, on one thread, so that threads cannot change the order of its sums.
 * fp32 tiles go through its sgemm. bf16 tiles go through its matmul primitive where the CPU has bf16
 * instructions (AVX512_BF16, AMX); elsewhere the library is slow at them, so slices of both inputs are
 * widened to fp32, which is exact, and sgemm adds up the slices.
 */
#include "llmc/compute/cpu/matmul.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <string.h>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"

enum {
    TILE_ROWS_STEP = 32,
    TILE_ROWS_MAX = 512,
    TILE_COLUMNS_STEP = 64,
    TILE_COLUMNS_MAX = 768,
    TILE_ELEMENTS_MAX = 192 << 10,   /* 768 KB of fp32: still in L2 when the epilogue runs */
    SERIAL_PRODUCTS_MAX = 256 << 10, /* below this a parallel region costs more than the product */
    SLICE_DEPTH = 3072,              /* of K; a deeper slice of a tile falls out of cache */
    WIDEN_DEPTH = 512,               /* of K, where a slice is first widened to fp32 */
    PRIMITIVES_MAX = 512             /* kept by each thread; a model needs about a hundred */
};

typedef struct TilePlan {
    int rows, columns;           /* of a full tile */
    int row_tiles, column_tiles; /* how many of them */
} TilePlan;

/* What the library is given at a time: some of K for one tile. */
typedef struct Slice {
    const Matmul *product;
    const void *a, *b; /* where the slice begins in each input */
    float *out;        /* the tile */
    int64_t out_stride;
    int rows, columns, depth;
    int accumulates; /* onto the slices before, or onto the caller's output */
} Slice;

/* What makes two slices need the same primitive; compared as bytes. */
typedef struct PrimitiveKey {
    int64_t a_stride, b_stride, out_stride;
    int rows, columns, depth;
    int is_a_transposed, is_b_transposed, accumulates;
} PrimitiveKey;

typedef struct PrimitiveEntry {
    PrimitiveKey key;
    int is_filled;
    dnnl_primitive_t primitive; /* NULL: the library has no fast kernel for this */
    dnnl_memory_t a, b, out, scratchpad;
    size_t scratchpad_bytes;
} PrimitiveEntry;

typedef struct Scratch {
    void *block;
    size_t bytes;
} Scratch;

/* What a thread keeps between products, until it ends. */
typedef struct Worker {
    dnnl_stream_t stream;
    PrimitiveEntry *entries; /* PRIMITIVES_MAX, hashed by key */
    Scratch tile, scratchpad, wide_a, wide_b;
    int is_started;
} Worker;

static _Thread_local Worker worker;
static dnnl_engine_t engine;
static int has_fast_bf16;
static pthread_key_t worker_key; /* its destructor releases the worker of a thread that ends */
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

#define DNNL_CHECK(call)                                                                                     \
    do {                                                                                                     \
        dnnl_status_t status_ = (call);                                                                      \
        CHECK(status_ == dnnl_success, "oneDNN: " #call " returned %d", (int)status_);                       \
    } while (0)

static void *scratch_get(Scratch *scratch, size_t bytes)
{
    if (scratch->bytes < bytes) {
        memory_free(scratch->block);
        scratch->block = memory_alloc(bytes, 1, "matrix product scratch");
        scratch->bytes = bytes;
    }
    return scratch->block;
}

static int div_up(int value, int step)
{
    return (value - 1) / step + 1;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* ---- which tiles -------------------------------------------------------------------------------- */

/* A tile costs as much as one larger by these rows and columns, because the library copies its inputs into an
 * order of its own: fitted to measurements (dev/notes/matmul.md). By type, then is_a_transposed, then
 * is_b_transposed. */
static const struct {
    double rows, columns;
} tile_overhead[2][2][2] = {
    [DTYPE_FP32] = {{{4, 8}, {30, 8}}, {{10, 12}, {30, 30}}},
    [DTYPE_BF16] = {{{14, 12}, {14, 12}}, {{14, 40}, {14, 40}}},
};

/* Estimated cost of these tiles, averaged over some numbers of threads that wait for whoever has the last. */
static double plan_cost(const Matmul *product, const TilePlan *plan)
{
    static const struct {
        int threads;
        double weight;
    } machines[] = {{2, 3}, {4, 2}, {8, 1}, {16, 1}};
    int64_t tiles = (int64_t)plan->row_tiles * plan->column_tiles;
    double rounds = 0;
    for (int i = 0; i < (int)(sizeof(machines) / sizeof(machines[0])); i++) {
        int threads = machines[i].threads;
        rounds += machines[i].weight * threads * (double)((tiles + threads - 1) / threads);
    }
    int a = product->is_a_transposed != 0, b = product->is_b_transposed != 0;
    return rounds * (plan->rows + tile_overhead[product->in_type][a][b].rows) *
           (plan->columns + tile_overhead[product->in_type][a][b].columns);
}

/* Tiles that cover rows and columns evenly, none larger than this. */
static TilePlan plan_even(int M, int N, int rows_max, int columns_max)
{
    TilePlan plan;
    plan.rows = div_up(div_up(M, div_up(M, rows_max)), 16) * 16;
    plan.columns = div_up(div_up(N, div_up(N, columns_max)), TILE_COLUMNS_STEP) * TILE_COLUMNS_STEP;
    plan.row_tiles = div_up(M, plan.rows);
    plan.column_tiles = div_up(N, plan.columns);
    return plan;
}

static TilePlan plan_tiles(const Matmul *product)
{
    int M = product->M, N = product->N;
    TilePlan best = {M, N, 1, 1};
    if ((double)M * N * product->K <= SERIAL_PRODUCTS_MAX) {
        return best;
    }
    double best_cost = -1;
    for (int columns = TILE_COLUMNS_STEP; columns <= TILE_COLUMNS_MAX; columns += TILE_COLUMNS_STEP) {
        int rows_max = min_int(TILE_ROWS_MAX, TILE_ELEMENTS_MAX / columns);
        for (int rows = TILE_ROWS_STEP; rows <= rows_max; rows += TILE_ROWS_STEP) {
            TilePlan plan = plan_even(M, N, rows, columns);
            double cost = plan_cost(product, &plan);
            if (best_cost < 0 || cost < best_cost) {
                best = plan;
                best_cost = cost;
            }
            if (rows >= M) {
                break;
            }
        }
        if (columns >= N) {
            break;
        }
    }
    return best;
}

/* ---- fp32 ----------------------------------------------------------------------------------- */

static void slice_sgemm(const Slice *slice, const float *a, int64_t a_stride, const float *b,
                        int64_t b_stride)
{
    const Matmul *product = slice->product;
    DNNL_CHECK(dnnl_sgemm(product->is_a_transposed ? 'T' : 'N', product->is_b_transposed ? 'T' : 'N',
                          slice->rows, slice->columns, slice->depth, 1.0f, a, a_stride, b, b_stride,
                          slice->accumulates ? 1.0f : 0.0f, slice->out, slice->out_stride));
}

/* ---- bf16, widened -------------------------------------------------------------------------- */

/* Copy rows x columns as they are stored to `scratch` in fp32, and return the stride there: whole cache
 * lines, and never a multiple of 4 KB, which would put a column into a few sets of the cache. */
static int64_t widen(Scratch *scratch, const bf16 *in, int64_t in_stride, int rows, int columns)
{
    int64_t out_stride = div_up(columns, 16) * (int64_t)16;
    out_stride += out_stride % 1024 == 0 ? 16 : 0;
    float *out = scratch_get(scratch, (size_t)rows * (size_t)out_stride * sizeof(float));
    for (int i = 0; i < rows; i++) {
        float *to = out + i * out_stride;
        const bf16 *from = in + i * in_stride;
        for (int j = 0; j < columns; j++) {
            to[j] = bf16_to_float(from[j]);
        }
    }
    return out_stride;
}

static void slice_widened(const Slice *slice)
{
    const Matmul *product = slice->product;
    int rows = slice->rows, columns = slice->columns, depth = slice->depth;
    int64_t a_stride = product->is_a_transposed
                           ? widen(&worker.wide_a, slice->a, product->a_stride, depth, rows)
                           : widen(&worker.wide_a, slice->a, product->a_stride, rows, depth);
    int64_t b_stride = product->is_b_transposed
                           ? widen(&worker.wide_b, slice->b, product->b_stride, columns, depth)
                           : widen(&worker.wide_b, slice->b, product->b_stride, depth, columns);
    slice_sgemm(slice, worker.wide_a.block, a_stride, worker.wide_b.block, b_stride);
}

/* ---- one tile: bf16, by a primitive ------------------------------------------------------------- */

static void describe(dnnl_memory_desc_t *out, int rows, int columns, int is_transposed, int64_t stride,
                     dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, columns};
    dnnl_dims_t strides = {is_transposed ? 1 : stride, is_transposed ? stride : 1};
    DNNL_CHECK(dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides));
}

static void memory_object(dnnl_memory_t *out, const dnnl_memory_desc_t *description)
{
    DNNL_CHECK(dnnl_memory_create(out, description, engine, DNNL_MEMORY_NONE));
}

/* NULL if the library would use its reference code. */
static dnnl_primitive_desc_t describe_primitive(const PrimitiveKey *key)
{
    dnnl_memory_desc_t a, b, out;
    describe(&a, key->rows, key->depth, key->is_a_transposed, key->a_stride, dnnl_bf16);
    describe(&b, key->depth, key->columns, key->is_b_transposed, key->b_stride, dnnl_bf16);
    describe(&out, key->rows, key->columns, 0, key->out_stride, dnnl_f32);
    dnnl_matmul_desc_t operation;
    DNNL_CHECK(dnnl_matmul_desc_init(&operation, &a, &b, NULL, &out));
    dnnl_post_ops_t post;
    DNNL_CHECK(dnnl_post_ops_create(&post));
    if (key->accumulates) {
        DNNL_CHECK(dnnl_post_ops_append_sum(post, 1.0f));
    }
    dnnl_primitive_attr_t attributes;
    DNNL_CHECK(dnnl_primitive_attr_create(&attributes));
    DNNL_CHECK(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    DNNL_CHECK(dnnl_primitive_attr_set_post_ops(attributes, post));
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t status = dnnl_primitive_desc_create(&description, &operation, attributes, engine, NULL);
    DNNL_CHECK(dnnl_primitive_attr_destroy(attributes));
    DNNL_CHECK(dnnl_post_ops_destroy(post));
    if (status != dnnl_success) {
        return NULL;
    }
    const char *kernel = "";
    DNNL_CHECK(dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &kernel));
    if (strncmp(kernel, "ref", 3) == 0) {
        DNNL_CHECK(dnnl_primitive_desc_destroy(description));
        return NULL;
    }
    return description;
}

static void entry_fill(PrimitiveEntry *entry, const PrimitiveKey *key)
{
    *entry = (PrimitiveEntry){.key = *key, .is_filled = 1};
    dnnl_primitive_desc_t description = describe_primitive(key);
    if (description == NULL) {
        return;
    }
    DNNL_CHECK(dnnl_primitive_create(&entry->primitive, description));
    memory_object(&entry->a, dnnl_primitive_desc_query_md(description, dnnl_query_src_md, 0));
    memory_object(&entry->b, dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0));
    memory_object(&entry->out, dnnl_primitive_desc_query_md(description, dnnl_query_dst_md, 0));
    const dnnl_memory_desc_t *scratchpad =
        dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    memory_object(&entry->scratchpad, scratchpad);
    entry->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
    DNNL_CHECK(dnnl_primitive_desc_destroy(description));
}

static void entry_empty(PrimitiveEntry *entry)
{
    if (entry->primitive != NULL) {
        DNNL_CHECK(dnnl_primitive_destroy(entry->primitive));
        DNNL_CHECK(dnnl_memory_destroy(entry->a));
        DNNL_CHECK(dnnl_memory_destroy(entry->b));
        DNNL_CHECK(dnnl_memory_destroy(entry->out));
        DNNL_CHECK(dnnl_memory_destroy(entry->scratchpad));
    }
    entry->is_filled = 0;
}

/* The primitive of this key, looked for in a few places after its hash; made, in the place of another if need
 * be, when it is not there. */
static PrimitiveEntry *entry_get(const PrimitiveKey *key)
{
    enum { PROBES = 8 };
    if (worker.entries == NULL) {
        worker.entries = memory_alloc_zeroed(PRIMITIVES_MAX, sizeof(PrimitiveEntry), "matrix product cache");
    }
    uint64_t hash = hash_bytes(key, sizeof(*key), 0);
    PrimitiveEntry *entry = NULL;
    for (int probe = 0; probe < PROBES; probe++) {
        entry = &worker.entries[(hash + (uint64_t)probe) % PRIMITIVES_MAX];
        if (!entry->is_filled) {
            break;
        }
        if (memcmp(&entry->key, key, sizeof(*key)) == 0) {
            return entry;
        }
    }
    if (entry->is_filled) {
        entry = &worker.entries[hash % PRIMITIVES_MAX];
        entry_empty(entry);
    }
    entry_fill(entry, key);
    return entry;
}

static void set_data(dnnl_memory_t memory, const void *data)
{
    DNNL_CHECK(dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data));
}

/* Returns 0 if the library has no fast kernel for this. */
static int slice_primitive(const Slice *slice)
{
    const Matmul *product = slice->product;
    PrimitiveKey key;
    memset(&key, 0, sizeof(key));
    key.a_stride = product->a_stride;
    key.b_stride = product->b_stride;
    key.out_stride = slice->out_stride;
    key.rows = slice->rows;
    key.columns = slice->columns;
    key.depth = slice->depth;
    key.is_a_transposed = product->is_a_transposed;
    key.is_b_transposed = product->is_b_transposed;
    key.accumulates = slice->accumulates;
    PrimitiveEntry *entry = entry_get(&key);
    if (entry->primitive == NULL) {
        return 0;
    }
    if (worker.stream == NULL) {
        DNNL_CHECK(dnnl_stream_create(&worker.stream, engine, dnnl_stream_default_flags));
    }
    set_data(entry->a, slice->a);
    set_data(entry->b, slice->b);
    set_data(entry->out, slice->out);
    set_data(entry->scratchpad, scratch_get(&worker.scratchpad, entry->scratchpad_bytes));
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, entry->a},
                                   {DNNL_ARG_WEIGHTS, entry->b},
                                   {DNNL_ARG_DST, entry->out},
                                   {DNNL_ARG_SCRATCHPAD, entry->scratchpad}};
    DNNL_CHECK(dnnl_primitive_execute(entry->primitive, worker.stream, 4, arguments));
    return 1;
}

/* ---- start and end of a thread ------------------------------------------------------------------- */

static void worker_release(void *ending)
{
    Worker *w = ending;
    for (int i = 0; w->entries != NULL && i < PRIMITIVES_MAX; i++) {
        entry_empty(&w->entries[i]);
    }
    memory_free(w->entries);
    memory_free(w->tile.block);
    memory_free(w->scratchpad.block);
    memory_free(w->wide_a.block);
    memory_free(w->wide_b.block);
    if (w->stream != NULL) {
        DNNL_CHECK(dnnl_stream_destroy(w->stream));
    }
    memset(w, 0, sizeof(*w));
}

static void library_start(void)
{
    DNNL_CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
    int isa = (int)dnnl_get_effective_cpu_isa();
    has_fast_bf16 = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    CHECK(pthread_key_create(&worker_key, worker_release) == 0, "no key left for what a thread keeps");
}

/* Called by each thread in a parallel region of a product. For this region only the library is told to use
 * one thread: it may not split a tile, even where the team is one thread and it could start others. */
static void worker_start(void)
{
    omp_set_num_threads(1);
    if (!worker.is_started) {
        worker.is_started = 1;
        CHECK(pthread_setspecific(worker_key, &worker) == 0, "no memory for what a thread keeps");
    }
}

/* ---- the product -------------------------------------------------------------------------------- */

static const void *corner(const void *matrix, DType type, int64_t stride, int is_transposed, int64_t row,
                          int64_t column)
{
    int64_t element = is_transposed ? column * stride + row : row * stride + column;
    return (const char *)matrix + element * dtype_bytes(type);
}

/* Sum the tile whose place in `out` and size are set in *slice, slice by slice. */
static void sum_slices(Slice *slice, int row, int column)
{
    const Matmul *product = slice->product;
    int is_widened = product->in_type == DTYPE_BF16 && !has_fast_bf16;
    int depth = div_up(product->K, div_up(product->K, is_widened ? WIDEN_DEPTH : SLICE_DEPTH));
    for (int k = 0; k < product->K; k += depth) {
        slice->a = corner(product->a, product->in_type, product->a_stride, product->is_a_transposed, row, k);
        slice->b =
            corner(product->b, product->in_type, product->b_stride, product->is_b_transposed, k, column);
        slice->depth = min_int(depth, product->K - k);
        slice->accumulates = k > 0 || product->accumulates;
        if (product->in_type == DTYPE_FP32) {
            slice_sgemm(slice, slice->a, product->a_stride, slice->b, product->b_stride);
        } else if (is_widened || !slice_primitive(slice)) {
            slice_widened(slice);
        }
    }
}

static void run_tile(const Matmul *product, const TilePlan *plan, int row_tile, int column_tile)
{
    int row = row_tile * plan->rows, column = column_tile * plan->columns;
    Slice slice = {.product = product,
                   .rows = min_int(plan->rows, product->M - row),
                   .columns = min_int(plan->columns, product->N - column)};
    if (product->out != NULL) {
        slice.out = product->out + row * product->out_stride + column;
        slice.out_stride = product->out_stride;
    } else {
        slice.out_stride = slice.columns;
        slice.out = scratch_get(&worker.tile, (size_t)slice.rows * (size_t)slice.columns * sizeof(float));
    }
    sum_slices(&slice, row, column);
    if (product->epilogue != NULL) {
        product->epilogue(slice.out, slice.out_stride, row, slice.rows, column, slice.columns,
                          product->context);
    }
}

void matmul(const Matmul *product)
{
    CHECK(product->M > 0 && product->N > 0 && product->K > 0, "matrix product of %d x %d x %d", product->M,
          product->N, product->K);
    CHECK(product->out != NULL || !product->accumulates, "matrix product adds to no output");
    pthread_once(&library_once, library_start);
    TilePlan plan = plan_tiles(product);
    int64_t tiles = (int64_t)plan.row_tiles * plan.column_tiles;
    /* The longer way is walked slowly, so that the larger input is read from memory once. */
    int is_by_columns = plan.column_tiles >= plan.row_tiles;
    int inner_tiles = is_by_columns ? plan.row_tiles : plan.column_tiles;
#pragma omp parallel if (tiles > 1)
    {
        worker_start();
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tiles; i++) {
            int outer = (int)(i / inner_tiles), inner = (int)(i % inner_tiles);
            run_tile(product, &plan, is_by_columns ? inner : outer, is_by_columns ? outer : inner);
        }
    }
}
