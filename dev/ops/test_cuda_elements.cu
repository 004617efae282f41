/* Embedding, dropout, classifier, GELU and column sums on the GPU (or on host_cuda) against plain loops in
 * double. */
#include <sys/wait.h>
#include <unistd.h>

#include "dev/ops/test_cuda.cuh"

#include "llmc/compute/cuda/classifier.cuh"
#include "llmc/compute/cuda/columns.cuh"
#include "llmc/compute/cuda/embedding.cuh"
#include "llmc/compute/cuda/gelu.cuh"

static const double U = FP32_ROUNDING;

/* ---- dropout and embedding ---------------------------------------------------------------------------- */

static void test_dropout_keeps_what_random_block_says(void **state)
{
    (void)state;
    const size_t count = 4099; /* not a multiple of the four that share a block of random numbers */
    for (float probability : {0.0f, 0.1f, 0.5f, 0.99f}) {
        for (uint64_t site : {0, 1, 38}) {
            Dropout dropout = {probability, {~0ull - site, RANDOM_DROPOUT, 1000000u, 39}, site};
            Device<float> d(Floats(count, 1.0f));
            dropout_backward(d.data, (int64_t)count, &dropout, 0);
            Floats expected(count);
            for (size_t i = 0; i < count; i++) {
                expected[i] = expected_factor(&dropout, i);
            }
            check_same("dropout of ones", "d", d.read(), expected);
        }
    }
}

static void check_embedding(int rows, int T, int C, int first_position, float probability)
{
    const int V = 11;
    char where[120];
    Floats wte = normal_values((size_t)V * C, 1, 1),
           wpe = normal_values((size_t)(first_position + T) * C, 1, 2);
    std::vector<int32_t> tokens((size_t)rows);
    for (int row = 0; row < rows; row++) {
        tokens[(size_t)row] = row * 7 % V;
    }
    Device<float> d_wte(wte), d_wpe(wpe), out((size_t)rows * C);
    Device<int32_t> d_tokens(tokens);
    EmbeddingForward args = {out.data,   d_tokens.data,  d_wte.data,
                             d_wpe.data, rows,           T,
                             C,          first_position, test_dropout(probability)};
    embedding_forward(&args, 0);
    Expected e((size_t)rows * C);
    for (size_t i = 0; i < e.value.size(); i++) {
        size_t row = i / (size_t)C, column = i % (size_t)C,
               position = (size_t)first_position + row % (size_t)T;
        double sum = (double)wte[(size_t)tokens[row] * C + column] + wpe[position * C + column];
        sum *= expected_factor(&args.dropout, i);
        e.set(i, sum, 2 * U * fabs(sum));
    }
    snprintf(where, sizeof(where), "rows %d, T %d, C %d, position %d, dropout %g", rows, T, C, first_position,
             probability);
    check_tensor(where, "out", out.read(), e);
}

static void test_embedding(void **state)
{
    (void)state;
    check_embedding(1, 1, 1, 0, 0);
    check_embedding(6, 3, 5, 0, 0.1f);
    check_embedding(5, 5, 33, 4, 0);
    check_embedding(34, 17, 64, 0, 0.5f);
    check_embedding(9, 9, 260, 2, 0.1f);
}

static void check_positions(int B, int T, int C, bool accumulates)
{
    char where[120];
    size_t count = (size_t)T * C;
    Floats d_out = normal_values(count * B, 1, 1), before = normal_values(count, 1, 2);
    Device<float> d_d_out(d_out), d_wpe(accumulates ? before : Floats(count, NAN));
    embedding_backward_positions(d_wpe.data, d_d_out.data, B, T, C, accumulates, 0);
    Expected e(count);
    for (size_t i = 0; i < count; i++) {
        double sum = accumulates ? before[i] : 0, size = fabs(sum);
        for (int b = 0; b < B; b++) {
            sum += d_out[(size_t)b * count + i];
            size += fabs(d_out[(size_t)b * count + i]);
        }
        e.set(i, sum, U * B * size);
    }
    snprintf(where, sizeof(where), "B %d, T %d, C %d, accumulates %d", B, T, C, accumulates);
    check_tensor(where, "d_wpe", d_wpe.read(), e);
}

static void test_positions(void **state)
{
    (void)state;
    check_positions(1, 1, 1, false);
    check_positions(3, 7, 5, true);
    check_positions(5, 17, 33, false);
    check_positions(64, 3, 130, true);
}

/* ---- gradients of tokens' rows ------------------------------------------------------------------------ */

/* Each row's sum in fp32, in the order of its positions: of each EMBEDDING_BIN_MAX of them, then of these
 * sums. What every GPU must give to the bit. */
struct TokenCase {
    int V, C;
    std::vector<int32_t> tokens;
    Floats d_out;
    float limit;
};

static TokenCase token_case(int V, int C, int BT, float limit)
{
    TokenCase c = {V, C, std::vector<int32_t>((size_t)BT), normal_values((size_t)BT * C, 1, 1), limit};
    for (int i = 0; i < BT; i++) {
        c.tokens[(size_t)i] =
            i % 5 == 0 ? V - 1 : i * i % (V / 2); /* one common token, and rows that no one uses */
    }
    return c;
}

static float row_sum(const TokenCase *c, int token, int column)
{
    float sum = 0, part = 0;
    int rows = 0;
    for (size_t i = 0; i < c->tokens.size(); i++) {
        if (c->tokens[i] == token) {
            part += c->d_out[i * (size_t)c->C + (size_t)column];
            if (++rows % EMBEDDING_BIN_MAX == 0) {
                sum += part;
                part = 0;
            }
        }
    }
    return rows % EMBEDDING_BIN_MAX ? sum + part : sum;
}

static void run_tokens(const TokenCase *c, const TokenGradients *out)
{
    size_t BT = c->tokens.size();
    std::vector<int32_t> tokens(BT + 1, INT32_MAX), starts(BT + 1), positions(BT + 1),
        counters((size_t)c->V + 1); /* of no bin: a token without a row */
    TokenBins bins = {tokens.data(), starts.data(), positions.data(), counters.data(), 0, 0, NULL, 0, 0};
    token_bins_fill(&bins, c->tokens.data(), (int64_t)BT, c->V, EMBEDDING_BIN_MAX);
    Device<int32_t> d_tokens(tokens), d_starts(starts), d_positions(positions);
    Device<float> d_out(c->d_out), partial((size_t)embedding_partial_count((int64_t)BT, c->C));
    Device<int32_t> d_counts(std::vector<int32_t>{bins.count, bins.split_count});
    TokenBins on_device = {d_tokens.data,
                           d_starts.data,
                           d_positions.data,
                           NULL,
                           INT32_MAX, /* the counts must not be read here */
                           INT32_MAX,
                           d_counts.data,
                           (int)token_bins_count_max((int64_t)BT, c->V, EMBEDDING_BIN_MAX),
                           (int)token_bins_split_max((int64_t)BT, EMBEDDING_BIN_MAX)};
    embedding_backward_tokens(out, &on_device, d_out.data, c->C, partial.data, 0);
    CUDA_CHECK(cudaDeviceSynchronize());
}

static void check_tokens_exact(const TokenCase *c)
{
    char where[120];
    std::vector<int64_t> sums((size_t)c->V * c->C), expected, bad = {5};
    for (size_t i = 0; i < sums.size(); i++) {
        sums[i] = (int64_t)i * 1000003 - 77;
    }
    expected = sums;
    int64_t bad_count = bad[0];
    for (size_t i = 0; i < sums.size(); i++) {
        float sum = row_sum(c, (int)(i / (size_t)c->C), (int)(i % (size_t)c->C));
        bool is_good = fabsf(sum) <= c->limit;
        expected[i] += is_good ? llrint((double)sum * EXACT_SCALE) : 0;
        bad_count += !is_good;
    }
    Device<int64_t> d_sums(sums), d_bad(bad);
    TokenGradients out = {d_sums.data, NULL, d_bad.data, c->limit};
    run_tokens(c, &out);
    snprintf(where, sizeof(where), "V %d, C %d, %zu tokens, limit %g", c->V, c->C, c->tokens.size(),
             c->limit);
    check_same(where, "sums", d_sums.read(), expected);
    assert_int_equal(d_bad.read()[0], bad_count);
}

static void check_tokens_fp32(const TokenCase *c)
{
    char where[120];
    Floats gradients = normal_values((size_t)c->V * c->C, 1, 9), expected = gradients;
    for (size_t i = 0; i < gradients.size(); i++) {
        expected[i] += row_sum(c, (int)(i / (size_t)c->C), (int)(i % (size_t)c->C));
    }
    Device<float> d_gradients(gradients);
    TokenGradients out = {NULL, d_gradients.data, NULL, 0};
    run_tokens(c, &out);
    snprintf(where, sizeof(where), "V %d, C %d, %zu tokens, fp32", c->V, c->C, c->tokens.size());
    check_same(where, "gradients", d_gradients.read(), expected);
}

static void test_tokens(void **state)
{
    (void)state;
    for (const TokenCase &c :
         {token_case(4, 1, 1, 1024), token_case(13, 5, 40, 1024), token_case(30, 130, 77, 1024),
          token_case(13, 33, 40, 2), token_case(5, 1540, 9, 1024), token_case(2, 130, 1300, 1024),
          token_case(40, 5, 1285, 1024), token_case(700, 2, 1279, 1024)}) {
        check_tokens_exact(&c);
        check_tokens_fp32(&c);
    }
}

static void test_tokens_count_what_is_not_finite(void **state)
{
    (void)state;
    TokenCase c = token_case(13, 5, 40, 1024);
    c.d_out[3] = NAN;
    c.d_out[2 * 5 + 1] = INFINITY;
    c.d_out[4 * 5 + 2] = -1e30f;
    check_tokens_exact(&c);
}

/* No bin has more rows than one block should sum, each position is in one bin, in order, and the counts stay
 * below what launches are made for. */
static void check_bins(const TokenCase *c, int bin_max)
{
    size_t BT = c->tokens.size(), V = (size_t)c->V;
    std::vector<int32_t> tokens(BT + 1), starts(BT + 1), positions(BT + 1), counters(V + 1), last(V, -1);
    TokenBins bins = {tokens.data(), starts.data(), positions.data(), counters.data(), 0, 0, NULL, 0, 0};
    token_bins_fill(&bins, c->tokens.data(), (int64_t)BT, c->V, bin_max);
    assert_in_range(bins.count, 1, token_bins_count_max((int64_t)BT, c->V, bin_max));
    assert_in_range(bins.split_count, 0, token_bins_split_max((int64_t)BT, bin_max));
    assert_int_equal(starts[0], 0);
    assert_int_equal(starts[(size_t)bins.count], BT);
    for (size_t bin = 0; bin < (size_t)bins.count; bin++) {
        size_t token = (size_t)tokens[bin], first = (size_t)starts[bin], end = (size_t)starts[bin + 1];
        bool is_last = bin + 1 == (size_t)bins.count || tokens[bin + 1] != tokens[bin];
        assert_in_range(end - first, is_last ? 1 : (size_t)bin_max, (size_t)bin_max);
        assert_true(is_last || (int)bin < bins.split_count);
        for (size_t i = first; i < end; i++) {
            assert_int_equal(c->tokens[(size_t)positions[i]], token);
            assert_true(positions[i] > last[token]);
            last[token] = positions[i];
        }
    }
}

static void test_bins_are_small(void **state)
{
    (void)state;
    for (const TokenCase &c : {token_case(2, 1, 1300, 1), token_case(700, 1, 1279, 1), token_case(4, 1, 1, 1),
                               token_case(5000, 1, 1281, 1)}) {
        for (int bin_max : {1, 2, 3, 7, (int)EMBEDDING_BIN_MAX, 5000}) {
            check_bins(&c, bin_max);
        }
    }
}

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
        cmocka_unit_test(test_dropout_keeps_what_random_block_says),
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_tokens_count_what_is_not_finite),
        cmocka_unit_test(test_bins_are_small),
        cmocka_unit_test(test_classifier),
        cmocka_unit_test(test_classifier_shows_what_is_not_finite),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_gelu_refuses_broken_fours),
        cmocka_unit_test(test_column_sums),
        cmocka_unit_test(test_parts_of_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
