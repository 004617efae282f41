#include <math.h>
#include <string.h>

#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/compute/cuda/matmul_plans.cuh"

enum {
    WARM_UP_ROUNDS = 2, /* the first loads kernels, the second tells how long they take */
    ROUNDS = 5
};
static const float ROUND_MS = 0.2f; /* as many calls between two events as fit into it, at least one */
static const float CALLS_MAX = 32;
static const float WORTH_A_CHANGE = 0.98f; /* of the time of what the library proposes first */

/* ---- operands ------------------------------------------------------------------------------------------ */

enum { THREADS = 256 };

/* Numbers between -1/2 and 1/2: zeros would be multiplied at less power, so at a higher clock. */
template <typename T>
__global__ void __launch_bounds__(THREADS) noise_kernel(T *out, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) {
        uint32_t bits = (uint32_t)i * 2654435761u;
        bits = (bits ^ bits >> 15) * 2246822519u;
        value_store(out + i, (float)(bits >> 16) * 0x1p-16f - 0.5f);
    }
}

static void fill(Tensor tensor, int64_t count, cudaStream_t stream)
{
    dim3 grid((unsigned)div_up(count, THREADS));
    WITH_TYPE(tensor.type, launch(noise_kernel<T>, grid, dim3(THREADS), 0, stream, (T *)tensor.data, count));
}

/* ---- timing -------------------------------------------------------------------------------------------- */

typedef struct Timer {
    cudaEvent_t begin, end;
    cudaStream_t stream;
} Timer;

/* Milliseconds of one call, as a mean over some; infinitely many where the library refuses the operands. */
static float call_ms(Matmuls *matmuls, Plan *plan, int calls, const Timer *timer)
{
    float ms;
    int is_refused = 0;
    CUDA_CHECK(cudaEventRecord(timer->begin, timer->stream));
    for (int i = 0; i < calls; i++) {
        is_refused |= matmuls_run(matmuls, plan, &plan->example, timer->stream) != CUBLAS_STATUS_SUCCESS;
    }
    CUDA_CHECK(cudaEventRecord(timer->end, timer->stream));
    CUDA_CHECK(cudaEventSynchronize(timer->end));
    CUDA_CHECK(cudaEventElapsedTime(&ms, timer->begin, timer->end));
    return is_refused ? INFINITY : ms / (float)calls;
}

/* The quickest of the candidates, by the best of their rounds, which take turns so that a clock that changes
 * does so for all. The first, unless another is clearly quicker; also when time is up. */
static int quickest(Matmuls *matmuls, Plan *plan, const Candidate *candidates, int count, double deadline_ms,
                    const Timer *timer)
{
    float best_ms[CANDIDATES_MAX], warm_ms = ROUND_MS;
    int calls = 1;
    for (int round = -WARM_UP_ROUNDS; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            plan->algorithm = candidates[i].algorithm;
            float ms = call_ms(matmuls, plan, calls, timer);
            warm_ms = round < 0 && ms < warm_ms ? ms : warm_ms;
            best_ms[i] = round <= 0 || ms < best_ms[i] ? ms : best_ms[i];
            if (clock_ms() > deadline_ms) {
                return 0;
            }
        }
        calls = round < 0 ? (int)fminf(ROUND_MS / warm_ms, CALLS_MAX) : calls;
    }
    int best = 0;
    for (int i = 1; i < count; i++) {
        float limit = best == 0 ? WORTH_A_CHANGE * best_ms[0] : best_ms[best];
        best = best_ms[i] < limit ? i : best;
    }
    return best;
}

/* Choose for one plan, and write the choice down. One of which no algorithm can be made again stays as it
 * is: the library proposes it again. */
static void tune_plan(Matmuls *matmuls, Plan *plan, double deadline_ms, const Timer *timer)
{
    Candidate candidates[CANDIDATES_MAX];
    int count = matmuls_candidates(candidates, matmuls, plan), best = 0;
    const ProductKey *key = &plan->key;
    if (count == 0 || matmuls->chosen.count == PLANS_MAX) {
        return;
    }
    if (count > 1 && clock_ms() < deadline_ms) {
        fill(plan->example.a, (int64_t)key->M * key->K, timer->stream);
        fill(plan->example.b, (int64_t)key->K * key->N, timer->stream);
        best = quickest(matmuls, plan, candidates, count, deadline_ms, timer);
    }
    plan->algorithm = candidates[best].algorithm;
    ProductPlan *choice = &matmuls->chosen.plans[matmuls->chosen.count++];
    choice->key = *key;
    memcpy(choice->settings, candidates[best].settings, sizeof(choice->settings));
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static double cost(const Plan *plan)
{
    return (double)plan->uses * plan->key.M * plan->key.N * plan->key.K;
}

void matmuls_tune(Matmuls *matmuls, double deadline_ms, cudaStream_t stream)
{
    Timer timer = {NULL, NULL, stream};
    int count = matmuls_kept(matmuls);
    int is_done[KEPT_PLANS_MAX] = {};
    matmuls->chosen.count = 0;
    memcpy(matmuls->chosen.device, matmuls->device, sizeof(matmuls->device));
    CUDA_CHECK(cudaEventCreateWithFlags(&timer.begin, cudaEventDefault));
    CUDA_CHECK(cudaEventCreateWithFlags(&timer.end, cudaEventDefault));
    for (int done = 0; done < count; done++) {
        int next = -1;
        for (int i = 0; i < count; i++) {
            if (!is_done[i] && (next < 0 || cost(&matmuls->plans[i]) > cost(&matmuls->plans[next]))) {
                next = i;
            }
        }
        is_done[next] = 1;
        if (matmuls->plans[next].is_found) {
            tune_plan(matmuls, &matmuls->plans[next], deadline_ms, &timer);
        }
    }
    CUDA_CHECK(cudaEventDestroy(timer.begin));
    CUDA_CHECK(cudaEventDestroy(timer.end));
    memory_free(matmuls->text);
    matmuls->text = plans_to_text(&matmuls->chosen);
}
