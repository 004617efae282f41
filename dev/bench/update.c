/* AdamW against the speed of memory: the update of GPT-2 124M after real slots of training, and copies of as
 * many bytes by the same threads in the same run. An update has to read weights, both moments and gradients
 * and to write all but the gradients: 28 bytes a parameter in fp32.
 *
 *   build/mpi1/bench/update [fp32|bf16] [slots a step] [rounds]
 *
 * Prints the fastest and the middle of all rounds, update and copy taken in turns.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/compute/cpu_levels.h"

enum { B = 4, T = 64, ROUNDS_MAX = 1000 };

typedef struct Times {
    double ms[ROUNDS_MAX];
    int count;
} Times;

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static Model *create_model(const Backend *backend, DType dtype, int slots)
{
    Error error;
    ModelConfig config = {
        .shape = {.n_layer = 12, .n_head = 12, .n_embd = 768, .vocab_size = 50257, .block_size = T},
        .batch_size = B,
        .sequence_tokens = T,
        .slots_per_step = slots,
        .dtype = dtype};
    Model *model = backend->create(&config, &error);
    if (!model) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    return model;
}

static void draw_weights(const Backend *backend, Model *model)
{
    ParamTable table;
    ModelShape shape = {.n_layer = 12, .n_head = 12, .n_embd = 768, .vocab_size = 50257, .block_size = T};
    params_init(&table, &shape);
    for (int i = 0; i < table.count; i++) {
        int64_t count = param_file_count(&table.specs[i]);
        float *values = memory_alloc((size_t)count, sizeof(float), "initial weights");
        params_draw_initial(values, &table, i, 0, count, 1);
        backend->write_state(model, STATE_WEIGHTS, table.specs[i].offset, values, count);
        memory_free(values);
    }
    params_release(&table);
}

static void train_slots(const Backend *backend, Model *model, uint32_t step, int slots)
{
    static int32_t tokens[B * T + 1];
    for (int slot = 0; slot < slots; slot++) {
        RandomKey key = {.seed = 1, .purpose = RANDOM_TEST, .step = step, .slot = (uint32_t)slot};
        for (uint64_t i = 0; i < B * T + 1; i++) {
            uint32_t numbers[4];
            random_block(numbers, &key, i);
            tokens[i] = (int32_t)(numbers[0] % 50257);
        }
        SlotContext context = {
            .step = step, .slot = (uint32_t)slot, .is_first = slot == 0, .is_last = slot == slots - 1};
        backend->train_slot(model, tokens, tokens + 1, &context);
    }
}

static void update(const Backend *backend, Model *model, uint32_t step)
{
    UpdateArgs args = {.learning_rate = 6e-4f,
                       .beta1 = 0.9f,
                       .beta2 = 0.95f,
                       .epsilon = 1e-8f,
                       .weight_decay = 0.1f,
                       .grad_clip = 1.0f,
                       .update_number = step + 1};
    StepResult result;
    backend->update(model, &args, &result);
    CHECK(!result.is_skipped, "update %u was skipped", step);
}

/* Each thread copies its part by memcpy, which stores past the caches. */
static void copy(char *out, const char *in, int64_t bytes)
{
#pragma omp parallel
    {
        int64_t first = bytes * omp_get_thread_num() / omp_get_num_threads();
        int64_t end = bytes * (omp_get_thread_num() + 1) / omp_get_num_threads();
        memcpy(out + first, in + first, (size_t)(end - first));
    }
}

static void sort(Times *times)
{
    qsort(times->ms, (size_t)times->count, sizeof(times->ms[0]), compare);
}

static void print_rates(const char *name, const Times *times, double bytes)
{
    printf("%-8s fastest %7.2f ms %6.2f GB/s   middle %7.2f ms %6.2f GB/s\n", name, times->ms[0],
           bytes / times->ms[0] / 1e6, times->ms[times->count / 2],
           bytes / times->ms[times->count / 2] / 1e6);
}

int main(int argc, char **argv)
{
    error_set_program("update");
    DType dtype = argc > 1 && strcmp(argv[1], "bf16") == 0 ? DTYPE_BF16 : DTYPE_FP32;
    int slots = argc > 2 ? atoi(argv[2]) : 1;
    int rounds = argc > 3 ? atoi(argv[3]) : 15;
    Error error;
    const Backend *backend = cpu_backend(&error);
    if (!backend || slots < 1 || rounds < 1 || rounds > ROUNDS_MAX) {
        error_exit(EXIT_FAILED, "%s", backend ? "usage: update [fp32|bf16] [slots] [rounds]" : error.text);
    }
    Model *model = create_model(backend, dtype, slots);
    draw_weights(backend, model);
    int64_t parameters = backend->gradients(model).count;
    int64_t copied = parameters * (int64_t)sizeof(float);
    char *out = memory_alloc_zeroed((size_t)copied, 1, "copy");
    char *in = memory_alloc_zeroed((size_t)copied, 1, "copy");
    memset(in, 1, (size_t)copied); /* else all of it would be one page of zeros */
    static Times updates, copies, steps;
    for (uint32_t round = 0; round < (uint32_t)rounds + 1; round++) {
        double begin_ms = clock_ms();
        train_slots(backend, model, round, slots);
        double update_ms = clock_ms();
        update(backend, model, round);
        double copy_ms = clock_ms();
        copy(out, in, copied);
        double end_ms = clock_ms();
        if (round > 0) { /* the first touches memory */
            steps.ms[steps.count++] = update_ms - begin_ms;
            updates.ms[updates.count++] = copy_ms - update_ms;
            copies.ms[copies.count++] = end_ms - copy_ms;
        }
    }
    double bytes = (double)parameters * ((slots > 1 ? 32 : 28) + (dtype == DTYPE_BF16 ? 2 : 0));
    printf("%s, %d threads, %s, %d slots a step\n", backend->name, omp_get_max_threads(),
           dtype == DTYPE_BF16 ? "bf16" : "fp32", slots);
    sort(&steps);
    sort(&updates);
    sort(&copies);
    printf("slots    fastest %7.2f ms               middle %7.2f ms\n", steps.ms[0],
           steps.ms[steps.count / 2]);
    print_rates("update", &updates, bytes);
    print_rates("copy", &copies, 2.0 * (double)copied);
    int middle = copies.count / 2;
    printf("update / copy: fastest %.3f, middle %.3f\n",
           bytes / updates.ms[0] / (2.0 * (double)copied / copies.ms[0]),
           bytes / updates.ms[middle] / (2.0 * (double)copied / copies.ms[middle]));
    backend->release(model);
    memory_free(out);
    memory_free(in);
    return EXIT_DONE;
}
