/* Speed of matrix products in GPT-2's shapes: build/mpi1/ops/x86-64-v4/bench_matmul [fp32|bf16] [BT...]
 *
 * One line a product: the best of many runs, taken in turns so that other load on the machine falls on all.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/compute/cpu/matmul.h"

enum { C = 768, VP = 50304, ROUNDS = 7, ROUND_MS = 100, PRODUCTS_MAX = 64 };

typedef enum Pass { FORWARD, D_INPUT, D_WEIGHT, PASSES } Pass;

static const char *const pass_names[PASSES] = {"forward", "dX", "dW"};

typedef struct Layer {
    const char *name;
    int inputs, outputs;
} Layer;

static const Layer layers[] = {
    {"qkv", C, 3 * C}, {"proj", C, C}, {"fc", C, 4 * C}, {"fcproj", 4 * C, C}, {"lm_head", C, VP}};

enum { LAYERS = (int)(sizeof(layers) / sizeof(layers[0])) };

typedef struct Timed {
    Matmul product;
    const Layer *layer;
    Pass pass;
    double best_ms;
} Timed;

/* The three products of a layer over `rows` tokens: rows (BT,inputs), weights (outputs,inputs). */
static Matmul layer_product(const Layer *layer, Pass pass, int rows, DType type)
{
    int in = layer->inputs, out = layer->outputs;
    Matmul products[PASSES] = {
        {.a_stride = in,
         .b_stride = in,
         .is_b_transposed = 1,
         .M = rows,
         .N = out,
         .K = in,
         .out_stride = out},
        {.a_stride = out, .b_stride = in, .M = rows, .N = in, .K = out, .out_stride = in},
        {.a_stride = out,
         .b_stride = in,
         .is_a_transposed = 1,
         .M = out,
         .N = in,
         .K = rows,
         .out_stride = in,
         .accumulates = 1}};
    Matmul product = products[pass];
    product.in_type = type;
    return product;
}

static void *draw(int64_t count, DType type)
{
    float *values = memory_alloc((size_t)count, sizeof(float), "benchmark");
    RandomKey key = {.seed = 1, .purpose = RANDOM_TEST};
    random_normal(values, count, 1.0f, &key, 0);
    for (int64_t i = 0; type == DTYPE_BF16 && i < count; i++) {
        ((bf16 *)values)[i] = bf16_from_float(values[i]);
    }
    return values;
}

static void measure(Timed *timed, int count)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            double start = clock_ms(), now = start;
            do {
                matmul(&timed[i].product);
                double end = clock_ms();
                if (timed[i].best_ms <= 0 || end - now < timed[i].best_ms) {
                    timed[i].best_ms = end - now;
                }
                now = end;
            } while (now - start < ROUND_MS);
        }
    }
}

static void bench(DType type, int rows)
{
    int64_t most = (int64_t)VP * (rows > C ? rows : C);
    void *a = draw(most, type), *b = draw(most, type);
    float *out = memory_alloc_zeroed((size_t)most, sizeof(float), "benchmark");
    Timed timed[PRODUCTS_MAX];
    int count = 0;
    for (int i = 0; i < LAYERS * PASSES; i++) {
        Timed *t = &timed[count++];
        *t = (Timed){.layer = &layers[i / PASSES], .pass = (Pass)(i % PASSES)};
        t->product = layer_product(t->layer, t->pass, rows, type);
        t->product.a = a;
        t->product.b = b;
        t->product.out = out;
    }
    measure(timed, count);
    for (int i = 0; i < count; i++) {
        const Matmul *p = &timed[i].product;
        printf("%s %5d %-8s %-8s %6d x %6d x %6d %9.3f ms %7.0f GF/s\n", type == DTYPE_FP32 ? "fp32" : "bf16",
               rows, timed[i].layer->name, pass_names[timed[i].pass], p->M, p->N, p->K, timed[i].best_ms,
               2.0 * p->M * p->N * p->K / timed[i].best_ms * 1e-6);
    }
    memory_free(a);
    memory_free(b);
    memory_free(out);
}

int main(int argc, char **argv)
{
    int has_rows = 0;
    printf("%d threads\n", omp_get_max_threads());
    for (DType type = DTYPE_FP32; type <= DTYPE_BF16; type++) {
        if (argc > 1 && strcmp(argv[1], type == DTYPE_FP32 ? "bf16" : "fp32") == 0) {
            continue;
        }
        for (int i = 1; i < argc; i++) {
            if (atoi(argv[i]) > 0) {
                has_rows = 1;
                bench(type, atoi(argv[i]));
            }
        }
        if (!has_rows) {
            bench(type, 1);
            bench(type, 256);
            bench(type, 1024);
        }
    }
    return 0;
}
