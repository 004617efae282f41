#include "dev/reference/judge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dev/reference/tolerance.h"
#include "llmc/base/memory.h"
#include "llmc/base/version.h"

/* What the backend under test computed. */
typedef struct Found {
    float *logits, *gradients;
    double loss, training_loss;
    Error notice; /* what the backend has to tell of how it multiplies; empty: nothing */
} Found;

/* Three versions of one tensor. */
typedef struct Comparison {
    const char *name;
    const float *found, *reference;
    const double *exact;
    int is_fp32;
} Comparison;

static const double visible_change = 0.01;

/* Where what bf16 rounds off is this large beside what it computes, one rounding acts on another, and what a
 * program may be off by is no longer the deviation times a number. In fp32 that would say the same of the
 * reference, and is not excused. */
static const double drowned_ratio = 0.5;

static void print_line(const char *name, double error, double tolerance, int holds)
{
    printf("  %-28s largest error %.2e, tolerance %.2e  %s", name, error, tolerance, holds ? "ok" : "FAILED");
}

static int is_drowned(const Comparison *comparison, const Tolerance *tolerance)
{
    int64_t count = tolerance->rows * tolerance->columns;
    double square = 0;
    for (int64_t i = 0; i < count; i++) {
        square += comparison->exact[i] * comparison->exact[i] / (double)count;
        if (!isfinite(comparison->found[i])) {
            return 0;
        }
    }
    return !comparison->is_fp32 && square > 0 && tolerance->mean > drowned_ratio * drowned_ratio * square;
}

/* Print the element that comes nearest to its tolerance; 1 if it exceeds it. */
static int compare(const Comparison *comparison, const Tolerance *tolerance)
{
    if (is_drowned(comparison, tolerance)) {
        printf("  %-28s not judged: bf16's rounding drowns it\n", comparison->name);
        return 0;
    }
    double worst_ratio = -1, worst_error = 0, worst_tolerance = 0;
    int64_t worst = 0, count = tolerance->rows * tolerance->columns, visible = 0, nonzero = 0;
    for (int64_t i = 0; i < count; i++) {
        double limit = tolerance_at(tolerance, i / tolerance->columns, i % tolerance->columns);
        double error = fabs((double)comparison->found[i] - comparison->reference[i]);
        double ratio = error == 0 ? 0 : isfinite(error) ? error / limit : INFINITY;
        nonzero += comparison->reference[i] != 0;
        visible += visible_change * fabs(comparison->reference[i]) > limit;
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst_error = error;
            worst_tolerance = limit;
            worst = i;
        }
    }
    int holds = worst_ratio <= 1;
    print_line(comparison->name, worst_error, worst_tolerance, holds);
    if (!holds) {
        printf(": [%lld,%lld] is %.9g, reference %.9g, in double precision %.9g",
               (long long)(worst / tolerance->columns), (long long)(worst % tolerance->columns),
               (double)comparison->found[worst], (double)comparison->reference[worst],
               comparison->exact[worst]);
    } else if (comparison->is_fp32 && nonzero > 0) {
        printf("   1%% seen in %.1f%%", 100.0 * (double)visible / (double)nonzero);
    }
    printf("\n");
    return !holds;
}

static int compare_loss(const char *name, double found, double reference, double exact, double tolerance)
{
    double error = fabs(found - reference);
    int holds = error <= tolerance; /* false for NaN */
    print_line(name, error, tolerance, holds);
    if (!holds) {
        printf(": it is %.9g, reference %.9g, in double precision %.9g", found, reference, exact);
    }
    printf("\n");
    return !holds;
}

static int compare_gradients(const Reference *reference, const Found *found, const ExactResult *exact,
                             DType dtype)
{
    int failed = 0;
    /* Gradients pass through whole multiples of 1/EXACT_SCALE. */
    double floor = 1.0 / EXACT_SCALE;
    for (int i = 0; i < reference->table.count; i++) {
        const ParamSpec *spec = &reference->table.specs[i];
        int64_t rows = spec->rows, columns = spec->columns;
        if (spec->dimensions == 1) {
            rows = spec->columns == 3 * (int64_t)reference->table.shape.n_embd ? 3 : 1; /* q, k, v */
            columns = spec->columns / rows;
        }
        Tolerance tolerance;
        tolerance_init(&tolerance, exact->gradient_squares + spec->offset, rows, columns, exact->passes,
                       floor);
        Comparison comparison = {spec->name, found->gradients + spec->offset,
                                 reference->gradients + spec->offset, exact->gradients + spec->offset,
                                 dtype == DTYPE_FP32};
        failed += compare(&comparison, &tolerance);
        tolerance_release(&tolerance);
    }
    return failed;
}

static int compare_all(const Reference *reference, const Found *found, ExactResult *exact, DType dtype)
{
    Tolerance tolerance;
    exact_result_measure(exact, reference, dtype);
    int64_t M = (int64_t)reference->B * reference->T;
    tolerance_init(&tolerance, exact->logit_squares, M, reference->table.shape.vocab_size, exact->passes,
                   1e-30);
    Comparison logits = {"logits", found->logits, reference->logits, exact->logits, dtype == DTYPE_FP32};
    int failed = compare(&logits, &tolerance);
    tolerance_release(&tolerance);
    failed += compare_loss("loss", found->loss, reference->loss, exact->loss, exact->loss_tolerance);
    failed += compare_loss("loss in training", found->training_loss, reference->loss, exact->loss,
                           exact->loss_tolerance);
    failed += compare_gradients(reference, found, exact, dtype);
    return failed;
}

/* Of products and of the residual stream. */
typedef struct Precision {
    const char *name;
    DType dtype, residual;
} Precision;

/* One forward and backward pass of the backend. */
static int run_backend(Found *found, const Reference *reference, const Backend *backend,
                       const Precision *precision, Error *error)
{
    const ParamTable *table = &reference->table;
    ModelConfig config = {.shape = table->shape,
                          .batch_size = reference->B,
                          .sequence_tokens = reference->T,
                          .slots_per_step = 1,
                          .dtype = precision->dtype,
                          .residual = precision->residual,
                          .reduce = REDUCE_EXACT};
    SlotContext slot = {.is_first = 1, .is_last = 1};
    Model *model = backend->create(&config, error);
    if (!model) {
        return -1;
    }
    backend->write_state(model, STATE_WEIGHTS, 0, reference->weights, table->arena_count);
    found->loss = backend->evaluate(model, reference->tokens, reference->targets, found->logits);
    backend->train_slot(model, reference->tokens, reference->targets, &slot);
    backend->read_state(model, STATE_GRADIENTS, 0, found->gradients, table->arena_count);
    UpdateArgs nothing = {.epsilon = 1e-8f, .update_number = 1}; /* changes no weight, but tells the loss */
    StepResult result;
    backend->update(model, &nothing, &result);
    found->training_loss = result.loss;
    ModelFacts facts;
    backend->describe(&facts, model);
    if (facts.plans_notice) {
        error_set(&found->notice, "%s", facts.plans_notice);
    }
    backend->release(model);
    if (result.is_skipped) {
        return error_set(error,
                         "expected a loss and gradients below %g, found some that are larger or not finite; "
                         "scale the weights down",
                         EXACT_LIMIT);
    }
    return 0;
}

/* The number of tensors out of tolerance, or -1. In bf16 the tolerance knows a rounding wherever the stream
 * or its gradient is stored, so it is the same for both kinds of stream. */
static int judge_precision(const Reference *reference, ExactResult *exact, const Backend *backend,
                           const Precision *precision, int *has_told, Error *error)
{
    size_t logits = (size_t)reference->B * (size_t)reference->T * (size_t)reference->table.shape.vocab_size;
    Found found = {memory_alloc(logits, sizeof(float), "logits"),
                   memory_alloc((size_t)reference->table.arena_count, sizeof(float), "gradients"),
                   0,
                   0,
                   {.text = ""}};
    int failed = run_backend(&found, reference, backend, precision, error);
    if (found.notice.text[0] && !*has_told) {
        printf("  notice: %s\n", found.notice.text);
        *has_told = 1;
    }
    if (!failed) {
        failed = compare_all(reference, &found, exact, precision->dtype);
    }
    memory_free(found.gradients);
    memory_free(found.logits);
    return failed;
}

/* Run one folder in fp32 and bf16 and print a line for each tensor. Returns 0 if all hold, 1 if not, -1 with
 * *error when the folder is damaged or the backend cannot run it. The backend's first notice is printed,
 * unless one was told. */
static int judge_folder(const char *folder, const Backend *backend, int *has_told, Error *error)
{
    static const Precision precisions[] = {{"fp32", DTYPE_FP32, DTYPE_FP32},
                                           {"bf16", DTYPE_BF16, DTYPE_FP32},
                                           {"bf16, residual too,", DTYPE_BF16, DTYPE_BF16}};
    int count = backend->has_bf16_residual ? 3 : 2;
    Reference reference;
    int failed_count = 0;
    if (reference_init(&reference, folder, error)) {
        return -1;
    }
    ExactResult exact;
    exact_result_init(&exact, &reference);
    const ModelShape *shape = &reference.table.shape;
    for (int i = 0; i < count && failed_count >= 0; i++) {
        printf("%s in %s on %s: B=%d T=%d V=%d L=%d NH=%d C=%d\n", folder, precisions[i].name, backend->name,
               reference.B, reference.T, shape->vocab_size, shape->n_layer, shape->n_head, shape->n_embd);
        int failed = judge_precision(&reference, &exact, backend, &precisions[i], has_told, error);
        if (failed < 0) {
            error_prefix(error, "%s", folder);
        }
        failed_count = failed < 0 ? -1 : failed_count + failed;
        fflush(stdout);
    }
    exact_result_release(&exact);
    reference_release(&reference);
    return failed_count < 0 ? -1 : failed_count > 0;
}

int judge_program(const char *name, const Backend *(*open_device)(Error *error), int argc, char **argv)
{
    Error error;
    error_set_program(name);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        version_print(stdout, name);
        return EXIT_DONE;
    }
    if (argc < 2 || argv[1][0] == '-') {
        error_exit(EXIT_FAILED, "usage: %s FOLDER...   (reference folders, such as dev/reference/*/)", name);
    }
    const Backend *backend = open_device(&error);
    if (!backend) {
        error_exit(EXIT_FAILED, "%s", error.text);
    }
    int failed_count = 0, has_told = 0;
    for (int i = 1; i < argc; i++) {
        int failed = judge_folder(argv[i], backend, &has_told, &error);
        if (failed < 0) {
            error_print("%s", error.text);
        }
        failed_count += failed != 0;
    }
    printf("%d of %d folders hold\n", argc - 1 - failed_count, argc - 1);
    return failed_count ? EXIT_FAILED : EXIT_DONE;
}
