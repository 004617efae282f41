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

static int run_candidate(Matmuls *matmuls, Plan *plan, cudaStream_t stream)
{
    if (plan->is_found) {
        return matmuls_run(matmuls, plan, &plan->example, stream);
    }
    matmuls_run_in_parts(matmuls, &plan->example, stream);
    return 0;
}

/* Milliseconds of one call, as a mean over some; infinitely many where the library refuses the operands. */
static float call_ms(Matmuls *matmuls, Plan *plan, int calls, const Timer *timer)
{
    float ms;
    int is_refused = 0;
    CUDA_CHECK(cudaEventRecord(timer->begin, timer->stream));
    for (int i = 0; i < calls; i++) {
        is_refused |= run_candidate(matmuls, plan, timer->stream) != 0;
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
            matmuls_take(plan, &candidates[i]);
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

static void write_down(Matmuls *matmuls, const Plan *plan, const Candidate *candidate)
{
    ProductPlan *choice = &matmuls->chosen.plans[matmuls->chosen.count++];
    choice->key = plan->key;
    memcpy(choice->settings, candidate->settings, sizeof(choice->settings));
}

/* Choose for one plan, and write the choice down. One of which no algorithm can be made again stays as it
 * is: the library proposes it again. Kernels of our own follow a product whose algorithm is chosen before
 * them; if another candidate wins and nobody else has such a product, its choice is forgotten. */
static void tune_plan(Matmuls *matmuls, Plan *plan, double deadline_ms, const Timer *timer)
{
    Candidate candidates[CANDIDATES_MAX];
    const ProductKey *key = &plan->key;
    int count = matmuls_candidates(candidates, matmuls, plan), best = 0, kept = matmuls->chosen.count;
    if (count == 0 || kept + 2 > PLANS_MAX || plans_find(&matmuls->chosen, key)) {
        return;
    }
    int64_t simpler_uses = 1;
    if (key->epilogue >= MATMUL_BIAS_GELU) {
        Matmul simpler = matmuls_simpler(&plan->example);
        Plan *of_simpler = matmuls_plan_of(matmuls, &simpler);
        simpler_uses = of_simpler->uses;
        tune_plan(matmuls, of_simpler, deadline_ms, timer);
    }
    if (count > 1 && clock_ms() < deadline_ms) {
        fill(plan->example.a, (int64_t)key->M * key->K, timer->stream);
        fill(plan->example.b, (int64_t)key->K * key->N, timer->stream);
        best = quickest(matmuls, plan, candidates, count, deadline_ms, timer);
    }
    matmuls_take(plan, &candidates[best]);
    if (plan->is_found && simpler_uses == 0) {
        matmuls->chosen.count = kept;
    }
    write_down(matmuls, plan, &candidates[best]);
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
        tune_plan(matmuls, &matmuls->plans[next], deadline_ms, &timer);
    }
    CUDA_CHECK(cudaEventDestroy(timer.begin));
    CUDA_CHECK(cudaEventDestroy(timer.end));
    memory_free(matmuls->text);
    matmuls->text = plans_to_text(&matmuls->chosen);
}
