#include "llmc/compute/cpu/classifier.h"

#include "llmc/base/math.h"
#include "llmc/compute/cpu/sums.h"

/* values = exp(values - maximum), piece by piece, each of which is summed while it is in the first cache. */
static float exp_and_sum(float *values, float maximum, int count)
{
    enum { PIECE = 32 * SUM_LANES };
    Sum sum = {0};
    int added = 0;
    for (int first = 0; first < count; first += PIECE) {
        int end = count - first < PIECE ? count : first + PIECE;
        for (int i = first; i < end; i++) {
            values[i] = exp_of(values[i] - maximum);
        }
        added += (int)sum_add(&sum, values + first, end - first);
    }
    return sum_fold(&sum, values + added, count - added);
}

static void classifier_row(const Classifier *a, int64_t row)
{
    float *logits = a->logits + row * a->Vp;
    float maximum = max_of(logits, a->V, -INFINITY);
    float target_logit = logits[a->targets[row]];
    float sum = exp_and_sum(logits, maximum, a->V);
    if (a->d_logits.data) {
        float factor = a->scale / sum;
        for (int i = 0; i < a->V; i++) {
            logits[i] *= factor;
        }
        logits[a->targets[row]] -= a->scale;
        memset(logits + a->V, 0, (size_t)(a->Vp - a->V) * sizeof(float));
        tensor_store(a->d_logits, row * a->Vp, logits, a->Vp);
    }
    a->losses[row] = (float)math_log(sum) + (maximum - target_logit);
}

void classifier_rows(const Classifier *args)
{
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < args->rows; row++) {
        classifier_row(args, row);
    }
}
