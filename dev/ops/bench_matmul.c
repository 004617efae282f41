/* Speed of matrix products in GPT-2's shapes, beside the most that registers alone can do in fp32:
 *
 *   build/mpi1/ops/x86-64-v4/bench_matmul [fp32|bf16] [BT...]
 *
 * One line a product: the best of many runs, taken in turns so that other load on the machine falls on all.
 * KERNEL=amx, avx512_bf16 or widened picks how bf16 is multiplied. Built with ONEDNN=1, oneDNN multiplies the
 * same inputs in turns with us; it is there for this comparison only.
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/ops/bench_peer.h"
#include "lanes.h"
#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/compute/cpu/matmul.h"

enum { C = 768, VP = 50304, ROUNDS = 5, ROUND_MS = 60, PRODUCTS_MAX = 64 };

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
    double best_ms, peer_ms;
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

static void time_best(double *best_ms, void (*multiply)(const Matmul *), const Matmul *product)
{
    double start = clock_ms(), now = start;
    do {
        multiply(product);
        double end = clock_ms();
        if (*best_ms <= 0 || end - now < *best_ms) {
            *best_ms = end - now;
        }
        now = end;
    } while (now - start < ROUND_MS);
}

static void measure(Timed *timed, int count)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            time_best(&timed[i].best_ms, matmul, &timed[i].product);
            if (peer_name()) {
                time_best(&timed[i].peer_ms, peer_multiply, &timed[i].product);
            }
        }
    }
}

static double rate_of(const Matmul *p, double ms)
{
    return 2.0 * p->M * p->N * p->K / ms * 1e-6;
}

/* GF/s of all threads that multiply and add in registers. */
static double register_peak(void)
{
    enum { CHAINS = 12, STEPS = 2000000 };
    double ms = 0, checksum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = clock_ms();
#pragma omp parallel reduction(+ : checksum)
        {
            Lanes sums[CHAINS], factor = lanes_of(0.5f), term = lanes_of(1.0f);
            for (int i = 0; i < CHAINS; i++) {
                sums[i] = lanes_of((float)i);
            }
            for (int step = 0; step < STEPS; step++) {
                for (int i = 0; i < CHAINS; i++) {
                    sums[i] = lanes_fma(sums[i], factor, term);
                }
            }
            for (int i = 0; i < CHAINS; i++) {
                checksum += sums[i][0];
            }
        }
        double end = clock_ms();
        ms = round == 0 || end - start < ms ? end - start : ms;
    }
    return checksum > 0 ? 2.0 * CHAINS * STEPS * LANES * omp_get_max_threads() / ms * 1e-6 : 0;
}

static void print(const Timed *timed, int count, DType type, int rows)
{
    double rates = 0, ratios = 0;
    for (int i = 0; i < count; i++) {
        const Matmul *p = &timed[i].product;
        double rate = rate_of(p, timed[i].best_ms);
        printf("%s %5d %-8s %-8s %6d x %6d x %6d %9.3f ms %7.0f GF/s", type == DTYPE_FP32 ? "fp32" : "bf16",
               rows, timed[i].layer->name, pass_names[timed[i].pass], p->M, p->N, p->K, timed[i].best_ms,
               rate);
        rates += log(rate) / count;
        if (peer_name()) {
            double ratio = timed[i].peer_ms / timed[i].best_ms;
            printf(", %s %7.0f GF/s, ratio %.2f", peer_name(), rate_of(p, timed[i].peer_ms), ratio);
            ratios += log(ratio) / count;
        }
        putchar('\n');
    }
    printf("%s %5d geometric mean %.0f GF/s", type == DTYPE_FP32 ? "fp32" : "bf16", rows, exp(rates));
    if (peer_name()) {
        printf(", ratio to %s %.2f", peer_name(), exp(ratios));
    }
    if (type == DTYPE_FP32) {
        double peak = register_peak();
        printf(", %.2f of the %.0f GF/s of registers", exp(rates) / peak, peak);
    }
    putchar('\n');
    fflush(stdout);
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
    print(timed, count, type, rows);
    memory_free(a);
    memory_free(b);
    memory_free(out);
}

int main(int argc, char **argv)
{
    int has_rows = 0;
    const MatmulKernel *kernel = bench_kernel(getenv("KERNEL"));
    if (!kernel) {
        fprintf(stderr, "bench_matmul: KERNEL=%s: not on this machine or at this level\n", getenv("KERNEL"));
        return 1;
    }
    matmul_set_bf16_kernel(kernel);
    printf("%s, %d threads, bf16 by %s, beside %s\n", CPU_LEVEL_NAME, omp_get_max_threads(), kernel->name,
           peer_name() ? peer_name() : "nothing");
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
            bench(type, 256);
            bench(type, 1024);
            bench(type, 4096);
        }
    }
    return 0;
}
