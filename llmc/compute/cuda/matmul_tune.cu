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

/* A plan, and for whom it is timed: the product of which it is a part, or NULL. Then the rest of that counts
 * too, which differs: sums of rows are a pass behind the library's GELU, and part of our kernel. */
typedef struct Tuned {
    Plan *plan;
    const Plan *whole;
} Tuned;

static int run_candidate(Matmuls *matmuls, const Tuned *tuned, cudaStream_t stream)
{
    Plan *plan = tuned->plan;
    if (!plan->is_found) {
        matmuls_run_in_parts(matmuls, tuned->whole ? &tuned->whole->example : &plan->example, stream);
    } else if (matmuls_run(matmuls, plan, &plan->example, stream) != 0) {
        return -1;
    } else if (tuned->whole) {
        matmuls_sum_rows(&tuned->whole->example, stream);
    }
    return 0;
}

/* Milliseconds of one call, as a mean over some; infinitely many where the library refuses the operands. */
static float call_ms(Matmuls *matmuls, const Tuned *tuned, int calls, const Timer *timer)
{
    float ms;
    int is_refused = 0;
    CUDA_CHECK(cudaEventRecord(timer->begin, timer->stream));
    for (int i = 0; i < calls; i++) {
        is_refused |= run_candidate(matmuls, tuned, timer->stream) != 0;
    }
    CUDA_CHECK(cudaEventRecord(timer->end, timer->stream));
    CUDA_CHECK(cudaEventSynchronize(timer->end));
    CUDA_CHECK(cudaEventElapsedTime(&ms, timer->begin, timer->end));
    return is_refused ? INFINITY : ms / (float)calls;
}

/* The quickest of the candidates, by the best of their rounds, which take turns so that a clock that changes
 * does so for all. The first, unless another is clearly quicker; also when time is up. */
static int quickest(Matmuls *matmuls, const Tuned *tuned, const Candidate *candidates, int count,
                    double deadline_ms, const Timer *timer)
{
    float best_ms[CANDIDATES_MAX], warm_ms = ROUND_MS;
    int calls = 1;
    for (int round = -WARM_UP_ROUNDS; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            matmuls_take(tuned->plan, &candidates[i]);
            float ms = call_ms(matmuls, tuned, calls, timer);
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

/* A product with sums of rows, one with GELU, and a plain one are chosen one for another. */
enum { PARTS_MAX = 3 };

/* Choose for one plan, and write the choice down. One of which no algorithm can be made again stays as it
 * is: the library proposes it again. Kernels of our own follow a product whose algorithm is chosen before
 * them. */
static void tune_plan(Matmuls *matmuls, const Tuned *tuned, double deadline_ms, const Timer *timer)
{
    Candidate candidates[CANDIDATES_MAX];
    Plan *plan = tuned->plan;
    const ProductKey *key = &plan->key;
    if (matmuls->chosen.count + (int)PARTS_MAX > (int)PLANS_MAX || plans_find(&matmuls->chosen, key)) {
        return;
    }
    int count = matmuls_candidates(candidates, matmuls, plan), best = 0;
    if (key->epilogue >= MATMUL_BIAS_GELU || (key->epilogue == MATMUL_BIAS && !plan->is_found)) {
        Matmul simpler = matmuls_simpler(&plan->example);
        Tuned part = {matmuls_plan_of(matmuls, &simpler),
                      key->epilogue == MATMUL_GELU_BACKWARD_BIAS ? plan : NULL};
        tune_plan(matmuls, &part, deadline_ms, timer);
    }
    if (count == 0) {
        return;
    }
    if (count > 1 && clock_ms() < deadline_ms) {
        fill(plan->example.a, (int64_t)key->M * key->K, timer->stream);
        fill(plan->example.b, (int64_t)key->K * key->N, timer->stream);
        best = quickest(matmuls, tuned, candidates, count, deadline_ms, timer);
    }
    matmuls_take(plan, &candidates[best]);
    write_down(matmuls, plan, &candidates[best]);
}

/* Keep the choices for products that are used, and for those by which they are computed in parts. */
static void forget_unused(Matmuls *matmuls)
{
    Plans *chosen = &matmuls->chosen;
    int is_needed[PLANS_MAX] = {}, kept = 0, count = matmuls_kept(matmuls);
    for (int i = 0; i < count; i++) {
        Plan *plan = matmuls->plans[i].uses > 0 ? &matmuls->plans[i] : NULL;
        for (int part = 0; plan && part < PARTS_MAX; part++) {
            const ProductPlan *choice = plans_find(chosen, &plan->key);
            if (choice) {
                is_needed[choice - chosen->plans] = 1;
            }
            Matmul simpler = matmuls_simpler(&plan->example);
            plan = plan->is_found ? NULL : matmuls_plan_of(matmuls, &simpler);
        }
    }
    for (int i = 0; i < chosen->count; i++) {
        chosen->plans[kept] = chosen->plans[i];
        kept += is_needed[i];
    }
    chosen->count = kept;
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
        Tuned tuned = {&matmuls->plans[next], NULL};
        if (tuned.plan->uses > 0) {
            tune_plan(matmuls, &tuned, deadline_ms, &timer);
        }
    }
    forget_unused(matmuls);
    CUDA_CHECK(cudaEventDestroy(timer.begin));
    CUDA_CHECK(cudaEventDestroy(timer.end));
    memory_free(matmuls->text);
    matmuls->text = plans_to_text(&matmuls->chosen);
}
