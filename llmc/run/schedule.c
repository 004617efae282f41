#include "llmc/run/schedule.h"

#include <math.h>

#include "llmc/base/math.h"

#define WSD_DECAY_FRACTION 0.2

/* How far iter is on its way from begin to end, 0 to 1. */
static double progress(int64_t iter, double begin, double end)
{
    if ((double)iter >= end) {
        return 1.0;
    }
    return (double)iter <= begin ? 0.0 : ((double)iter - begin) / (end - begin);
}

double schedule_learning_rate(const Options *options, int64_t iter)
{
    if (iter < options->warmup_iters) {
        return options->learning_rate * (double)(iter + 1) / (double)(options->warmup_iters + 1);
    }
    double warm = (double)options->warmup_iters;
    double end = (double)options->lr_decay_iters;
    double weight = 1.0; /* of learning_rate against min_lr */
    switch ((LrSchedule)options->lr_schedule) {
    case LR_COSINE:
        weight = 0.5 * (1.0 + math_cos_pi(progress(iter, warm, end)));
        break;
    case LR_LINEAR:
        weight = 1.0 - progress(iter, warm, end);
        break;
    case LR_CONSTANT:
        break;
    case LR_WSD:
        weight = 1.0 - sqrt(progress(iter, end - WSD_DECAY_FRACTION * end, end));
        break;
    }
    return weight >= 1.0 ? options->learning_rate
                         : options->min_lr + weight * (options->learning_rate - options->min_lr);
}
