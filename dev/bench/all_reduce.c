/* How long an all-reduce between ranks takes, by its size, printed as nccl-tests prints it. Over whatever the
 * launcher says, as training does: MPI under mpirun, TCP where RANK and WORLD_SIZE are set (torchrun).
 *
 *   make build/mpi1/bench/all_reduce
 *   mpirun -np 2 build/mpi1/bench/all_reduce [-b 1K] [-e 1G] [-f 4] [-t int64|float|bf16]
 *
 * algbw is the size over the time; busbw is what each rank sends and receives over the time, 2(N-1)/N times
 * as much: compare that with the link. Sums are in place, on the channel of gradients; each size is checked.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/model/dtype.h"

enum { WARM_UPS = 2, REPEATS_MIN = 3, REPEATS_MAX = 1000 };

#define MEASURE_MS 500.0 /* of each size, about */

typedef struct Bench {
    int64_t begin_bytes, end_bytes, factor;
    CommType type;
    const char *type_name;
    int element_bytes;
    void *values;
} Bench;

/* "1K", "25M", "1G" */
static int64_t parse_bytes(const char *text)
{
    char *unit;
    int64_t number = strtoll(text, &unit, 10);
    int shift = *unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0;
    CHECK(number > 0 && number < 1 << 20 && (*unit == '\0' || (shift > 0 && unit[1] == '\0')),
          "%s: expected a size such as 1K, 25M or 1G", text);
    return number << shift;
}

static void parse(Bench *bench, int argc, char **argv)
{
    static const struct {
        const char *name;
        CommType type;
        int bytes;
    } types[] = {{"int64", COMM_INT64, 8}, {"float", COMM_FLOAT, 4}, {"bf16", COMM_BF16, 2}};
    *bench = (Bench){.begin_bytes = 1 << 10, .end_bytes = 1 << 30, .factor = 4};
    const char *wanted = "int64";
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "-b") == 0) {
            bench->begin_bytes = parse_bytes(value);
        } else if (strcmp(argv[i], "-e") == 0) {
            bench->end_bytes = parse_bytes(value);
        } else if (strcmp(argv[i], "-f") == 0) {
            bench->factor = atoll(value);
        } else if (strcmp(argv[i], "-t") == 0) {
            wanted = value;
        } else {
            error_exit(EXIT_FAILED, "%s: expected -b, -e, -f or -t, and a value", argv[i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(wanted, types[i].name) == 0) {
            bench->type = types[i].type;
            bench->type_name = types[i].name;
            bench->element_bytes = types[i].bytes;
        }
    }
    CHECK(bench->type_name && bench->factor > 1, "expected -t int64, float or bf16, and -f of 2 or more");
}

/* Small whole numbers, whose sums are exact in every type. */
static int value_of(int rank, int64_t i)
{
    return (int)((i * 7 + rank * 5) % 9) - 4;
}

static void fill(const Bench *bench, int64_t count)
{
    int rank = comm_rank();
    for (int64_t i = 0; i < count; i++) {
        int value = value_of(rank, i);
        if (bench->type == COMM_INT64) {
            ((int64_t *)bench->values)[i] = value;
        } else if (bench->type == COMM_FLOAT) {
            ((float *)bench->values)[i] = (float)value;
        } else {
            ((bf16 *)bench->values)[i] = bf16_from_float((float)value);
        }
    }
}

static int64_t count_wrong(const Bench *bench, int64_t count)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        int expected = 0;
        for (int rank = 0; rank < comm_rank_count(); rank++) {
            expected += value_of(rank, i);
        }
        double found = bench->type == COMM_INT64   ? (double)((const int64_t *)bench->values)[i]
                       : bench->type == COMM_FLOAT ? (double)((const float *)bench->values)[i]
                                                   : (double)bf16_to_float(((const bf16 *)bench->values)[i]);
        wrong += found != expected;
    }
    comm_sum_int64(&wrong, 1);
    return wrong;
}

/* Of so many in a row, on the slowest rank. */
static double time_ms(const Bench *bench, int64_t count, int repeats)
{
    comm_barrier();
    double begin_ms = clock_ms();
    for (int i = 0; i < repeats; i++) {
        comm_bucket_sum(bench->values, count, bench->type, "all-reduce");
    }
    int64_t ns = (int64_t)((clock_ms() - begin_ms) * 1e6);
    comm_max_int64(&ns, 1);
    return (double)ns / 1e6 / repeats;
}

/* Returns the bus bandwidth in GB/s. */
static double measure(const Bench *bench, int64_t bytes)
{
    int64_t count = bytes / bench->element_bytes;
    fill(bench, count);
    comm_bucket_sum(bench->values, count, bench->type, "all-reduce");
    int64_t wrong = count_wrong(bench, count);
    memset(bench->values, 0, (size_t)bytes); /* sums of sums would run out of range */
    double once_ms = time_ms(bench, count, WARM_UPS);
    int repeats = once_ms * REPEATS_MAX > MEASURE_MS ? (int)(MEASURE_MS / once_ms) : REPEATS_MAX;
    double ms = time_ms(bench, count, repeats < REPEATS_MIN ? REPEATS_MIN : repeats);
    double algbw = (double)bytes / ms / 1e6;
    double busbw = algbw * 2 * (comm_rank_count() - 1) / comm_rank_count();
    if (comm_rank() == 0) {
        printf("%12" PRId64 "  %12" PRId64 "  %8s  %6s  %10.1f  %7.3f  %7.3f  %6" PRId64 "\n", bytes, count,
               bench->type_name, "sum", 1e3 * ms, algbw, busbw, wrong);
        fflush(stdout);
    }
    CHECK(wrong == 0, "%" PRId64 " bytes: %" PRId64 " wrong sums on all ranks", bytes, wrong);
    return busbw;
}

int main(int argc, char **argv)
{
    Error error;
    Bench bench;
    error_set_program("all_reduce");
    parse(&bench, argc, argv);
    if (comm_init(&argc, &argv, &error) != 0) {
        error_exit(error_exit_code(&error), "%s", error.text);
    }
    bench.values = memory_alloc((size_t)bench.end_bytes, 1, "values to sum");
    if (comm_rank() == 0) {
        printf("# %d ranks over %s\n", comm_rank_count(), comm_transport_name());
        printf("#%11s  %12s  %8s  %6s  %10s  %7s  %7s  %6s\n", "size", "count", "type", "redop", "time",
               "algbw", "busbw", "#wrong");
        printf("#%11s  %12s  %8s  %6s  %10s  %7s  %7s\n", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
               "(GB/s)");
    }
    double sum = 0;
    int sizes = 0;
    for (int64_t bytes = bench.begin_bytes; bytes <= bench.end_bytes; bytes *= bench.factor, sizes++) {
        sum += measure(&bench, bytes);
    }
    if (comm_rank() == 0) {
        printf("# Avg bus bandwidth    : %.4g\n", sizes > 0 ? sum / sizes : 0);
    }
    memory_free(bench.values);
    comm_finish();
    return EXIT_DONE;
}
