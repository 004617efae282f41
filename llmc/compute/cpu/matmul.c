/* Matrix products: which tiles, on which threads, from which slices of K. What the CPU's instructions do is
 * in the kernels (matmul_kernel.h).
 *
 * One thread makes a whole tile. For each slice of K it packs the tile's rows of A and columns of B into
 * scratch that stays in its caches, and runs the kernel over all pairs of panels.
 */
#include "llmc/compute/cpu/matmul.h"

#include <omp.h>
#include <pthread.h>

#include "llmc/base/error.h"
#include "llmc/base/memory.h"

enum {
    TILE_ROWS_MAX = 512,
    TILE_COLUMNS_MAX = 768,
    TILE_ELEMENTS_MAX = 192 << 10,  /* 768 KB of fp32: still in the second cache when the epilogue runs */
    DEPTH_MAX = 512,                /* the deepest slice of any kernel */
    PANEL_MAX = 48,                 /* the widest panel */
    SERIAL_PRODUCTS_MAX = 256 << 10 /* below this a parallel region costs more than the product */
};

typedef struct TilePlan {
    int rows, columns;           /* of a full tile */
    int row_tiles, column_tiles; /* how many of them */
} TilePlan;

typedef struct Scratch {
    void *block;
    size_t bytes;
} Scratch;

/* What a thread keeps between products, until it ends. */
typedef struct Worker {
    Scratch tile, a, b;
    int is_started;
} Worker;

static _Thread_local Worker worker;
static pthread_key_t worker_key; /* its destructor releases the worker of a thread that ends */
static pthread_once_t worker_once = PTHREAD_ONCE_INIT;
static const MatmulKernel *bf16_kernel = &matmul_widened;

void matmul_set_bf16_kernel(const MatmulKernel *kernel)
{
    bf16_kernel = kernel;
}

static void *scratch_get(Scratch *scratch, size_t bytes)
{
    if (scratch->bytes < bytes) {
        memory_free(scratch->block);
        scratch->block = memory_alloc(bytes, 1, "matrix product scratch");
        scratch->bytes = bytes;
    }
    return scratch->block;
}

static void worker_release(void *ending)
{
    Worker *w = ending;
    memory_free(w->tile.block);
    memory_free(w->a.block);
    memory_free(w->b.block);
    *w = (Worker){.is_started = 0};
}

static void worker_make_key(void)
{
    CHECK(pthread_key_create(&worker_key, worker_release) == 0, "no key left for what a thread keeps");
}

static void worker_start(void)
{
    if (!worker.is_started) {
        worker.is_started = 1;
        CHECK(pthread_setspecific(worker_key, &worker) == 0, "no memory for what a thread keeps");
    }
}

static int div_up(int value, int step)
{
    return (value - 1) / step + 1;
}

static int round_up(int value, int step)
{
    return div_up(value, step) * step;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

size_t matmul_scratch_bytes(void)
{
    size_t packed = (size_t)(TILE_ROWS_MAX + 2 * PANEL_MAX) * DEPTH_MAX * sizeof(float);
    return packed + TILE_ELEMENTS_MAX * sizeof(float);
}

/* ---- which tiles ----------------------------------------------------------------------------- */

/* Estimated time, in products of one thread, of the thread that has the most tiles. */
static double plan_cost(const MatmulKernel *kernel, const TilePlan *plan, int threads)
{
    int64_t tiles = (int64_t)plan->row_tiles * plan->column_tiles;
    return (double)((tiles + threads - 1) / threads) * (plan->rows + kernel->pack_rows) *
           (plan->columns + kernel->pack_columns);
}

/* Tiles of whole panels that cover rows and columns evenly. */
static TilePlan plan_even(const MatmulKernel *kernel, int M, int N, int row_tiles, int column_tiles)
{
    TilePlan plan;
    plan.rows = round_up(div_up(M, row_tiles), kernel->panel_rows);
    plan.columns = round_up(div_up(N, column_tiles), kernel->panel_columns);
    plan.row_tiles = div_up(M, plan.rows);
    plan.column_tiles = div_up(N, plan.columns);
    return plan;
}

static TilePlan plan_tiles(const MatmulKernel *kernel, const Matmul *product, int threads)
{
    int M = product->M, N = product->N;
    TilePlan best = {0, 0, 0, 0};
    double best_cost = -1;
    int row_tiles_max = div_up(M, kernel->panel_rows), column_tiles_max = div_up(N, kernel->panel_columns);
    int row_tiles = div_up(M, TILE_ROWS_MAX);
    for (int i = 0; i < 32 && row_tiles <= row_tiles_max; i++, row_tiles++) {
        TilePlan rows = plan_even(kernel, M, N, row_tiles, column_tiles_max);
        int columns_max = min_int(TILE_COLUMNS_MAX, TILE_ELEMENTS_MAX / rows.rows);
        int column_tiles = div_up(N, columns_max / kernel->panel_columns * kernel->panel_columns);
        for (int j = 0; j < 2 * threads + 32 && column_tiles <= column_tiles_max; j++, column_tiles++) {
            TilePlan plan = plan_even(kernel, M, N, row_tiles, column_tiles);
            double cost = plan_cost(kernel, &plan, threads);
            if (best_cost < 0 || cost < best_cost) {
                best = plan;
                best_cost = cost;
            }
        }
    }
    return best;
}

/* ---- one tile -------------------------------------------------------------------------------- */

static size_t packed_bytes(const MatmulKernel *kernel, int count, int panel, int depth)
{
    int dwords = round_up(depth, kernel->depth_step) / kernel->values_per_dword;
    return (size_t)round_up(count, panel) * (size_t)dwords * sizeof(float);
}

static const void *corner(const void *matrix, DType type, int64_t stride, int is_transposed, int64_t row,
                          int64_t column)
{
    int64_t element = is_transposed ? column * stride + row : row * stride + column;
    return (const char *)matrix + element * dtype_bytes(type);
}

/* A tile of the product, and the slice of K at hand. */
typedef struct Region {
    int row, rows, column, columns;
    int k, depth;
} Region;

/* tile (rows,columns) = or += what one slice of K contributes. A is packed whole, into the second cache; B
 * panel by panel, each of which stays in the first while all of A passes by. */
static void add_slice(const MatmulKernel *kernel, const Matmul *product, MatmulTile tile, const Region *at)
{
    DType type = product->in_type;
    size_t panel_bytes = packed_bytes(kernel, kernel->panel_rows, kernel->panel_rows, at->depth);
    float *out = tile.out;
    char *a_panels = scratch_get(&worker.a, packed_bytes(kernel, at->rows, kernel->panel_rows, at->depth));
    void *b_panel =
        scratch_get(&worker.b, packed_bytes(kernel, kernel->panel_columns, kernel->panel_columns, at->depth));
    MatmulBlock a = {.stride = product->a_stride,
                     .is_depth_contiguous = !product->is_a_transposed,
                     .count = at->rows,
                     .depth = at->depth};
    a.data = corner(product->a, type, product->a_stride, product->is_a_transposed, at->row, at->k);
    kernel->pack_a(a_panels, &a);
    tile.b = b_panel;
    tile.depth = round_up(at->depth, kernel->depth_step) / kernel->values_per_dword;
    for (int j = 0; j < at->columns; j += kernel->panel_columns) {
        MatmulBlock b = {.stride = product->b_stride,
                         .is_depth_contiguous = product->is_b_transposed,
                         .count = min_int(kernel->panel_columns, at->columns - j),
                         .depth = at->depth};
        b.data = corner(product->b, type, product->b_stride, product->is_b_transposed, at->k, at->column + j);
        kernel->pack_b(b_panel, &b);
        tile.columns = b.count;
        for (int i = 0; i < at->rows; i += kernel->panel_rows) {
            tile.a = a_panels + (size_t)(i / kernel->panel_rows) * panel_bytes;
            tile.rows = min_int(kernel->panel_rows, at->rows - i);
            tile.out = out + i * tile.out_stride + j;
            kernel->multiply(&tile);
        }
    }
}

/* tile (rows,columns) = or += the product of all of K. */
static void run_slices(const MatmulKernel *kernel, const Matmul *product, MatmulTile tile, Region *at)
{
    for (at->k = 0; at->k < product->K; at->k += kernel->depth_max) {
        at->depth = min_int(kernel->depth_max, product->K - at->k);
        tile.accumulates = at->k > 0 || product->accumulates;
        add_slice(kernel, product, tile, at);
    }
}

static int is_one_row(const MatmulKernel *kernel, const Matmul *product)
{
    return kernel->multiply_row && product->M == 1 && product->is_b_transposed && !product->is_a_transposed;
}

/* The same for one row. */
static void run_row(const MatmulKernel *kernel, const Matmul *product, float *out, const Region *at)
{
    MatmulRow row = {.a = product->a, .out = out, .accumulates = product->accumulates};
    row.b = (MatmulBlock){
        .stride = product->b_stride, .is_depth_contiguous = 1, .count = at->columns, .depth = product->K};
    row.b.data = corner(product->b, product->in_type, product->b_stride, 1, 0, at->column);
    kernel->multiply_row(&row);
}

static void run_tile(const MatmulKernel *kernel, const Matmul *product, const TilePlan *plan, int row_tile,
                     int column_tile)
{
    Region at = {.row = row_tile * plan->rows, .column = column_tile * plan->columns};
    at.rows = min_int(plan->rows, product->M - at.row);
    at.columns = min_int(plan->columns, product->N - at.column);
    MatmulTile tile = {.out_stride = product->out_stride};
    if (product->out != NULL) {
        tile.out = product->out + at.row * product->out_stride + at.column;
    } else {
        tile.out_stride = at.columns;
        tile.out = scratch_get(&worker.tile, (size_t)at.rows * (size_t)at.columns * sizeof(float));
    }
    if (is_one_row(kernel, product)) {
        run_row(kernel, product, tile.out, &at);
    } else {
        run_slices(kernel, product, tile, &at);
    }
    if (product->epilogue != NULL) {
        product->epilogue(tile.out, tile.out_stride, at.row, at.rows, at.column, at.columns,
                          product->context);
    }
}

/* ---- the product ----------------------------------------------------------------------------- */

void matmul_with(const MatmulKernel *kernel, const Matmul *product)
{
    CHECK(product->M > 0 && product->N > 0 && product->K > 0, "matrix product of %d x %d x %d", product->M,
          product->N, product->K);
    CHECK(product->in_type == kernel->in_type, "matrix product by a kernel for other inputs");
    CHECK(product->out != NULL || !product->accumulates, "matrix product adds to no output");
    pthread_once(&worker_once, worker_make_key);
    int is_small = (double)product->M * product->N * product->K <= SERIAL_PRODUCTS_MAX;
    int threads = is_small || omp_in_parallel() ? 1 : omp_get_max_threads();
    TilePlan plan = plan_tiles(kernel, product, threads);
    int64_t tiles = (int64_t)plan.row_tiles * plan.column_tiles;
    /* The longer way is walked slowly, so that the larger input is read from memory once. */
    int is_by_columns = plan.column_tiles >= plan.row_tiles;
    int inner_tiles = is_by_columns ? plan.row_tiles : plan.column_tiles;
#pragma omp parallel if (threads > 1 && tiles > 1)
    {
        worker_start();
        if (kernel->begin) {
            kernel->begin();
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tiles; i++) {
            int outer = (int)(i / inner_tiles), inner = (int)(i % inner_tiles);
            run_tile(kernel, product, &plan, is_by_columns ? inner : outer, is_by_columns ? outer : inner);
        }
        if (kernel->end) {
            kernel->end();
        }
    }
}

void matmul(const Matmul *product)
{
    matmul_with(product->in_type == DTYPE_FP32 ? &matmul_fp32 : bf16_kernel, product);
}
