#include "dev/reference/tolerance.h"

#include <math.h>
#include <string.h>

#include "dev/reference/exact_model.h"
#include "llmc/base/memory.h"

/* Two programs, each off by its own rounding: sqrt(2) standard deviations; a model has up to 1e9 elements,
 * whose largest normal deviation is 6; the deviation itself is an estimate from few passes and from pooled
 * rows and columns, good to a factor of 2. */
static const double deviations_max = 1.41421356 * 6.0 * 2.0;

/* As many noisy passes as the time allows: few suffice where many elements share a scale. */
static const double pass_operations_max = 6e10;
enum { PASSES_MIN = 1, PASSES_MAX = 16 };

void tolerance_init(Tolerance *tolerance, const float *squares, int64_t rows, int64_t columns, int passes,
                    double floor)
{
    *tolerance =
        (Tolerance){.rows = rows, .columns = columns, .passes = passes, .squares = squares, .floor = floor};
    tolerance->row_means = memory_alloc_zeroed((size_t)rows, sizeof(double), "row deviations");
    tolerance->column_means = memory_alloc_zeroed((size_t)columns, sizeof(double), "column deviations");
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < columns; column++) {
            double square = squares[row * columns + column];
            tolerance->row_means[row] += square / (double)columns;
            tolerance->column_means[column] += square / (double)rows;
            tolerance->mean += square / (double)rows / (double)columns;
        }
    }
}

void tolerance_release(Tolerance *tolerance)
{
    memory_free(tolerance->row_means);
    memory_free(tolerance->column_means);
    memset(tolerance, 0, sizeof(*tolerance));
}

/* A mean of few squares says little: it counts like these many more that are as large as the whole's. */
static double steadied(double mean, int64_t count, double whole_mean)
{
    const double whole_weight = 16.0;
    return ((double)count * mean + whole_weight * whole_mean) / ((double)count + whole_weight);
}

/* The deviation expected of an element is its row's times its column's over the whole's: rounding of a sum of
 * products scales with both factors. What an element of a row is off by, it shares with others of the row: so
 * a row speaks for itself after enough passes, however long it is. The element's own deviation, where it is
 * larger, wins. */
double tolerance_at(const Tolerance *tolerance, int64_t row, int64_t column)
{
    enum { ROW_PASSES_MIN = 8, COLUMN_SQUARES_MIN = 64 };
    double own = tolerance->squares[row * tolerance->columns + column];
    double pooled = 0;
    if (tolerance->mean > 0) {
        double row_mean = tolerance->row_means[row], column_mean = tolerance->column_means[column];
        if (tolerance->passes < ROW_PASSES_MIN) {
            row_mean = steadied(row_mean, tolerance->columns, tolerance->mean);
        }
        if (tolerance->rows * tolerance->passes < COLUMN_SQUARES_MIN) {
            column_mean = steadied(column_mean, tolerance->rows, tolerance->mean);
        }
        pooled = row_mean * column_mean / tolerance->mean;
    }
    return deviations_max * sqrt(own > pooled ? own : pooled) + tolerance->floor;
}

static int pass_count(const Reference *reference)
{
    double operations = model_shape_flops_per_token(&reference->table.shape, reference->T) *
                        (double)reference->B * (double)reference->T;
    double count = pass_operations_max / operations;
    return count < PASSES_MIN ? PASSES_MIN : count > PASSES_MAX ? PASSES_MAX : (int)count;
}

static double mean_of(const double *values, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum / (double)count;
}

static void add_squares(float *squares, const double *noisy, const double *exact, int64_t count, int passes)
{
    for (int64_t i = 0; i < count; i++) {
        double deviation = noisy[i] - exact[i];
        squares[i] += (float)(deviation * deviation / passes);
    }
}

/* One pass with imitated rounding; adds to the squares. Returns the mean squared deviation of a token's loss:
 * that of the mean loss if all tokens erred alike. */
static double noisy_pass(ExactResult *result, const ExactPass *exact, Rounding *rounding)
{
    int64_t M = (int64_t)exact->B * exact->T, V = exact->table->shape.vocab_size;
    ExactPass noisy = *exact;
    noisy.logits = memory_alloc((size_t)(M * V), sizeof(double), "noisy logits");
    noisy.token_losses = memory_alloc((size_t)M, sizeof(double), "noisy losses");
    noisy.gradients = memory_alloc((size_t)exact->table->arena_count, sizeof(double), "noisy gradients");
    exact_pass(&noisy, rounding);
    add_squares(result->logit_squares, noisy.logits, exact->logits, M * V, result->passes);
    add_squares(result->gradient_squares, noisy.gradients, exact->gradients, exact->table->arena_count,
                result->passes);
    double square = 0;
    for (int64_t m = 0; m < M; m++) {
        double deviation = noisy.token_losses[m] - exact->token_losses[m];
        square += deviation * deviation / (double)M / result->passes;
    }
    memory_free(noisy.gradients);
    memory_free(noisy.token_losses);
    memory_free(noisy.logits);
    return square;
}

static ExactPass exact_pass_of(const ExactResult *result, const Reference *reference)
{
    return (ExactPass){.table = &reference->table,
                       .weights = reference->weights,
                       .tokens = reference->tokens,
                       .targets = reference->targets,
                       .B = reference->B,
                       .T = reference->T,
                       .logits = result->logits,
                       .token_losses = result->token_losses,
                       .gradients = result->gradients};
}

void exact_result_init(ExactResult *result, const Reference *reference)
{
    const ParamTable *table = &reference->table;
    int64_t M = (int64_t)reference->B * reference->T;
    size_t arena = (size_t)table->arena_count, logits = (size_t)(M * table->shape.vocab_size);
    memset(result, 0, sizeof(*result));
    result->logits = memory_alloc(logits, sizeof(double), "exact logits");
    result->token_losses = memory_alloc((size_t)M, sizeof(double), "exact losses");
    result->gradients = memory_alloc(arena, sizeof(double), "exact gradients");
    result->logit_squares = memory_alloc(logits, sizeof(float), "deviations of logits");
    result->gradient_squares = memory_alloc(arena, sizeof(float), "deviations of gradients");
    ExactPass pass = exact_pass_of(result, reference);
    exact_pass(&pass, &(Rounding){0, 0, 0});
    result->loss = mean_of(result->token_losses, M);
}

void exact_result_measure(ExactResult *result, const Reference *reference, DType dtype)
{
    const ParamTable *table = &reference->table;
    int64_t logits = (int64_t)reference->B * reference->T * table->shape.vocab_size;
    memset(result->logit_squares, 0, (size_t)logits * sizeof(float));
    memset(result->gradient_squares, 0, (size_t)table->arena_count * sizeof(float));
    ExactPass pass = exact_pass_of(result, reference);
    Rounding rounding = {dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-24, 0x1p-24, 1};
    double loss_square = 0;
    result->passes = pass_count(reference);
    for (int i = 0; i < result->passes; i++) {
        loss_square += noisy_pass(result, &pass, &rounding);
    }
    result->loss_tolerance = deviations_max * sqrt(loss_square) + 0x1p-22 * fabs(result->loss);
}

void exact_result_release(ExactResult *result)
{
    memory_free(result->logits);
    memory_free(result->token_losses);
    memory_free(result->gradients);
    memory_free(result->logit_squares);
    memory_free(result->gradient_squares);
    memset(result, 0, sizeof(*result));
}
