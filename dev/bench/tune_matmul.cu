/* Times cuBLASLt's algorithms for the matrix products of GPT-2's training, and prints the quickest as
 * entries of llmc/compute/cuda/tuned_plans.cu.
 *
 *   tune_matmul [B T C]... [--ms=MILLISECONDS] [--vocabulary=V]
 *
 * Without shapes those of 124M, 350M, 774M and 1558M at the batches that one large GPU takes. The products
 * are those of the model itself, in bf16, with one and with several micro-batches an update. They do not
 * depend on the number of layers; two are made, as some pointers of odd and even layers are aligned
 * differently. MS is the time for each of these models. What the host build prints proves that this program
 * runs, and nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include "llmc/base/memory.h"
#include "llmc/compute/cuda/cuda_backend.h"
#include "llmc/compute/cuda/cuda_model.cuh"
#include "llmc/model/plans.h"

enum { HEAD_SIZE = 64, LAYERS = 2 };

typedef struct Shape {
    int B, T, C;
} Shape;

typedef struct Settings {
    std::vector<Shape> shapes;
    double ms;
    int vocabulary;
} Settings;

/* Add what one kind of training takes. Products that two kinds share keep the first choice. */
static void tune(Plans *all, const Shape *shape, int slots, ReduceMode reduce, const Settings *settings)
{
    Error error;
    ModelConfig config = {};
    config.shape = ModelShape{shape->T, settings->vocabulary, LAYERS, shape->C / HEAD_SIZE, shape->C};
    config.batch_size = shape->B;
    config.sequence_tokens = shape->T;
    config.slots_per_step = slots;
    config.dtype = DTYPE_BF16;
    config.reduce = reduce;
    Model *model = cuda_model_create(&config, &error);
    if (!model) {
        error_exit(EXIT_FAILED, "B %d, T %d, C %d: %s", shape->B, shape->T, shape->C, error.text);
    }
    cuda_model_tune(model, settings->ms);
    Plans *found = (Plans *)memory_alloc(1, sizeof(*found), "plans");
    CHECK(plans_parse(found, matmuls_plans(model->matmuls), &error) == 0, "%s", error.text);
    memcpy(all->device, found->device, sizeof(all->device));
    for (int i = 0; i < found->count && all->count < PLANS_MAX; i++) {
        if (!plans_find(all, &found->plans[i].key)) {
            all->plans[all->count++] = found->plans[i];
        }
    }
    memory_free(found);
    cuda_model_release(model);
}

/* A text as a C source has it. */
static void print_entry(const Plans *plans, const Shape *shape)
{
    char *text = plans_to_text(plans);
    printf("    /* B %d, T %d, C %d */\n", shape->B, shape->T, shape->C);
    for (char *line = strtok(text, "\n"), *next; line; line = next) {
        next = strtok(NULL, "\n");
        printf("    \"%s\\n\"%s\n", line, next ? "" : ",");
    }
    fflush(stdout);
    memory_free(text);
}

static Settings parse(int argc, char **argv)
{
    Settings settings = {{}, 10000, 50257};
    std::vector<int> numbers;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--ms=", 5) == 0) {
            settings.ms = atof(argv[i] + 5);
        } else if (strncmp(argv[i], "--vocabulary=", 13) == 0) {
            settings.vocabulary = atoi(argv[i] + 13);
        } else if (atoi(argv[i]) > 0) {
            numbers.push_back(atoi(argv[i]));
        } else {
            error_exit(EXIT_FAILED, "%s: expected numbers B T C, --ms= or --vocabulary=", argv[i]);
        }
    }
    for (size_t i = 0; i + 2 < numbers.size(); i += 3) {
        settings.shapes.push_back(Shape{numbers[i], numbers[i + 1], numbers[i + 2]});
        if (numbers[i + 2] % HEAD_SIZE != 0) {
            error_exit(EXIT_FAILED, "C %d: expected a multiple of %d", numbers[i + 2], (int)HEAD_SIZE);
        }
    }
    if (numbers.size() % 3 != 0 || settings.vocabulary < 1) {
        error_exit(EXIT_FAILED, "expected three numbers B T C for each shape, and a vocabulary of 1 or more");
    }
    if (settings.shapes.empty()) {
        settings.shapes = {{64, 1024, 768}, {32, 1024, 1024}, {16, 1024, 1280}, {8, 1024, 1600}};
    }
    return settings;
}

int main(int argc, char **argv)
{
    error_set_program("tune_matmul");
    Settings settings = parse(argc, argv);
    Error error;
    if (!cuda_backend(&error)) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    Plans *plans = (Plans *)memory_alloc(1, sizeof(*plans), "plans");
    for (const Shape &shape : settings.shapes) {
        memset(plans, 0, sizeof(*plans));
        tune(plans, &shape, 2, REDUCE_EXACT, &settings);
        tune(plans, &shape, 1, REDUCE_EXACT, &settings);
        tune(plans, &shape, 2, REDUCE_FP32, &settings);
        print_entry(plans, &shape);
    }
    memory_free(plans);
    return 0;
}
