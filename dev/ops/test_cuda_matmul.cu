/* Matrix products on the GPU (or on host_cuda) against a loop in double: each epilogue, types, transposes,
 * sizes that divide nothing, pointers of little alignment; and that plans decide which algorithm is used. */
#include "dev/ops/test_cuda.cuh"

#include <string>

#include "llmc/base/clock.h"
#include "llmc/compute/cuda/cuda_model.cuh"

static const char *const epilogue_names[MATMUL_EPILOGUES] = {
    "plain", "bias", "bias and GELU", "GELU backward", "GELU backward and sums of rows"};

struct Case {
    int M, N, K;
    DType in, out;
    int is_a_transposed, is_b_transposed, accumulates;
    MatmulEpilogue epilogue;
    int shift; /* elements before each matrix */
    int adds_d_bias;
};

struct Operands {
    Floats a, b, bias, before, out; /* as the device has them: rounded */
    Floats d_bias;
};

struct ProductExpected {
    Expected out, before, d_bias;
};

static double gelu_tanh(double x)
{
    return tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + gelu_tanh(x));
}

static double gelu_slope(double x)
{
    double t = gelu_tanh(x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

/* The library does not say how exact its GELU is. With tanh.approx.f32, whose relative error is at most 2^-11
 * (PTX ISA), the two functions are off by that of t, times their slope in t. Our own kernels, which compute
 * where the library may not, use no such instruction. */
static double tanh_error(const Case *c, double x)
{
    int may_be_the_librarys = c->out == DTYPE_BF16 && c->N % 8 == 0;
    return may_be_the_librarys ? 0x1p-11 * fabs(gelu_tanh(x)) : 0;
}

static double gelu_error(const Case *c, double x)
{
    return tanh_error(c, x) * fabs(0.5 * x);
}

static double gelu_slope_error(const Case *c, double x)
{
    double inner_slope = 0.7978845608028654 * (1 + 0.134145 * x * x);
    return tanh_error(c, x) * fabs(0.5 - x * gelu_tanh(x) * inner_slope);
}

/* One element: the sum, then what the epilogue makes of it. Tensor cores may cut instead of rounding when
 * they add, which doubles an addition's error; gelu's slope is at most 1.13. */
static void expect_element(ProductExpected *e, const Case *c, const Operands *in, size_t m, size_t n)
{
    size_t M = (size_t)c->M, N = (size_t)c->N, K = (size_t)c->K, i = m * N + n;
    double sum = 0, size = 0, u = FP32_ROUNDING, rounding = rounding_of(c->out);
    for (size_t k = 0; k < K; k++) {
        double a = in->a[c->is_a_transposed ? k * M + m : m * K + k];
        double b = in->b[c->is_b_transposed ? n * K + k : k * N + n];
        sum += a * b;
        size += fabs(a * b);
    }
    double error = 2 * u * (double)(K + 2) * size;
    if (c->accumulates) {
        sum += in->out[i];
        error += 2 * u * (fabs(sum) + fabs(in->out[i]));
    }
    /* Where the library has no such epilogue, the product is rounded before a kernel goes on with it. */
    error += c->epilogue != MATMUL_PLAIN ? rounding * fabs(sum) : 0;
    if (c->epilogue == MATMUL_BIAS || c->epilogue == MATMUL_BIAS_GELU) {
        sum += in->bias[n];
        error += u * (fabs(sum) + fabs(in->bias[n]));
    }
    if (c->epilogue == MATMUL_BIAS_GELU) {
        error += rounding * fabs(sum);
        e->before.set(i, sum, error);
        error = 1.13 * error + 8 * u * (1 + fabs(sum)) + gelu_error(c, sum);
        sum = gelu(sum);
    }
    if (c->epilogue >= MATMUL_GELU_BACKWARD) {
        double slope = gelu_slope(in->before[i]);
        error = fabs(slope) * error + 16 * u * fabs(sum) + gelu_slope_error(c, in->before[i]) * fabs(sum);
        sum *= slope;
    }
    e->out.set(i, sum, error + rounding * fabs(sum));
}

static ProductExpected expect_product(const Case *c, const Operands *in)
{
    size_t count = (size_t)c->M * c->N;
    ProductExpected e = {Expected(count), Expected(count), Expected((size_t)c->N)};
    for (size_t i = 0; i < count; i++) {
        expect_element(&e, c, in, i / (size_t)c->N, i % (size_t)c->N);
    }
    for (size_t n = 0; n < (size_t)c->N; n++) { /* of elements that are rounded, or not yet */
        double sum = c->adds_d_bias ? in->d_bias[n] : 0, size = fabs(sum), error = 0;
        for (size_t i = n; i < count; i += (size_t)c->N) {
            sum += e.out.value[i];
            size += fabs(e.out.value[i]);
            error += e.out.bound[i];
        }
        e.d_bias.set(n, sum, error + FP32_ROUNDING * (c->M + 1) * (size + error));
    }
    return e;
}

/* One product with memory of its own. */
static void run_product(Matmuls *matmuls, const Case *c, Operands *in, const char *where, Floats *found)
{
    DeviceTensor a(&in->a, c->in, c->shift), b(&in->b, c->in, c->shift), bias(&in->bias, c->out, c->shift);
    DeviceTensor before(&in->before, c->out, c->shift), out(&in->out, c->out, c->shift);
    if (c->epilogue == MATMUL_BIAS_GELU) { /* is written */
        CUDA_CHECK(cudaMemset(before.bytes.data, 0xff, before.bytes.count));
    }
    if (!c->accumulates) { /* must not be read */
        CUDA_CHECK(cudaMemset(out.bytes.data, 0xff, out.bytes.count));
    }
    Device<float> d_bias(c->adds_d_bias ? in->d_bias : Floats((size_t)c->N, NAN));
    Device<float> partial((size_t)matmul_bias_partial_count(c->M, c->N));
    Matmul product = {out.tensor,     a.tensor,       b.tensor,           c->M,
                      c->N,           c->K,           c->is_a_transposed, c->is_b_transposed,
                      c->accumulates, c->epilogue,    bias.tensor.data,   before.tensor.data,
                      d_bias.data,    c->adds_d_bias, partial.data};
    matmul(matmuls, &product, 0);
    if (found->empty()) { /* the plan is remembered now, but not where its operands were */
        *found = out.read();
        run_product(matmuls, c, in, where, found);
        return;
    }
    ProductExpected e = expect_product(c, in);
    check_tensor(where, "out", out.read(), e.out);
    check_same(where, "out the second time", out.read(), *found);
    if (c->epilogue == MATMUL_BIAS_GELU) {
        check_tensor(where, "before", before.read(), e.before);
    }
    if (c->epilogue == MATMUL_GELU_BACKWARD_BIAS) {
        check_tensor(where, "sums of rows", d_bias.read(), e.d_bias);
    }
}

static void check_product(Matmuls *matmuls, const Case *c)
{
    char where[200];
    size_t M = (size_t)c->M, N = (size_t)c->N, K = (size_t)c->K;
    Operands in = {normal_values(M * K, 1, 1), normal_values(K * N, 0.5f, 2), normal_values(N, 1, 3),
                   normal_values(M * N, 1, 4), normal_values(M * N, 1, 5),    normal_values(N, 1, 6)};
    Floats found;
    snprintf(where, sizeof(where), "%d x %d x %d, %s to %s, transposed %d %d, accumulates %d, %s, shift %d",
             c->M, c->N, c->K, type_name(c->in), type_name(c->out), c->is_a_transposed, c->is_b_transposed,
             c->accumulates, epilogue_names[c->epilogue], c->shift);
    run_product(matmuls, c, &in, where, &found);
}

static const int shapes[][3] = {{1, 1, 1},    {3, 5, 7},    {17, 33, 65},   {64, 48, 96},
                                {1, 384, 64}, {130, 64, 1}, {128, 128, 257}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static Case case_of(const int *shape, DType in, DType out, MatmulEpilogue epilogue)
{
    return Case{shape[0], shape[1], shape[2], in, out, 0, 0, 0, epilogue, 0, 0};
}

static void check_shapes(Case like)
{
    Matmuls *matmuls = matmuls_create();
    for (int i = 0; i < SHAPES; i++) {
        Case c = like;
        c.M = shapes[i][0];
        c.N = shapes[i][1];
        if (c.epilogue >= MATMUL_BIAS_GELU) { /* rows of 4C */
            c.N *= 4;
        }
        c.K = shapes[i][2];
        check_product(matmuls, &c);
    }
    matmuls_free(matmuls);
}

/* out = inp weight^T + bias, with GELU or without, and logits. */
static void test_forward(void **state)
{
    (void)state;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        for (MatmulEpilogue epilogue : {MATMUL_PLAIN, MATMUL_BIAS, MATMUL_BIAS_GELU}) {
            Case c = case_of(shapes[0], type, type, epilogue);
            c.is_b_transposed = 1;
            check_shapes(c);
        }
    }
    Case logits = case_of(shapes[0], DTYPE_BF16, DTYPE_FP32, MATMUL_PLAIN);
    logits.is_b_transposed = 1;
    check_shapes(logits);
}

/* d_inp = d_out weight, with GELU's slope or without. */
static void test_gradient_of_inputs(void **state)
{
    (void)state;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        check_shapes(case_of(shapes[0], type, type, MATMUL_PLAIN));
        check_shapes(case_of(shapes[0], type, type, MATMUL_GELU_BACKWARD));
        for (int adds : {0, 1}) {
            Case c = case_of(shapes[0], type, type, MATMUL_GELU_BACKWARD_BIAS);
            c.adds_d_bias = adds;
            check_shapes(c);
        }
    }
}

/* The host build can do without the library's epilogues; to a GPU the variable means nothing. */
static void test_epilogues_of_our_own(void **state)
{
    setenv("HOST_CUDA_EPILOGUES", "0", 1);
    test_forward(state);
    test_gradient_of_inputs(state);
    unsetenv("HOST_CUDA_EPILOGUES");
    setenv("HOST_CUDA_BGRAD", "0", 1);
    test_gradient_of_inputs(state);
    unsetenv("HOST_CUDA_BGRAD");
}

/* d_weight = or += d_out^T inp, always in fp32. */
static void test_gradient_of_weights(void **state)
{
    (void)state;
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        for (int accumulates : {0, 1}) {
            Case c = case_of(shapes[0], type, DTYPE_FP32, MATMUL_PLAIN);
            c.is_a_transposed = 1;
            c.accumulates = accumulates;
            check_shapes(c);
        }
    }
}

/* Rows of a chunk may begin anywhere. */
static void test_pointers_of_little_alignment(void **state)
{
    (void)state;
    Matmuls *matmuls = matmuls_create();
    for (int shift : {1, 2, 4, 8}) {
        for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
            Case c = case_of(shapes[3], type, type, shift < 4 ? MATMUL_BIAS : MATMUL_BIAS_GELU);
            c.is_b_transposed = 1;
            c.shift = shift;
            check_product(matmuls, &c);
            c = case_of(shapes[2], type, DTYPE_FP32, MATMUL_PLAIN);
            c.is_a_transposed = c.accumulates = 1;
            c.shift = shift;
            check_product(matmuls, &c);
        }
    }
    matmuls_free(matmuls);
}

/* Terms that cancel show what less than fp32 loses: TF32, or parts of K that are rounded to bf16. */
static void test_sums_are_fp32(void **state)
{
    (void)state;
    const size_t M = 16, N = 16, K = 4096;
    Matmuls *matmuls = matmuls_create();
    for (DType type : {DTYPE_FP32, DTYPE_BF16}) {
        Floats a(M * K), b = normal_values(N * K, 1, 2), expected(M * N);
        for (size_t i = 0; i < M * K; i++) {
            a[i] = i % K < K / 2 ? 1.0f : -1.0f;
        }
        for (size_t i = 0; i < N * K; i++) { /* the second half cancels the first but for 2^-11 a column */
            float kept = i % K < K / 2 ? ldexpf(roundf(ldexpf(b[i], 5)), -5) : b[i - K / 2];
            b[i] = fminf(fmaxf(kept, -2), 2);
        }
        for (size_t n = 0; n < N; n++) {
            b[n * K] = type == DTYPE_FP32 ? 1 + 0x1p-11f : 0x1p-11f;
            b[n * K + K / 2] = type == DTYPE_FP32 ? 1.0f : 0.0f;
        }
        for (float &value : expected) {
            value = 0x1p-11f;
        }
        DeviceTensor d_a(&a, type), d_b(&b, type), out(M * N, type);
        Matmul product = {};
        product.out = out.tensor;
        product.a = d_a.tensor;
        product.b = d_b.tensor;
        product.M = (int)M;
        product.N = (int)N;
        product.K = (int)K;
        product.is_b_transposed = 1;
        matmul(matmuls, &product, 0);
        check_same(type_name(type), "what does not cancel", out.read(), expected);
    }
    matmuls_free(matmuls);
}

/* ---- plans --------------------------------------------------------------------------------------------- */

/* A product whose bits tell the order of its sums, with memory that lives as long as it. */
struct PlannedProduct {
    Floats a_values, b_values;
    DeviceTensor a, b, out;
    Matmul product;

    PlannedProduct()
        : a_values(normal_values(64 * 512, 1, 1)), b_values(normal_values(512 * 64, 1, 2)),
          a(&a_values, DTYPE_FP32), b(&b_values, DTYPE_FP32), out(64 * 64, DTYPE_FP32), product()
    {
        product.out = out.tensor;
        product.a = a.tensor;
        product.b = b.tensor;
        product.M = product.N = 64;
        product.K = 512;
    }
    Floats multiply(Matmuls *matmuls)
    {
        matmul(matmuls, &product, 0);
        return out.read();
    }
};

/* What a process that has times, and one that has not, write down. Timing overwrites the operands. */
static std::string timed_plans(double ms, Floats *found)
{
    PlannedProduct product;
    Matmuls *matmuls = matmuls_create();
    product.multiply(matmuls);
    matmuls_tune(matmuls, clock_ms() + ms, 0);
    std::string text = matmuls_plans(matmuls);
    PlannedProduct again;
    *found = again.multiply(matmuls);
    matmuls_free(matmuls);
    return text;
}

/* By what a fresh process does that is given plans (or NULL) and a table; its notice, "" for none. */
static Floats planned(const char *plans, const char *const *table, std::string *notice)
{
    PlannedProduct product;
    Matmuls *matmuls = matmuls_create();
    if (table) {
        matmuls_use_table(matmuls, table);
    }
    if (plans) {
        matmuls_use_plans(matmuls, plans);
    }
    Floats found = product.multiply(matmuls);
    *notice = matmuls_notice(matmuls) ? matmuls_notice(matmuls) : "";
    matmuls_free(matmuls);
    return found;
}

static void expect_text(const std::string &text, const char *part)
{
    if (text.find(part) == std::string::npos) {
        fail_msg("expected \"%s\", found \"%s\"", part, text.c_str());
    }
}

/* The same bits, from the text alone. With no time at all the library's first choice is what is kept. */
static void test_timed_plans_are_made_again(void **state)
{
    (void)state;
    Floats found, standard;
    std::string notice;
    std::string timed = timed_plans(300, &found), first = timed_plans(-1, &standard);
    expect_text(timed, " / cuBLASLt ");
    expect_text(timed, "\n64x64x512 nn fp32 fp32 plain set 256 256 256: ");
    check_same("plans", "out", planned(timed.c_str(), NULL, &notice), found);
    assert_string_equal(notice.c_str(), "");
    check_same("no time", "out", planned(first.c_str(), NULL, &notice), standard);
    check_same("no plans", "out", planned(NULL, NULL, &notice), standard);
    assert_string_equal(notice.c_str(), "");
}

/* Whatever is wrong with plans, the product is made, as without them, and a line says so. */
static void test_plans_that_do_not_fit(void **state)
{
    (void)state;
    Floats standard;
    std::string notice, first = timed_plans(-1, &standard);
    std::string other = "Another GPU" + first.substr(first.find(" / "));
    check_same("another GPU", "out", planned(other.c_str(), NULL, &notice), standard);
    expect_text(notice, "are for Another GPU / cuBLASLt");
    std::string refused = first.substr(0, first.find(": ")) + ": 1000000000 0 1 0 0 0 0 0 0\n";
    check_same("no such algorithm", "out", planned(refused.c_str(), NULL, &notice), standard);
    expect_text(notice, "refuses 1 of 1 recorded plans");
    std::string in_place = first.substr(0, first.find(": ")) + ": 1 0 2 1 0 0 0 0 0\n";
    check_same("parts summed in any order", "out", planned(in_place.c_str(), NULL, &notice), standard);
    expect_text(notice, "refuses 1 of 1 recorded plans");
    check_same("no text", "out", planned("nonsense", NULL, &notice), standard);
    expect_text(notice, "line 1: expected a line");
    const char *const table[] = {refused.c_str(), NULL};
    check_same("a table's", "out", planned(NULL, table, &notice), standard);
}

/* host_cuda's second algorithm sums K in two halves, which shows in the bits: plans decide before a table,
 * and a table before the library. A GPU's algorithms are not known here. */
static void test_plans_decide_before_tables(void **state)
{
    (void)state;
    Floats standard;
    std::string notice, first = timed_plans(-1, &standard);
    if (first.compare(0, 9, "host_cuda") != 0) {
        skip();
    }
    std::string halves = first.substr(0, first.find(": ")) + ": 1 0 2 2 0 0 0 0 0\n";
    Floats found = planned(halves.c_str(), NULL, &notice);
    assert_string_equal(notice.c_str(), "");
    assert_true(found != standard);
    std::string other = "Another GPU" + first.substr(first.find(" / "));
    const char *const table[] = {other.c_str(), halves.c_str(), NULL}, *const empty[] = {NULL};
    check_same("a table", "out", planned(NULL, table, &notice), found);
    check_same("plans and a table", "out", planned(first.c_str(), table, &notice), standard);
    check_same("an empty table", "out", planned(NULL, empty, &notice), standard);
    setenv("HOST_CUDA_PREFERS", "2", 1);
    Floats quickest;
    assert_string_equal(timed_plans(2e4, &quickest).c_str(), halves.c_str());
    check_same("the quickest", "out", quickest, found);
    unsetenv("HOST_CUDA_PREFERS");
}

/* A model that has timed its products starts as every model does: all state is zero, padding too. */
static void test_timing_leaves_no_trace(void **state)
{
    (void)state;
    Error error = {};
    for (int slots : {1, 2}) {
        ModelConfig config = {};
        config.shape = ModelShape{8, 131, 2, 2, 16};
        config.batch_size = 2;
        config.sequence_tokens = 8;
        config.slots_per_step = slots;
        config.dtype = DTYPE_FP32;
        Model *model = cuda_model_create(&config, &error);
        assert_non_null(model);
        cuda_model_tune(model, 1e4); /* enough to time all of them */
        assert_non_null(matmuls_plans(model->matmuls));
        Floats zeros((size_t)model->table.arena_count), found(zeros.size());
        for (StateKind kind : {STATE_WEIGHTS, STATE_MOMENT1, STATE_MOMENT2, STATE_GRADIENTS}) {
            cuda_model_read_state(model, kind, 0, found.data(), model->table.arena_count);
            check_same("after timing", "state", found, zeros);
        }
        int64_t tail[GRADIENT_TAIL], no_tail[GRADIENT_TAIL] = {};
        CUDA_CHECK(cudaMemcpy(tail, model->tail, sizeof(tail), cudaMemcpyDeviceToHost));
        assert_memory_equal(tail, no_tail, sizeof(tail));
        cuda_model_release(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_gradient_of_inputs),
        cmocka_unit_test(test_epilogues_of_our_own),
        cmocka_unit_test(test_gradient_of_weights),
        cmocka_unit_test(test_pointers_of_little_alignment),
        cmocka_unit_test(test_sums_are_fp32),
        cmocka_unit_test(test_timed_plans_are_made_again),
        cmocka_unit_test(test_plans_that_do_not_fit),
        cmocka_unit_test(test_plans_decide_before_tables),
        cmocka_unit_test(test_timing_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
