/* Which way of computing a product is taken where the library refuses one, and for GELU, by rule and by
 * timing. The library is dev/host_cuda's, whose settings decide what it proposes, and whose bits tell what
 * ran: a GPU skips this, but for the table of GPUs' peak rates. */
#include "dev/ops/test_cuda.cuh"

#include <algorithm>
#include <string>

#include "llmc/base/clock.h"
#include "llmc/compute/cuda/matmul.cuh"
#include "llmc/compute/cuda/peak_flops.cuh"

enum { N = 16, K = 24 };

/* Bits tell the order of sums only in fp32. */
static DType type_of(MatmulEpilogue epilogue)
{
    return epilogue < MATMUL_BIAS_GELU ? DTYPE_FP32 : DTYPE_BF16;
}

/* A product with memory that lives as long as it; the same values each time. */
struct Product {
    Floats a_values, b_values, bias_values, before_values;
    DeviceTensor a, b, bias, before, out;
    Device<float> d_bias, partial;
    Matmul product;

    Product(int M, MatmulEpilogue epilogue)
        : a_values(normal_values((size_t)M * K, 1, 1)), b_values(normal_values(K * N, 1, 2)),
          bias_values(normal_values(N, 1, 3)), before_values(normal_values((size_t)M * N, 1, 4)),
          a(&a_values, type_of(epilogue)), b(&b_values, type_of(epilogue)),
          bias(&bias_values, type_of(epilogue)), before(&before_values, type_of(epilogue)),
          out((size_t)M * N, type_of(epilogue)), d_bias((size_t)N),
          partial((size_t)matmul_bias_partial_count(M, N)), product()
    {
        product.out = out.tensor;
        product.a = a.tensor;
        product.b = b.tensor;
        product.M = M;
        product.N = N;
        product.K = K;
        product.epilogue = epilogue;
        product.bias = bias.tensor.data;
        product.before = before.tensor.data;
        product.d_bias = d_bias.data;
        product.bias_partial = partial.data;
    }
    /* The output, then sums of rows where the product has them. */
    Floats read()
    {
        Floats found = out.read();
        if (product.epilogue == MATMUL_GELU_BACKWARD_BIAS) {
            Floats sums = d_bias.read();
            found.insert(found.end(), sums.begin(), sums.end());
        }
        return found;
    }
};

/* A setting of dev/host_cuda while it lives. */
struct Setting {
    const char *name;

    Setting(const char *name, int value) : name(name)
    {
        setenv(name, std::to_string(value).c_str(), 1);
    }
    ~Setting()
    {
        unsetenv(name);
    }
};

static void needs_host_cuda(void)
{
    Matmuls *matmuls = matmuls_create();
    int is_host = strncmp(matmuls_device(matmuls), "host_cuda", 9) == 0;
    matmuls_free(matmuls);
    if (!is_host) {
        skip();
    }
}

/* What a fresh process makes of it, and its notice ("" for none). */
static Floats by_rule(int M, MatmulEpilogue epilogue, std::string *notice = NULL)
{
    Product product(M, epilogue);
    Matmuls *matmuls = matmuls_create();
    matmul(matmuls, &product.product, 0);
    Floats found = product.read();
    matmul(matmuls, &product.product, 0); /* the choice is remembered */
    assert_true(product.read() == found);
    if (notice) {
        *notice = matmuls_notice(matmuls) ? matmuls_notice(matmuls) : "";
    }
    matmuls_free(matmuls);
    return found;
}

/* The same once it was timed; *plans is what was written down. */
static Floats by_timing(int M, MatmulEpilogue epilogue, std::string *plans)
{
    Product timed(M, epilogue), product(M, epilogue); /* timing overwrites operands */
    Matmuls *matmuls = matmuls_create();
    matmul(matmuls, &timed.product, 0);
    matmuls_tune(matmuls, clock_ms() + 1e6, 0);
    *plans = matmuls_plans(matmuls);
    matmul(matmuls, &product.product, 0);
    Floats found = product.read();
    matmuls_free(matmuls);

    Product again(M, epilogue); /* by what was written down alone */
    matmuls = matmuls_create();
    matmuls_use_plans(matmuls, plans->c_str());
    assert_null(matmuls_notice(matmuls));
    matmul(matmuls, &again.product, 0);
    assert_true(again.read() == found);
    matmuls_free(matmuls);
    return found;
}

static void expect_text(const std::string &text, const char *part)
{
    if (text.find(part) == std::string::npos) {
        fail_msg("expected \"%s\", found \"%s\"", part, text.c_str());
    }
}

static int line_count(const std::string &text)
{
    int count = 0;
    for (char c : text) {
        count += c == '\n';
    }
    return count;
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

/* cublasLtMatmul says no to what AlgoCheck took: the next proposal, then kernels of our own. */
static void test_refused_algorithms(void **state)
{
    (void)state;
    needs_host_cuda();
    Floats first = by_rule(40, MATMUL_BIAS), second, parts;
    std::string notice;
    {
        Setting setting("HOST_CUDA_REFUSES", 1);
        second = by_rule(40, MATMUL_BIAS, &notice);
    }
    assert_true(second != first);
    expect_text(notice, "cuBLASLt refuses a product of 40 x 16 x 24 by the algorithm that was chosen for it "
                        "(CUBLAS_STATUS_NOT_SUPPORTED)");
    {
        Setting setting("HOST_CUDA_EPILOGUES", 0);
        parts = by_rule(40, MATMUL_BIAS, &notice);
    }
    assert_string_equal(notice.c_str(), "");
    assert_true(parts == first);
    {
        Setting setting("HOST_CUDA_REFUSES", 100); /* whatever has an epilogue */
        assert_true(by_rule(40, MATMUL_BIAS, &notice) == parts);
    }
    expect_text(notice, "refuses a product of 40 x 16 x 24");
    for (MatmulEpilogue epilogue : {MATMUL_BIAS_GELU, MATMUL_GELU_BACKWARD, MATMUL_GELU_BACKWARD_BIAS}) {
        {
            Setting setting("HOST_CUDA_EPILOGUES", 0);
            parts = by_rule(40, epilogue);
        }
        Setting setting("HOST_CUDA_REFUSES", 100);
        assert_true(by_rule(40, epilogue) == parts);
    }
}

/* A plan that was given is refused only when it is used. */
static void test_refused_plans(void **state)
{
    (void)state;
    needs_host_cuda();
    std::string plans;
    Floats first = by_timing(40, MATMUL_PLAIN, &plans);
    std::string halves = plans.substr(0, plans.find(": ")) + ": 1 0 2 2 0 0 0 0 0\n";
    Setting setting("HOST_CUDA_REFUSES", 2);
    Product product(40, MATMUL_PLAIN);
    Matmuls *matmuls = matmuls_create();
    matmuls_use_plans(matmuls, halves.c_str());
    assert_null(matmuls_notice(matmuls));
    matmul(matmuls, &product.product, 0);
    assert_true(product.out.read() == by_rule(40, MATMUL_PLAIN));
    expect_text(matmuls_notice(matmuls), "cuBLASLt refuses a product of 40 x 16 x 24");
    matmuls_free(matmuls);
}

/* ---- GELU ---------------------------------------------------------------------------------------------- */

static const MatmulEpilogue gelus[] = {MATMUL_BIAS_GELU, MATMUL_GELU_BACKWARD};

/* Where only algorithms are proposed that round the product before GELU, the bits are those of our kernels,
 * but for how the last bits of GELU itself are computed: so our kernels are told apart by equality. */
static void test_gelu_by_rule(void **state)
{
    (void)state;
    needs_host_cuda();
    const int many = 33000, few = 300;
    for (MatmulEpilogue epilogue : gelus) {
        Floats of_many = by_rule(many, epilogue), of_few = by_rule(few, epilogue), parts;
        {
            Setting setting("HOST_CUDA_CAPABILITY", 80);
            parts = by_rule(few, epilogue);
        }
        assert_true(parts != of_few);
        if (epilogue == MATMUL_GELU_BACKWARD) { /* else its bias is a kernel of ours too */
            Setting setting("HOST_CUDA_EPILOGUES", 0);
            assert_true(by_rule(few, epilogue) == parts);
        }
        {
            Setting setting("HOST_CUDA_GELU_ROWS", 32768); /* many rows as 32,768 */
            assert_true(by_rule(many, epilogue) == of_many);
        }
        Setting setting("HOST_CUDA_GELU_ROWS", 100); /* the library's first */
        Floats twice = by_rule(few, epilogue);
        assert_true(twice != of_few);
    }
}

/* Timing finds kernels of our own where the library has only what computes GELU in a second pass. */
static void test_own_gelu_by_timing(void **state)
{
    (void)state;
    needs_host_cuda();
    const int rows = 1000; /* enough for one call to be a round */
    for (MatmulEpilogue epilogue : gelus) {
        Floats parts;
        std::string plans;
        {
            Setting setting("HOST_CUDA_CAPABILITY", 80);
            parts = by_rule(rows, epilogue);
        }
        Setting setting("HOST_CUDA_GELU_ROWS", 1); /* for no number of rows */
        Setting prefers("HOST_CUDA_PREFERS", 1);   /* of the simpler product */
        assert_true(by_timing(rows, epilogue, &plans) == parts);
        expect_text(plans, ": 4294967295 0 0 0 0 0 0 0 0\n");
        assert_int_equal(line_count(plans), 3); /* the device, the simpler product, this one */
    }
}

/* And what the library proposes for fewer rows alone. */
static void test_gelu_of_other_rows_by_timing(void **state)
{
    (void)state;
    needs_host_cuda();
    const int rows = 4200;
    for (MatmulEpilogue epilogue : gelus) {
        std::string plans;
        Floats fused = by_rule(rows, epilogue);
        Setting setting("HOST_CUDA_GELU_ROWS", 4096), slow("HOST_CUDA_KERNEL_MS", 20);
        Floats twice = by_rule(rows, epilogue);
        assert_true(twice != fused);
        assert_true(by_timing(rows, epilogue, &plans) != twice);
        assert_int_equal(line_count(plans), 2); /* the simpler product is nobody's */
        assert_true(plans.find(": 1 0 1 0 0 0 0 0 0\n") != std::string::npos ||
                    plans.find(": 1 0 2 2 0 0 0 0 0\n") != std::string::npos);
    }
}

/* Sums of rows: by the library with GELU's slope, by a pass behind that, by our kernel; told apart by whether
 * the product, and what is summed, were rounded before. */
static void test_sums_of_rows_by_rule(void **state)
{
    (void)state;
    needs_host_cuda();
    const int rows = 3000, many = 33000; /* so many that the order of sums shows */
    const MatmulEpilogue epilogue = MATMUL_GELU_BACKWARD_BIAS;
    const ptrdiff_t elements = (ptrdiff_t)rows * N;
    Floats whole = by_rule(rows, epilogue), pass, kernel;
    {
        Setting setting("HOST_CUDA_BGRAD", 0);
        pass = by_rule(rows, epilogue);
    }
    {
        Setting setting("HOST_CUDA_CAPABILITY", 80);
        kernel = by_rule(rows, epilogue);
    }
    assert_true(std::equal(whole.begin(), whole.begin() + elements, pass.begin()) && whole != pass);
    assert_true(by_rule(rows, MATMUL_GELU_BACKWARD) == Floats(pass.begin(), pass.begin() + elements));
    assert_false(std::equal(pass.begin(), pass.begin() + elements, kernel.begin()));
    Setting none("HOST_CUDA_EPILOGUES", 0);
    assert_true(by_rule(rows, epilogue) == kernel);
    unsetenv("HOST_CUDA_EPILOGUES");
    Floats of_many = by_rule(many, epilogue);
    Setting setting("HOST_CUDA_GELU_ROWS", 32768); /* many rows as 32,768 */
    assert_true(by_rule(many, epilogue) == of_many);
}

/* A pass is timed with the library's GELU that it follows, our kernel with the product before it. */
static void test_sums_of_rows_by_timing(void **state)
{
    (void)state;
    needs_host_cuda();
    const int rows = 1000;
    const MatmulEpilogue epilogue = MATMUL_GELU_BACKWARD_BIAS;
    Floats kernel;
    std::string plans;
    Setting prefers("HOST_CUDA_PREFERS", 1);
    {
        Setting setting("HOST_CUDA_CAPABILITY", 80);
        kernel = by_rule(rows, epilogue);
    }
    {
        Setting setting("HOST_CUDA_GELU_ROWS", 1); /* the library multiplies by the slope in a second pass */
        assert_true(by_timing(rows, epilogue, &plans) == kernel);
        expect_text(plans, " gelu_backward_bias set ");
        expect_text(plans, " gelu_backward set ");
        expect_text(plans, " plain set ");
        assert_int_equal(line_count(plans), 4);
    }
    Setting no_sums("HOST_CUDA_BGRAD", 0), twice("HOST_CUDA_GELU_ROWS", 1);
    assert_true(by_timing(rows, epilogue, &plans) == kernel);
    assert_int_equal(line_count(plans), 3); /* the product with sums has but one way: in parts */
}

/* ---- what rates are held against ----------------------------------------------------------------------- */

static void test_peak_flops(void **state)
{
    (void)state;
    const struct {
        const char *name;
        double tflops;
    } gpus[] = {{"NVIDIA H100 80GB HBM3", 989},
                {"NVIDIA H100 PCIe", 756},
                {"NVIDIA H100 NVL", 835},
                {"NVIDIA H200", 989},
                {"NVIDIA H200 NVL", 835},
                {"NVIDIA GH200 480GB", 989},
                {"NVIDIA GH200 144G HBM3e", 989},
                {"NVIDIA B200", 2250},
                {"NVIDIA GB200", 2500},
                {"NVIDIA A100-SXM4-80GB", 312},
                {"NVIDIA A100 80GB PCIe", 312},
                {"NVIDIA L40S", 362},
                {"NVIDIA L40", 0},
                {"NVIDIA RTX A1000", 0},
                {"NVIDIA GeForce RTX 5090", 209.5},
                {"NVIDIA GeForce RTX 5090 D", 0},
                {"NVIDIA GeForce RTX 5070 Ti", 87.9},
                {"NVIDIA GeForce RTX 5070", 61.7},
                {"NVIDIA GeForce RTX 5070 Laptop GPU", 0},
                {"NVIDIA GeForce RTX 4090", 165.2},
                {"NVIDIA GeForce RTX 4090 D", 0},
                {"NVIDIA GeForce RTX 4080 SUPER", 104.4},
                {"NVIDIA GeForce RTX 4080", 97.5},
                {"NVIDIA GeForce RTX 4070 Ti SUPER", 88.2},
                {"host_cuda (no GPU)", 0}};
    for (const auto &gpu : gpus) {
        double found = peak_flops_bf16(gpu.name) / 1e12;
        if (fabs(found - gpu.tflops) > 1e-9) {
            fail_msg("%s: expected %g TFLOP/s, found %g", gpu.name, gpu.tflops, found);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_algorithms),
        cmocka_unit_test(test_refused_plans),
        cmocka_unit_test(test_gelu_by_rule),
        cmocka_unit_test(test_own_gelu_by_timing),
        cmocka_unit_test(test_gelu_of_other_rows_by_timing),
        cmocka_unit_test(test_sums_of_rows_by_rule),
        cmocka_unit_test(test_sums_of_rows_by_timing),
        cmocka_unit_test(test_peak_flops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
