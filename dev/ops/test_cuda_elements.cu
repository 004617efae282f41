/* Classifier, GELU and column sums on the GPU (or on host_cuda) against plain loops in double. */
#include <sys/wait.h>
#include <unistd.h>

#include "dev/ops/test_cuda.cuh"

#include "llmc/compute/cuda/classifier.cuh"
#include "llmc/compute/cuda/columns.cuh"
#include "llmc/compute/cuda/gelu.cuh"

static const double U = FP32_ROUNDING;

/* ---- classifier --------------------------------------------------------------------------------------- */

static void expect_classified(Expected *losses, Expected *gradients, const Floats &logits,
                              const std::vector<int32_t> &targets, const Classifier *args)
{
    size_t Vp = (size_t)args->Vp, V = (size_t)args->V;
    for (size_t row = 0; row < (size_t)args->rows; row++) {
        const float *x = &logits[row * Vp];
        double highest = -INFINITY, sum = 0, distance = 0, target = x[targets[row]];
        for (size_t i = 0; i < V; i++) {
            highest = fmax(highest, x[i]);
        }
        for (size_t i = 0; i < V; i++) {
            sum += exp(x[i] - highest);
            distance += exp(x[i] - highest) * (highest - x[i]);
        }
        /* exp's argument has one rounding, its result two units in the last place; each step of the online
         * maximum does that again, on distances that add up to one. */
        double sum_error = U * (3 * distance / sum + (double)V / 512 + 32);
        double loss = log(sum) + (highest - target);
        losses->set(row, loss, sum_error + U * (2 * log(sum) + fabs(highest - target) + fabs(loss)));
        for (size_t i = 0; i < Vp; i++) {
            double p = i < V ? exp(x[i] - highest) / sum : 0;
            double d = args->scale * (p - (i == (size_t)targets[row]));
            double error = i < V ? p * (sum_error + U * (highest - x[i] + 8)) : 0;
            gradients->set(row * Vp + i, d,
                           args->scale * error + (U + rounding_of(args->logits.type)) * fabs(d));
        }
    }
}

/* How much of it a block may have: none, so that rows stay where they are, or all that an H100 has. */
static const int64_t CLASSIFIER_BYTES[] = {0, 227 << 10};

struct Classified {
    Floats losses, logits;
};

static Classified classify(const Floats &logits, const std::vector<int32_t> &targets, DType type,
                           const Classifier *shape, int64_t shared_bytes_max)
{
    Floats values = logits;
    DeviceTensor d_logits(&values, type);
    Device<float> losses((size_t)shape->rows);
    Device<int32_t> d_targets(targets);
    Classifier args = *shape;
    args.losses = losses.data;
    args.logits = d_logits.tensor;
    args.targets = d_targets.data;
    args.shared_bytes_max = shared_bytes_max;
    classifier_rows(&args, 0);
    return {losses.read(), d_logits.read()};
}

static void check_classifier(int rows, int V, int Vp, DType type, float deviation, bool has_gradient)
{
    char where[120];
    Floats logits = normal_values((size_t)rows * Vp, deviation, 1);
    std::vector<int32_t> targets((size_t)rows);
    for (int row = 0; row < rows; row++) {
        targets[(size_t)row] = row == 0 ? V - 1 : row * 131 % V;
        for (int i = V; i < Vp; i++) {
            logits[(size_t)row * Vp + i] = 300; /* padding that would win if it were looked at */
        }
    }
    DeviceTensor rounded(&logits, type);
    Classifier args = {NULL, rounded.tensor, NULL, rows, V, Vp, 1.0f / 96, has_gradient, 0};
    Expected e_losses((size_t)rows), e_gradients(logits.size());
    expect_classified(&e_losses, &e_gradients, logits, targets, &args);
    snprintf(where, sizeof(where), "rows %d, V %d, Vp %d, %s, deviation %g, gradient %d", rows, V, Vp,
             type_name(type), deviation, has_gradient);
    Classified found = classify(logits, targets, type, &args, CLASSIFIER_BYTES[0]);
    check_tensor(where, "losses", found.losses, e_losses);
    if (has_gradient) {
        check_tensor(where, "d_logits", found.logits, e_gradients);
    } else {
        check_same(where, "logits", found.logits, logits);
    }
    Classified other = classify(logits, targets, type, &args, CLASSIFIER_BYTES[1]);
    check_same(where, "losses, from shared memory", other.losses, found.losses);
    check_same(where, "logits, from shared memory", other.logits, found.logits);
}

static void test_classifier(void **state)
{
    (void)state;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        for (bool has_gradient : {false, true}) {
            check_classifier(1, 1, 128, type, 1, has_gradient);
            check_classifier(3, 5, 8, type, 1, has_gradient);
            check_classifier(7, 65, 128, type, 3, has_gradient);
            check_classifier(2, 256, 256, type, 1, has_gradient);
            check_classifier(1, 5001, 5120, type, 1, has_gradient);
            check_classifier(3, 4099, 4224, type, 60, has_gradient);
            check_classifier(1, 30007, 30080, type, 1, has_gradient); /* more than 48 KB */
        }
    }
}

/* A number that is none, or too large for one, is seen in the loss wherever it is: also where all that one
 * thread reads is such. */
static void test_classifier_shows_what_is_not_finite(void **state)
{
    (void)state;
    const int V = 5001, Vp = 5120;
    const Classifier shape = {NULL, Tensor{NULL, DTYPE_FP32}, NULL, 1, V, Vp, 1, 0, 0};
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        int chunk = 16 / dtype_bytes(type);
        for (float bad : {NAN, INFINITY}) {
            for (int first : {0, 7 * chunk, V - 1}) {
                Floats logits = normal_values((size_t)Vp, 1, 1);
                for (int i = first; i < V; i += i % chunk == chunk - 1 ? 512 * chunk - chunk + 1 : 1) {
                    logits[(size_t)i] = bad;
                }
                for (int64_t bytes : CLASSIFIER_BYTES) {
                    assert_true(isnan(classify(logits, {3}, type, &shape, bytes).losses[0]));
                }
            }
        }
    }
}

/* ---- GELU --------------------------------------------------------------------------------------------- */

static const double TWICE_ROOT = 1.5957691216057308; /* 2 sqrt(2/pi) */

/* gelu(x) = x s and its slope, s = 1 / (1 + exp(-v)), v = 2 sqrt(2/pi) (x + 0.044715 x^3). */
static void gelu_in_double(double x, double *gelu, double *gelu_error, double *slope, double *slope_error)
{
    double v = TWICE_ROOT * (x + 0.044715 * x * x * x), s = 1 / (1 + exp(-v)), rest = 1 / (1 + exp(v));
    double s_error = U * (rest * (7 * fabs(v) + 4) + 3);
    double factor = x * TWICE_ROOT * (1 + 0.134145 * x * x);
    double lost = 0x1p-126; /* of s, where exp overflows */
    *gelu = x * s;
    *gelu_error = fabs(x * s) * (s_error + U) + fabs(x) * lost;
    *slope = s + factor * s * rest;
    *slope_error = s * s_error + fabs(factor * s) * (rest * (s_error + 7 * U) + s * s_error + U);
    *slope_error += U * fabs(*slope) + (1 + fabs(factor)) * lost;
}

static void test_gelu(void **state)
{
    (void)state;
    const size_t count = 4 * 1031;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        Floats x(count), d = normal_values(count, 1, 1);
        for (size_t i = 0; i < count; i++) {
            x[i] = ((float)i - 2048) / 160;
        }
        const float edges[] = {0, -0.0f, 1e-30f, 100, -100, 1e4f, -1e4f};
        memcpy(x.data(), edges, sizeof(edges));
        DeviceTensor d_x(&x, type), out(count, type), d_d(&d, type);
        gelu_forward(out.tensor, d_x.tensor, (int64_t)count, 0);
        gelu_backward(d_d.tensor, d_x.tensor, (int64_t)count, 0);
        Expected e_out(count), e_d(count);
        for (size_t i = 0; i < count; i++) {
            double gelu, gelu_error, slope, slope_error;
            gelu_in_double(x[i], &gelu, &gelu_error, &slope, &slope_error);
            e_out.set(i, gelu, gelu_error + rounding_of(type) * fabs(gelu));
            e_d.set(i, d[i] * slope, fabs(d[i]) * (slope_error + (U + rounding_of(type)) * fabs(slope)));
        }
        check_tensor(type_name(type), "gelu", out.read(), e_out);
        check_tensor(type_name(type), "d", d_d.read(), e_d);
    }
}

static void check_gelu_with_sums(int rows, int columns, DType type, int accumulates)
{
    char where[120];
    size_t count = (size_t)rows * (size_t)columns;
    Floats x = normal_values(count, 2, 1), d = normal_values(count, 1, 2), d_alone = d;
    Floats old = normal_values((size_t)columns, 1, 3);
    DeviceTensor d_x(&x, type), d_d(&d, type), d_again(&d_alone, type);
    Device<float> sums(accumulates ? old : Floats((size_t)columns, NAN));
    Device<float> partial((size_t)column_partial_count(rows, columns));
    gelu_backward(d_again.tensor, d_x.tensor, (int64_t)count, 0);
    gelu_backward_bias(sums.data, d_d.tensor, d_x.tensor, rows, columns, accumulates, partial.data, 0);
    snprintf(where, sizeof(where), "%d x %d, %s, accumulates %d", rows, columns, type_name(type),
             accumulates);
    check_same(where, "d", d_d.read(), d_again.read());
    Expected e((size_t)columns);
    for (size_t column = 0; column < (size_t)columns; column++) {
        double sum = accumulates ? old[column] : 0, size = fabs(sum), error = 0;
        for (size_t i = column; i < count;
             i += (size_t)columns) { /* what is summed was not rounded to bf16 */
            double gelu, gelu_error, slope, slope_error;
            gelu_in_double(x[i], &gelu, &gelu_error, &slope, &slope_error);
            sum += d[i] * slope;
            size += fabs(d[i] * slope);
            error += fabs(d[i]) * (slope_error + U * fabs(slope));
        }
        e.set(column, sum, error + U * (rows + 1) * size);
    }
    check_tensor(where, "sums over rows", sums.read(), e);
}

static void test_gelu_with_sums(void **state)
{
    (void)state;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        for (int accumulates : {0, 1}) {
            check_gelu_with_sums(1, 4, type, accumulates);
            check_gelu_with_sums(7, 12, type, accumulates);
            check_gelu_with_sums(COLUMN_ROWS + 3, 260, type, accumulates);
        }
    }
}

/* The last four of 4n + 1 elements would lie beyond the tensor's end. */
static void test_gelu_refuses_broken_fours(void **state)
{
    (void)state;
    for (int64_t count : {1, 6, 1027}) {
        pid_t child = fork();
        if (child == 0) {
            close(2);
            Tensor none = {NULL, DTYPE_FP32};
            count % 2 ? gelu_forward(none, none, count, 0) : gelu_backward(none, none, count, 0);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), EXIT_FAILED);
    }
}

/* ---- column sums -------------------------------------------------------------------------------------- */

static void check_columns(int rows, int columns, DType type, bool accumulates)
{
    char where[120];
    Floats inp = normal_values((size_t)rows * columns, 1, 1), before = normal_values((size_t)columns, 1, 2);
    DeviceTensor d_inp(&inp, type);
    Device<float> out(accumulates ? before : Floats((size_t)columns, NAN));
    Device<float> partial((size_t)column_partial_count(rows, columns));
    column_sums(out.data, d_inp.tensor, rows, columns, accumulates, partial.data, 0);
    Expected e((size_t)columns);
    for (size_t column = 0; column < (size_t)columns; column++) {
        double sum = accumulates ? before[column] : 0, size = fabs(sum);
        for (size_t row = 0; row < (size_t)rows; row++) {
            sum += inp[row * (size_t)columns + column];
            size += fabs(inp[row * (size_t)columns + column]);
        }
        e.set(column, sum, U * rows * size);
    }
    snprintf(where, sizeof(where), "rows %d, columns %d, %s, accumulates %d", rows, columns, type_name(type),
             accumulates);
    check_tensor(where, "out", out.read(), e);
}

static void test_column_sums(void **state)
{
    (void)state;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        for (bool accumulates : {false, true}) {
            check_columns(1, 1, type, accumulates);
            check_columns(5, 130, type, accumulates);
            check_columns(256, 127, type, accumulates);
            check_columns(257, 33, type, accumulates);
            check_columns(1030, 8, type, accumulates);
            check_columns(300, 516, type, accumulates);
        }
    }
}

/* Two of three sums, from the middle of longer rows. */
static void check_parts(int count, int columns, bool accumulates)
{
    char where[120];
    const int stride = 3 * columns + 41, first = 33;
    Floats parts = normal_values((size_t)count * stride, 1, 1), before = normal_values((size_t)columns, 1, 2);
    Device<float> d_parts(parts), left(accumulates ? before : Floats((size_t)columns, NAN)),
        right(accumulates ? before : Floats((size_t)columns, NAN));
    ColumnParts args = {d_parts.data + first,         count, stride, columns, accumulates,
                        {left.data, NULL, right.data}};
    column_parts_sum(&args, 0);
    Expected e[2] = {Expected((size_t)columns), Expected((size_t)columns)};
    for (int i = 0; i < 2 * columns; i++) {
        size_t column = (size_t)(i % columns);
        double sum = accumulates ? before[column] : 0, size = fabs(sum);
        for (int part = 0; part < count; part++) {
            double value =
                parts[(size_t)part * stride + first + column + (i < columns ? 0 : 2 * (size_t)columns)];
            sum += value;
            size += fabs(value);
        }
        e[i / columns].set(column, sum, U * (count + 1) * size);
    }
    snprintf(where, sizeof(where), "%d parts of %d columns, accumulates %d", count, columns, accumulates);
    check_tensor(where, "left", left.read(), e[0]);
    check_tensor(where, "right", right.read(), e[1]);
}

static void test_parts_of_columns(void **state)
{
    (void)state;
    for (bool accumulates : {false, true}) {
        check_parts(1, 1, accumulates);
        check_parts(9, 171, accumulates);
        check_parts(16, 32, accumulates);
        check_parts(301, 33, accumulates);
    }
}

int main(void)
{
    classifier_prepare(CLASSIFIER_BYTES[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classifier),
        cmocka_unit_test(test_classifier_shows_what_is_not_finite),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_gelu_with_sums),
        cmocka_unit_test(test_gelu_refuses_broken_fours),
        cmocka_unit_test(test_column_sums),
        cmocka_unit_test(test_parts_of_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
