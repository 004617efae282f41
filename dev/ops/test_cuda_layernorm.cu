/* Layer norm on the GPU (or on host_cuda) against the textbook in double. */
#include "dev/ops/test_cuda.cuh"

#include "llmc/compute/cuda/layernorm.cuh"

/* A row's sum is made by the lanes of one warp or more, then by a tree. */
static double row_depth(int C)
{
    return C / WARP + 16;
}

struct Case {
    int rows, C;
    DType type;
    bool has_branch;
    float dropout;
    float deviation, mean; /* of what is normalised: small ones show the epsilon */
    DType stream = DTYPE_FP32;
};

static const Case cases[] = {
    {1, 1, DTYPE_FP32, false, 0, 1, 0},
    {3, 5, DTYPE_FP32, true, 0, 1, 0},
    {9, 30, DTYPE_FP32, true, 0.1f, 1, 0},
    {17, 33, DTYPE_BF16, true, 0.4f, 1, 3},
    {7, 64, DTYPE_BF16, false, 0, 1, 0},
    {33, 132, DTYPE_FP32, true, 0.1f, 1, -2},
    {5, 768, DTYPE_BF16, true, 0, 1, 0},
    {300, 20, DTYPE_FP32, false, 0, 1, 0},
    {67, 36, DTYPE_BF16, true, 0.1f, 1, 0},
    {4, 100, DTYPE_FP32, false, 0, 0.002f, 0},
    {2, 1601, DTYPE_FP32, true, 0, 100, 0},
    {3, 6144, DTYPE_BF16, true, 0.1f, 1, 0},
    {130, 7, DTYPE_BF16, false, 0, 0.002f, 1},
    {70, 1600, DTYPE_BF16, true, 0, 1, 0},
    {33000, 3, DTYPE_FP32, false, 0, 1, 0}, /* more rows than 512 blocks of 64 */
    {3, 2052, DTYPE_BF16, true, 0, 1, 0},
    {3, 1024, DTYPE_BF16, true, 0, 1, 0},
    {2, 1280, DTYPE_BF16, false, 0, 1, 0},
    {2, 1668, DTYPE_BF16, true, 0, 1, 0},
    {2, 6143, DTYPE_FP32, true, 0.1f, 1, 0},
    {131, 256, DTYPE_BF16, true, 0.1f, 1, 0},
    {17, 33, DTYPE_BF16, true, 0.4f, 1, 3, DTYPE_BF16},
    {7, 64, DTYPE_BF16, false, 0, 1, 0, DTYPE_BF16},
    {5, 768, DTYPE_BF16, true, 0, 1, 0, DTYPE_BF16},
    {67, 36, DTYPE_BF16, true, 0.1f, 1, 0, DTYPE_BF16},
    {3, 1601, DTYPE_BF16, true, 0, 1, 0, DTYPE_BF16},
    {3, 2052, DTYPE_BF16, true, 0, 1, 0, DTYPE_BF16},
    {70, 1600, DTYPE_BF16, true, 0, 1, 0, DTYPE_BF16},
    {3, 6144, DTYPE_BF16, true, 0.1f, 1, 0, DTYPE_BF16},
};

static void describe(char *where, size_t bytes, const Case *c)
{
    snprintf(where, bytes, "rows %d, C %d, %s, stream %s, %s, dropout %g", c->rows, c->C, type_name(c->type),
             type_name(c->stream), c->has_branch ? "branch" : "no branch", c->dropout);
}

static Floats case_values(const Case *c, uint32_t stream)
{
    Floats values = normal_values((size_t)c->rows * c->C, c->deviation, stream);
    for (float &value : values) {
        value += c->mean;
    }
    return values;
}

/* ---- forward ------------------------------------------------------------------------------------------ */

struct ForwardExpected {
    Expected stream, mean, rstd, out;
};

static void expect_row(ForwardExpected *e, const Case *c, const Floats &weight, const Floats &bias, int row)
{
    size_t C = (size_t)c->C, first = (size_t)row * C;
    const double *x = &e->stream.value[first], u = FP32_ROUNDING, depth = row_depth(c->C);
    double mean = 0, size = 0, x_error = 0, variance = 0, distance = 0;
    for (size_t i = 0; i < C; i++) {
        mean += x[i] / (double)C;
        size += fabs(x[i]) / (double)C;
        x_error = fmax(x_error, e->stream.bound[first + i]);
    }
    for (size_t i = 0; i < C; i++) {
        variance += (x[i] - mean) * (x[i] - mean) / (double)C;
        distance += fabs(x[i] - mean) / (double)C;
    }
    double mean_error = depth * u * size + u * fabs(mean) + x_error, shift_error = mean_error + x_error;
    double variance_error =
        2 * distance * shift_error + shift_error * shift_error + (depth + 4) * u * variance;
    double rstd = 1 / sqrt(variance + (double)1e-5f);
    double rstd_error = rstd * (0.5 * variance_error / (variance + 1e-5) + 5 * u);
    e->mean.set((size_t)row, mean, mean_error);
    e->rstd.set((size_t)row, rstd, rstd_error);
    for (size_t i = 0; i < C; i++) {
        double shifted = x[i] - mean, normal = shifted * rstd, out = normal * weight[i] + bias[i];
        double error = rstd * shift_error + fabs(shifted) * rstd_error + 2 * u * fabs(normal);
        error = error * fabs(weight[i]) + u * (fabs(normal * weight[i]) + fabs(out));
        e->out.set(first + i, out, error + rounding_of(c->type) * fabs(out));
    }
}

static ForwardExpected expect_forward(const Case *c, const Floats &residual, const Floats &branch,
                                      const Dropout *dropout)
{
    size_t count = residual.size(), rows = (size_t)c->rows;
    ForwardExpected e = {Expected(count), Expected(rows), Expected(rows), Expected(count)};
    for (size_t i = 0; i < count; i++) {
        double added = c->has_branch ? (double)expected_factor(dropout, i) * branch[i] : 0;
        double error = FP32_ROUNDING * (fabs(residual[i]) + 2 * fabs(added));
        error += c->stream == DTYPE_BF16 ? rounding_of(c->stream) * fabs(residual[i] + added) : 0;
        e.stream.set(i, residual[i] + added, c->has_branch ? error : 0);
    }
    return e;
}

static void check_forward(const Case *c)
{
    char where[120];
    size_t rows = (size_t)c->rows, C = (size_t)c->C;
    Floats residual = case_values(c, 1), branch = normal_values(rows * C, c->deviation, 2);
    Floats weight = normal_values(C, 1, 3), bias = normal_values(C, 1, 4);
    Device<float> d_weight(weight), d_bias(bias), mean(rows), rstd(rows);
    DeviceTensor d_residual(&residual, c->stream), sum(rows * C, c->stream);
    DeviceTensor d_branch(&branch, c->type), out(rows * C, c->type);
    Dropout dropout = test_dropout(c->dropout);
    LayernormForward args = {};
    args.out = out.tensor;
    args.mean = mean.data;
    args.rstd = rstd.data;
    args.residual = d_residual.tensor;
    if (c->has_branch) {
        args.stream = sum.tensor;
        args.branch = d_branch.tensor;
        args.dropout = dropout;
    }
    args.weight = d_weight.data;
    args.bias = d_bias.data;
    args.rows = c->rows;
    args.C = c->C;
    layernorm_forward(&args, 0);
    ForwardExpected e = expect_forward(c, residual, branch, &dropout);
    describe(where, sizeof(where), c);
    if (c->has_branch) {
        Floats found = sum.read();
        check_tensor(where, "stream", found, e.stream);
        for (size_t i = 0; i < found.size() && c->stream == DTYPE_BF16; i++) {
            e.stream.set(i, found[i], 0); /* what is kept is what is normalised */
        }
    }
    for (int row = 0; row < c->rows; row++) {
        expect_row(&e, c, weight, bias, row);
    }
    check_tensor(where, "mean", mean.read(), e.mean);
    check_tensor(where, "rstd", rstd.read(), e.rstd);
    check_tensor(where, "out", out.read(), e.out);
    check_same(where, "residual", d_residual.read(), residual);
}

static void test_forward_against_textbook(void **state)
{
    (void)state;
    for (const Case &c : cases) {
        check_forward(&c);
    }
}

/* ---- backward ----------------------------------------------------------------------------------------- */

struct BackwardInputs {
    Floats inp, mean, rstd, weight, d_out, d_stream, d_weight, d_bias, d_branch_bias;
};

static BackwardInputs backward_inputs(const Case *c)
{
    size_t rows = (size_t)c->rows, C = (size_t)c->C;
    BackwardInputs in = {case_values(c, 1),      normal_values(rows, 0.1f, 2),  normal_values(rows, 1, 3),
                         normal_values(C, 1, 4), normal_values(rows * C, 1, 5), normal_values(rows * C, 1, 6),
                         normal_values(C, 1, 7), normal_values(C, 1, 8),        normal_values(C, 1, 9)};
    for (size_t row = 0; row < rows; row++) {
        in.mean[row] += c->mean; /* any mean and rstd will do: backward takes them as they are */
        in.rstd[row] = (0.5f + fabsf(in.rstd[row])) / c->deviation;
    }
    return in;
}

struct BackwardExpected {
    Expected d_stream, d_branch, d_weight, d_bias, d_branch_bias;
};

static void expect_backward_row(BackwardExpected *e, const Case *c, const BackwardInputs *in, bool is_first,
                                int row)
{
    size_t C = (size_t)c->C, first = (size_t)row * C;
    double u = FP32_ROUNDING, depth = row_depth(c->C), rstd = in->rstd[(size_t)row],
           mean = in->mean[(size_t)row];
    double mean_d = 0, mean_dx = 0, size_d = 0, size_dx = 0;
    for (size_t i = 0; i < C; i++) {
        double d_out = in->d_out[first + i], d = d_out * in->weight[i];
        double normal = (in->inp[first + i] - mean) * rstd;
        mean_d += d / (double)C;
        mean_dx += d * normal / (double)C;
        size_d += fabs(d) / (double)C;
        size_dx += fabs(d * normal) / (double)C;
        e->d_weight.value[i] += d_out * normal;
        e->d_weight.bound[i] += u * (c->rows + 12) * fabs(d_out * normal);
        e->d_bias.value[i] += d_out;
        e->d_bias.bound[i] += u * (c->rows + 12) * fabs(d_out);
    }
    Dropout dropout = test_dropout(c->dropout);
    for (size_t i = 0; i < C; i++) {
        double d = (double)in->d_out[first + i] * in->weight[i], normal = (in->inp[first + i] - mean) * rstd;
        double before = is_first ? 0 : in->d_stream[first + i];
        double sum = before + (d - mean_d - normal * mean_dx) * rstd;
        double error = depth * u * (size_d + fabs(normal) * (size_dx + 4 * u * size_dx));
        error = rstd * (error + 5 * u * (fabs(d) + fabs(mean_d) + 2 * fabs(normal * mean_dx)));
        error += u * (fabs(before) + 2 * fabs(sum));
        e->d_stream.set(first + i, sum,
                        error + (c->stream == DTYPE_BF16 ? rounding_of(c->stream) * fabs(sum) : 0));
        double factor = expected_factor(&dropout, first + i);
        e->d_branch.set(first + i, factor * sum, factor * (error + (rounding_of(c->type) + u) * fabs(sum)));
        e->d_branch_bias.value[i] += factor * sum;
        e->d_branch_bias.bound[i] += factor * (error + u * (c->rows + 12) * fabs(sum));
    }
}

static BackwardExpected expect_backward(const Case *c, const BackwardInputs *in, bool is_first,
                                        bool accumulates)
{
    size_t C = (size_t)c->C, count = in->inp.size();
    BackwardExpected e = {Expected(count), Expected(count), Expected(C), Expected(C), Expected(C)};
    for (size_t i = 0; i < C && accumulates; i++) {
        e.d_weight.set(i, in->d_weight[i], 2 * FP32_ROUNDING * fabs(in->d_weight[i]));
        e.d_bias.set(i, in->d_bias[i], 2 * FP32_ROUNDING * fabs(in->d_bias[i]));
        e.d_branch_bias.set(i, in->d_branch_bias[i], 2 * FP32_ROUNDING * fabs(in->d_branch_bias[i]));
    }
    for (int row = 0; row < c->rows; row++) {
        expect_backward_row(&e, c, in, is_first, row);
    }
    return e;
}

/* The sum of d_branch comes with the others (is_first), or later. */
static void check_backward(const Case *c, bool is_first, bool accumulates)
{
    char where[160];
    BackwardInputs in = backward_inputs(c);
    size_t count = in.inp.size(), partials = (size_t)layernorm_partial_count(c->rows, c->C);
    Floats nothing(count, NAN); /* must not be read */
    DeviceTensor d_out(&in.d_out, c->type), d_branch(count, c->type), inp(&in.inp, c->stream);
    DeviceTensor d_stream(is_first ? &nothing : &in.d_stream, c->stream);
    Device<float> mean(in.mean), rstd(in.rstd), weight(in.weight), partial(partials);
    Device<float> d_weight(accumulates ? in.d_weight : Floats((size_t)c->C, NAN));
    Device<float> d_bias(accumulates ? in.d_bias : Floats((size_t)c->C, NAN));
    Device<float> d_branch_bias(accumulates ? in.d_branch_bias : Floats((size_t)c->C, NAN));
    LayernormBackward args = {};
    args.d_stream = d_stream.tensor;
    if (c->has_branch) {
        args.d_branch = d_branch.tensor;
        args.dropout = test_dropout(c->dropout);
        args.d_branch_bias = is_first ? d_branch_bias.data : NULL;
    }
    args.d_weight = d_weight.data;
    args.d_bias = d_bias.data;
    args.d_out = d_out.tensor;
    args.inp = inp.tensor;
    args.mean = mean.data;
    args.rstd = rstd.data;
    args.weight = weight.data;
    args.partial = partial.data;
    args.rows = c->rows;
    args.C = c->C;
    args.is_first = is_first;
    args.accumulates = accumulates;
    layernorm_backward(&args, 0);
    if (c->has_branch && !is_first) {
        layernorm_branch_bias(d_branch_bias.data, partial.data, c->rows, c->C, accumulates, 0);
    }
    BackwardExpected e = expect_backward(c, &in, is_first, accumulates);
    int used = snprintf(where, sizeof(where), "is_first %d, accumulates %d, ", is_first, accumulates);
    describe(where + used, sizeof(where) - (size_t)used, c);
    check_tensor(where, "d_stream", d_stream.read(), e.d_stream);
    if (c->has_branch) {
        check_tensor(where, "d_branch", d_branch.read(), e.d_branch);
        check_tensor(where, "d_branch_bias", d_branch_bias.read(), e.d_branch_bias);
    }
    check_tensor(where, "d_weight", d_weight.read(), e.d_weight);
    check_tensor(where, "d_bias", d_bias.read(), e.d_bias);
}

static void test_backward_against_textbook(void **state)
{
    (void)state;
    for (const Case &c : cases) {
        for (int way = 0; way < 4; way++) {
            check_backward(&c, way & 1, way & 2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward_against_textbook),
                                       cmocka_unit_test(test_backward_against_textbook)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
