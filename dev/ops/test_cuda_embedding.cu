/* Dropout, embedding and the gradients of its rows on the GPU (or on host_cuda) against plain loops. */
#include "dev/ops/test_cuda.cuh"

#include "llmc/compute/backend.h"
#include "llmc/compute/cuda/embedding.cuh"

static const double U = FP32_ROUNDING;

/* ---- dropout and embedding ---------------------------------------------------------------------------- */

static void test_dropout_keeps_what_random_block_says(void **state)
{
    (void)state;
    const size_t count = 4099; /* not a multiple of the four that share a block of random numbers */
    for (float probability : {0.0f, 0.1f, 0.5f, 0.99f}) {
        for (uint64_t site : {0, 1, 38}) {
            Dropout dropout = {probability, {~0ull - site, RANDOM_DROPOUT, 1000000u, 39}, site};
            for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
                Floats ones(count, 1.0f), expected(count);
                DeviceTensor d(&ones, type);
                dropout_backward(d.tensor, (int64_t)count, &dropout, 0);
                for (size_t i = 0; i < count; i++) {
                    expected[i] = expected_factor(&dropout, i);
                    expected[i] =
                        type == DTYPE_BF16 ? bf16_to_float(bf16_from_float(expected[i])) : expected[i];
                }
                check_same("dropout of ones", "d", d.read(), expected);
            }
        }
    }
}

static void check_embedding(int rows, int T, int C, int first_position, float probability, DType type)
{
    const int V = 11;
    char where[120];
    Floats wte = normal_values((size_t)V * C, 1, 1),
           wpe = normal_values((size_t)(first_position + T) * C, 1, 2);
    std::vector<int32_t> tokens((size_t)rows);
    for (int row = 0; row < rows; row++) {
        tokens[(size_t)row] = row * 7 % V;
    }
    Device<float> d_wte(wte), d_wpe(wpe);
    DeviceTensor out((size_t)rows * C, type);
    Device<int32_t> d_tokens(tokens);
    EmbeddingForward args = {out.tensor, d_tokens.data,  d_wte.data,
                             d_wpe.data, rows,           T,
                             C,          first_position, test_dropout(probability)};
    embedding_forward(&args, 0);
    Expected e((size_t)rows * C);
    for (size_t i = 0; i < e.value.size(); i++) {
        size_t row = i / (size_t)C, column = i % (size_t)C,
               position = (size_t)first_position + row % (size_t)T;
        double sum = (double)wte[(size_t)tokens[row] * C + column] + wpe[position * C + column];
        sum *= expected_factor(&args.dropout, i);
        e.set(i, sum, (2 * U + (type == DTYPE_BF16 ? rounding_of(type) : 0)) * fabs(sum));
    }
    snprintf(where, sizeof(where), "rows %d, T %d, C %d, position %d, dropout %g, %s", rows, T, C,
             first_position, probability, type_name(type));
    check_tensor(where, "out", out.read(), e);
}

static void test_embedding(void **state)
{
    (void)state;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        check_embedding(1, 1, 1, 0, 0, type);
        check_embedding(6, 3, 5, 0, 0.1f, type);
        check_embedding(5, 5, 33, 4, 0, type);
        check_embedding(34, 17, 64, 0, 0.5f, type);
        check_embedding(9, 9, 260, 2, 0.1f, type);
    }
}

static void check_positions(int B, int T, int C, bool accumulates, DType type)
{
    char where[120];
    size_t count = (size_t)T * C;
    Floats d_out = normal_values(count * B, 1, 1), before = normal_values(count, 1, 2);
    DeviceTensor d_d_out(&d_out, type);
    Device<float> d_wpe(accumulates ? before : Floats(count, NAN));
    embedding_backward_positions(d_wpe.data, d_d_out.tensor, B, T, C, accumulates, 0);
    Expected e(count);
    for (size_t i = 0; i < count; i++) {
        double sum = accumulates ? before[i] : 0, size = fabs(sum);
        for (int b = 0; b < B; b++) {
            sum += d_out[(size_t)b * count + i];
            size += fabs(d_out[(size_t)b * count + i]);
        }
        e.set(i, sum, U * B * size);
    }
    snprintf(where, sizeof(where), "B %d, T %d, C %d, accumulates %d, %s", B, T, C, accumulates,
             type_name(type));
    check_tensor(where, "d_wpe", d_wpe.read(), e);
}

static void test_positions(void **state)
{
    (void)state;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        check_positions(1, 1, 1, false, type);
        check_positions(3, 7, 5, true, type);
        check_positions(5, 17, 33, false, type);
        check_positions(64, 3, 130, true, type);
    }
}

/* ---- gradients of tokens' rows ------------------------------------------------------------------------ */

/* Each row's sum in fp32, in the order of its positions: of each EMBEDDING_BIN_MAX of them, then of these
 * sums. What every GPU must give to the bit. */
struct TokenCase {
    int V, C;
    std::vector<int32_t> tokens;
    Floats d_out;
    float limit;
    DType type; /* of d_out, which it can hold */
};

static TokenCase token_case(int V, int C, int BT, float limit, DType type = DTYPE_FP32)
{
    TokenCase c = {V, C, std::vector<int32_t>((size_t)BT), normal_values((size_t)BT * C, 1, 1), limit, type};
    DeviceTensor rounded(&c.d_out, type);
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
    Floats values = c->d_out;
    DeviceTensor d_out(&values, c->type);
    Device<float> partial((size_t)embedding_partial_count((int64_t)BT, c->C));
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
    embedding_backward_tokens(out, &on_device, d_out.tensor, c->C, partial.data, 0);
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
    TokenGradients out = {d_sums.data, NULL, d_bad.data, c->limit, NULL};
    run_tokens(c, &out);
    snprintf(where, sizeof(where), "V %d, C %d, %zu tokens, limit %g, %s", c->V, c->C, c->tokens.size(),
             c->limit, type_name(c->type));
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
    TokenGradients out = {NULL, d_gradients.data, NULL, 0, NULL};
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
          token_case(40, 5, 1285, 1024), token_case(700, 2, 1279, 1024),
          token_case(13, 33, 40, 2, DTYPE_BF16), token_case(40, 130, 1285, 1024, DTYPE_BF16)}) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout_keeps_what_random_block_says),
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_tokens_count_what_is_not_finite),
        cmocka_unit_test(test_bins_are_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
