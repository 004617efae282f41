#include "llmc/compute/cpu/classifier.h"

static void classifier_row(const Classifier *a, int64_t row)
{
    float *logits = a->logits + row * a->Vp;
    float maximum = -INFINITY;
#pragma omp simd reduction(max : maximum)
    for (int i = 0; i < a->V; i++) {
        maximum = logits[i] > maximum ? logits[i] : maximum;
    }
    float target_logit = logits[a->targets[row]];
    float sum = 0;
    if (!a->d_logits.data) {
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < a->V; i++) {
            sum += exp_of(logits[i] - maximum);
        }
    } else {
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < a->V; i++) {
            logits[i] = exp_of(logits[i] - maximum);
            sum += logits[i];
        }
        float factor = a->scale / sum;
        for (int i = 0; i < a->V; i++) {
            logits[i] *= factor;
        }
        logits[a->targets[row]] -= a->scale;
        memset(logits + a->V, 0, (size_t)(a->Vp - a->V) * sizeof(float));
        tensor_store(a->d_logits, row * a->Vp, logits, a->Vp);
    }
    a->losses[row] = logf(sum) + (maximum - target_logit);
}

void classifier_rows(const Classifier *args)
{
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < args->rows; row++) {
        classifier_row(args, row);
    }
}
