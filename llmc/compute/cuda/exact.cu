#include "llmc/compute/cuda/exact.cuh"

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS) exact_fold_kernel(ExactFold a)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.count) {
        return;
    }
    float value = a.values[i];
    int is_good = fabsf(value) <= a.limit; /* false for a NaN */
    int64_t added = is_good ? exact_from_float(value) : 0;
    a.sums[i] = a.is_first ? added : a.sums[i] + added;
    if (!is_good) {
        count_bad(a.bad, a.not_finite, value);
    }
}

void exact_fold(const ExactFold *fold, cudaStream_t stream)
{
    launch(exact_fold_kernel, dim3((unsigned)div_up(fold->count, THREADS)), dim3(THREADS), 0, stream, *fold);
}

/* The sum of all losses for every thread of the one block. */
static __device__ double sum_losses(const float *losses, int64_t count)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) {
        sum += losses[i];
    }
    return block_sum(sum, (double *)dynamic_shared());
}

__global__ void __launch_bounds__(THREADS) fold_loss_kernel(LossFold a)
{
    double part = sum_losses(a.losses, a.count) / (double)a.count / a.slots;
    if (threadIdx.x != 0) {
        return;
    }
    if (fabs(part) <= EXACT_LIMIT / a.slots) {
        a.tail[TAIL_LOSS] += (int64_t)__double2ll_rn(part * EXACT_SCALE);
    } else {
        a.tail[TAIL_BAD]++;
        a.tail[TAIL_NOT_FINITE] += !isfinite(part);
    }
}

void exact_fold_loss(const LossFold *fold, cudaStream_t stream)
{
    launch(fold_loss_kernel, dim3(1), dim3(THREADS), THREADS / WARP * sizeof(double), stream, *fold);
}

__global__ void __launch_bounds__(THREADS) mean_loss_kernel(double *mean, const float *losses, int64_t count)
{
    double sum = sum_losses(losses, count);
    if (threadIdx.x == 0) {
        *mean = sum / (double)count;
    }
}

void mean_loss(double *mean, const float *losses, int64_t count, cudaStream_t stream)
{
    launch(mean_loss_kernel, dim3(1), dim3(THREADS), THREADS / WARP * sizeof(double), stream, mean, losses,
           count);
}
