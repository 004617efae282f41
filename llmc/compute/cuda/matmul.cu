#include <stdio.h>

#include "llmc/base/memory.h"
#include "llmc/compute/cuda/gelu.cuh"
#include "llmc/compute/cuda/matmul_plans.cuh"
#include "llmc/compute/cuda/tuned_plans.cuh"

size_t matmuls_bytes(void)
{
    return WORKSPACE_BYTES;
}

int64_t matmul_bias_partial_count(int64_t M, int N)
{
    return column_partial_count(M, N);
}

/* GPU and library, whose versions are numbers of two digits a part. */
static void name_device(Matmuls *matmuls)
{
    int device;
    cudaDeviceProp properties;
    size_t version = cublasLtGetVersion();
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    matmuls->capability = properties.major * 10 + properties.minor;
    snprintf(matmuls->device, PLAN_DEVICE_BYTES, "%.80s / cuBLASLt %zu.%zu.%zu", properties.name,
             version / 10000, version / 100 % 100, version % 100);
}

Matmuls *matmuls_create(void)
{
    Matmuls *matmuls = (Matmuls *)memory_alloc_zeroed(1, sizeof(Matmuls), "matrix product plans");
    CUBLASLT_CHECK(cublasLtCreate(&matmuls->library));
    CUDA_CHECK(cudaMalloc(&matmuls->workspace, WORKSPACE_BYTES));
    name_device(matmuls);
    matmuls->table = tuned_plans;
    return matmuls;
}

void matmuls_free(Matmuls *matmuls)
{
    if (matmuls == NULL) {
        return;
    }
    for (int i = 0; i < matmuls_kept(matmuls); i++) {
        matmuls_release_plan(&matmuls->plans[i]);
    }
    CUDA_CHECK(cudaFree(matmuls->workspace));
    CUBLASLT_CHECK(cublasLtDestroy(matmuls->library));
    memory_free(matmuls->text);
    memory_free(matmuls);
}

void matmuls_use_table(Matmuls *matmuls, const char *const *table)
{
    matmuls->table = table;
}

/* Why an algorithm cannot do a product although AlgoCheck took it. Nothing was queued then. */
static int is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

int matmuls_run(Matmuls *matmuls, Plan *plan, const Matmul *product, cudaStream_t stream)
{
    const float one = 1.0f, beta = product->accumulates ? 1.0f : 0.0f;
    matmuls_set_pointers(plan, product);
    cublasStatus_t status =
        cublasLtMatmul(matmuls->library, plan->operation, &one, product->b.data, plan->a, product->a.data,
                       plan->b, &beta, product->out.data, plan->out, product->out.data, plan->out,
                       &plan->algorithm, matmuls->workspace, WORKSPACE_BYTES, stream);
    if (is_refusal(status)) {
        snprintf(matmuls->refusal, sizeof(matmuls->refusal), "%s", cublasLtGetStatusString(status));
        return -1;
    }
    CUBLASLT_CHECK(status);
    if (product->epilogue == MATMUL_GELU_BACKWARD_BIAS) { /* the library cannot add to them */
        ColumnParts sums = {product->bias_partial, 1, product->N, product->N, product->adds_d_bias,
                            {product->d_bias}};
        column_parts_sum(&sums, stream);
    }
    return 0;
}

enum { THREADS = 256 };

template <typename T>
__global__ void __launch_bounds__(THREADS) bias_kernel(T *out, const T *bias, int64_t count, int columns)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        value_store(out + i, value_load(out + i) + value_load(bias + i % columns));
    }
}

Matmul matmuls_simpler(const Matmul *product)
{
    static const MatmulEpilogue simpler_of[MATMUL_EPILOGUES] = {MATMUL_PLAIN, MATMUL_PLAIN, MATMUL_BIAS,
                                                                MATMUL_PLAIN, MATMUL_GELU_BACKWARD};
    Matmul simpler = *product;
    simpler.epilogue = simpler_of[product->epilogue];
    if (product->epilogue == MATMUL_BIAS_GELU) {
        simpler.out.data = product->before;
    }
    return simpler;
}

/* The library wants rows of whole eights for GELU's auxiliary matrix. How exact its GELU is, it does not say:
 * fp32 has our own. */
static int library_has_epilogue(const Matmul *product)
{
    return product->epilogue < MATMUL_BIAS_GELU ||
           (product->out.type == DTYPE_BF16 && product->N % 8 == 0 && (uintptr_t)product->before % 16 == 0);
}

[[noreturn]] static void end_without_algorithm(const Matmuls *matmuls, const Matmul *product)
{
    static const char *const names[] = {"fp32", "bf16"}; /* by DType */
    error_exit(EXIT_FAILED,
               "%s: no algorithm for a product of %d x %d x %d, %s to %s%s%s; try another batch_size or "
               "block_size, dtype=%s, or a newer CUDA Toolkit",
               matmuls->device, product->M, product->N, product->K, names[product->a.type],
               names[product->out.type], matmuls->refusal[0] ? ", and those tried end with " : "",
               matmuls->refusal, names[product->a.type == DTYPE_FP32]);
}

/* A graph that is being recorded would keep what was queued for a product before it was refused. */
static int is_recording(cudaStream_t stream)
{
    cudaStreamCaptureStatus status;
    CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
}

/* By the plan's algorithm, or the first that the library does not refuse; it is the plan's from then on. 0
 * where it refuses all: then it is not asked again. */
static int run_proposals(Matmuls *matmuls, Plan *plan, const Matmul *product, cudaStream_t stream)
{
    while (plan->is_found && matmuls_run(matmuls, plan, product, stream) != 0) {
        if (is_recording(stream)) {
            cuda_fault(__FILE__, __LINE__, "cublasLtMatmul in a recording", matmuls->refusal);
        }
        matmuls_take_next(matmuls, plan);
    }
    return plan->is_found;
}

/* 0 where the library has no algorithm, or kernels of our own were chosen. */
static int run_by_library(Matmuls *matmuls, const Matmul *product, cudaStream_t stream)
{
    return library_has_epilogue(product) &&
           run_proposals(matmuls, matmuls_plan_of(matmuls, product), product, stream);
}

static void run(Matmuls *matmuls, const Matmul *product, cudaStream_t stream)
{
    if (run_by_library(matmuls, product, stream)) {
        return;
    }
    if (product->epilogue == MATMUL_PLAIN) {
        end_without_algorithm(matmuls, product);
    }
    matmuls_run_in_parts(matmuls, product, stream);
}

/* Where the library multiplies by GELU's slope as it stores the product, the sums are a pass of their own;
 * where our kernel does, it sums what it has in registers. */
static void run_gelu_backward_bias(Matmuls *matmuls, const Matmul *product, cudaStream_t stream)
{
    Matmul with_gelu = matmuls_simpler(product), plain = matmuls_simpler(&with_gelu);
    if (run_by_library(matmuls, &with_gelu, stream)) {
        matmuls_sum_rows(product, stream);
        return;
    }
    run(matmuls, &plain, stream);
    gelu_backward_bias(product->d_bias, product->out, Tensor{product->before, product->out.type}, product->M,
                       product->N, product->adds_d_bias, product->bias_partial, stream);
}

void matmuls_sum_rows(const Matmul *product, cudaStream_t stream)
{
    column_sums(product->d_bias, product->out, product->M, product->N, product->adds_d_bias,
                product->bias_partial, stream);
}

void matmuls_run_in_parts(Matmuls *matmuls, const Matmul *product, cudaStream_t stream)
{
    if (product->epilogue == MATMUL_GELU_BACKWARD_BIAS) {
        run_gelu_backward_bias(matmuls, product, stream);
        return;
    }
    Matmul simpler = matmuls_simpler(product);
    int64_t count = (int64_t)product->M * product->N;
    Tensor before = {product->before, product->out.type};
    dim3 grid((unsigned)div_up(count, THREADS));
    run(matmuls, &simpler, stream);
    if (product->epilogue == MATMUL_BIAS) {
        WITH_TYPE(product->out.type,
                  launch(bias_kernel<T>, grid, dim3(THREADS), 0, stream, (T *)product->out.data,
                         (const T *)product->bias, count, product->N));
    } else if (product->epilogue == MATMUL_BIAS_GELU) {
        gelu_forward(product->out, before, count, stream);
    } else {
        gelu_backward(product->out, before, count, stream);
    }
}

void matmul(Matmuls *matmuls, const Matmul *product, cudaStream_t stream)
{
    Matmul asked = *product;
    while (!library_has_epilogue(&asked)) {
        asked = matmuls_simpler(&asked);
    }
    matmuls_plan_of(matmuls, &asked)->uses++;
    run(matmuls, product, stream);
}
