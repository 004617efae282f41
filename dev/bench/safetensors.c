/* model.safetensors of GPT-2 124M (498 MB) loaded and exported, against reading and writing as many bytes: a
 * read of the whole file into memory, and a file written, synced and renamed. In turns, in one run, in one
 * folder. Loading transposes matrices and looks for NaNs; exporting transposes, and writes small files too.
 *
 *   build/mpi1/bench/safetensors FOLDER [rounds]        FOLDER is made, and holds the export afterwards
 *
 * Prints the fastest and the middle of all rounds, and their ratios; also those of the process's CPU time,
 * which other programs disturb less. Goal: at most 1.5.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/export.h"
#include "llmc/snapshot/import.h"

enum { ROUNDS_MAX = 100, PIECE_BYTES = 1 << 20 };
typedef enum Kind { KIND_READ, KIND_LOAD, KIND_WRITE, KIND_EXPORT, KINDS } Kind;

static float *arena;

static void read_state(void *context, SavedState state, int64_t offset, float *values, int64_t count)
{
    (void)context;
    (void)state;
    memcpy(values, arena + offset, (size_t)count * sizeof(float));
}

static void write_state(void *context, SavedState state, int64_t offset, const float *values, int64_t count)
{
    (void)context;
    (void)state;
    memcpy(arena + offset, values, (size_t)count * sizeof(float));
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static void must(int status, const Error *error)
{
    if (status != 0) {
        error_exit(EXIT_FAILED, "%s", error->text);
    }
}

static void read_file(char *bytes, size_t *count, const char *path)
{
    int file = open(path, O_RDONLY);
    ssize_t got;
    *count = 0;
    while (file >= 0 && (got = read(file, bytes + *count, PIECE_BYTES)) > 0) {
        *count += (size_t)got;
    }
    close(file);
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    Error error;
    AtomicFile file;
    must(atomic_file_init(&file, path, &error), &error);
    for (size_t done = 0; done < count; done += PIECE_BYTES) {
        size_t now = count - done < PIECE_BYTES ? count - done : PIECE_BYTES;
        must(atomic_file_write(&file, bytes + done, now, &error), &error);
    }
    must(atomic_file_commit(&file, &error), &error);
}

static void load(const char *path, const ParamTable *table)
{
    Error error;
    WeightsFile *weights = weights_open(path, &error);
    must(weights ? 0 : -1, &error);
    StateSink sink = {write_state, NULL};
    must(weights_load(weights, table, &sink, &error), &error);
    weights_close(weights);
}

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void print_times(const char *name, double *ms, double *plain_ms, int rounds)
{
    qsort(ms, (size_t)rounds, sizeof(*ms), compare);
    qsort(plain_ms, (size_t)rounds, sizeof(*ms), compare);
    printf("%s %7.1f ms (middle %7.1f), bytes alone %7.1f ms (%7.1f): %.2f (%.2f)\n", name, ms[0],
           ms[rounds / 2], plain_ms[0], plain_ms[rounds / 2], ms[0] / plain_ms[0],
           ms[rounds / 2] / plain_ms[rounds / 2]);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "/tmp/safetensors_bench";
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    static double ms[KINDS][ROUNDS_MAX], cpu[KINDS][ROUNDS_MAX];
    ModelShape shape = {.n_layer = 12, .n_head = 12, .n_embd = 768, .vocab_size = 50257, .block_size = 1024};
    ParamTable table;
    Error error;
    char path[PATH_BYTES_MAX], copy[PATH_BYTES_MAX];
    params_init(&table, &shape);
    arena = memory_alloc((size_t)table.arena_count, sizeof(float), "weights");
    for (int64_t i = 0; i < table.arena_count; i++) {
        arena[i] = (float)(i % 1000003) * 1e-6f;
    }
    StateSource source = {read_state, NULL};
    must(export_hugging_face(folder, &table, &source, NULL, NULL, &error), &error);
    must(path_join(path, folder, "model.safetensors", &error), &error);
    must(path_join(copy, folder, "copy", &error), &error);
    size_t count;
    char *bytes = memory_alloc((size_t)table.arena_count * sizeof(float) + PIECE_BYTES * 2, 1, "bytes");
    read_file(bytes, &count, path);
    for (int round = 0; round < rounds; round++) {
        for (int kind = 0; kind < KINDS; kind++) {
            double begin = clock_ms(), cpu_begin = cpu_ms();
            switch ((Kind)kind) {
            case KIND_READ:
                read_file(bytes, &count, path);
                break;
            case KIND_LOAD:
                load(folder, &table);
                break;
            case KIND_WRITE:
                write_file(copy, bytes, count);
                break;
            case KIND_EXPORT:
                must(export_hugging_face(folder, &table, &source, NULL, NULL, &error), &error);
                break;
            case KINDS:
                break;
            }
            ms[kind][round] = clock_ms() - begin;
            cpu[kind][round] = cpu_ms() - cpu_begin;
        }
    }
    unlink(copy);
    printf("%zu bytes, %d rounds\n", count, rounds);
    print_times("load  ", ms[KIND_LOAD], ms[KIND_READ], rounds);
    print_times("export", ms[KIND_EXPORT], ms[KIND_WRITE], rounds);
    for (int i = 0; i < rounds; i++) {
        ms[KIND_LOAD][i] += ms[KIND_EXPORT][i];
        ms[KIND_READ][i] += ms[KIND_WRITE][i];
    }
    print_times("both  ", ms[KIND_LOAD], ms[KIND_READ], rounds);
    print_times("load,   CPU time", cpu[KIND_LOAD], cpu[KIND_READ], rounds);
    print_times("export, CPU time", cpu[KIND_EXPORT], cpu[KIND_WRITE], rounds);
    memory_free(bytes);
    memory_free(arena);
    return EXIT_DONE;
}
