#include "llmc/run/evaluate.h"

#include <math.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/comm/comm.h"
#include "llmc/data/sample_index.h"
#include "llmc/run/stop.h"

/* One split of one evaluation: `windows` windows of a set, as full batches and a rest. */
typedef struct Split {
    const DataSet *set;
    int64_t windows;
    int is_sampled; /* else in file order */
} Split;

enum { SUM_LOSS, SUM_BAD, SUM_STOPPED, SUM_FAILED, SUMS }; /* what ranks add up */

static int64_t window_at(const Split *split, int64_t n)
{
    const uint64_t fixed_seed = 0;
    return split->is_sampled ? sample_index((uint64_t)n, data_set_windows(split->set), fixed_seed, 1) : n;
}

/* Batch `batch` of a split: rows of windows, each with the same weight. The windows of the rest that do not
 * fill a batch come one to a batch, in every row, so that the mean over the rows is that window's loss.
 * Returns how many windows the batch stands for, or -1 with *error. */
static int fill_batch(int32_t *tokens, int32_t *targets, const EvaluateArgs *args, const Split *split,
                      int64_t batch, Error *error)
{
    int B = args->batch_size;
    int T = args->sequence_tokens;
    int64_t full_batches = split->windows / B;
    int is_full = batch < full_batches;
    int vocab_size = args->model->table.shape.vocab_size;
    for (int b = 0; b < B; b++) {
        int64_t n = is_full ? batch * B + b : full_batches * B + (batch - full_batches);
        if (!is_full && b > 0) {
            memcpy(tokens + (int64_t)b * T, tokens, (size_t)T * sizeof(int32_t));
            memcpy(targets + (int64_t)b * T, targets, (size_t)T * sizeof(int32_t));
        } else if (data_set_window(split->set, window_at(split, n), vocab_size, tokens + (int64_t)b * T,
                                   targets + (int64_t)b * T, error) != 0) {
            return -1;
        }
    }
    return is_full ? B : 1;
}

/* Sum this rank's share of a split: loss in fixed point, each window weighted by 1/windows. */
static int sum_split(int64_t sums[SUMS], const EvaluateArgs *args, const Split *split, Error *error)
{
    int64_t batches = split->windows / args->batch_size + split->windows % args->batch_size;
    int64_t first = args->rank * batches / args->rank_count;
    int64_t end = (args->rank + 1) * batches / args->rank_count;
    size_t batch_tokens = (size_t)args->batch_size * (size_t)args->sequence_tokens;
    int32_t *tokens = memory_alloc(2 * batch_tokens, sizeof(int32_t), "evaluation batch");
    int status = 0;
    memset(sums, 0, SUMS * sizeof(sums[0]));
    for (int64_t batch = first; batch < end && status == 0; batch++) {
        if (stop_requested()) {
            sums[SUM_STOPPED] = 1;
            break;
        }
        int windows = fill_batch(tokens, tokens + batch_tokens, args, split, batch, error);
        if (windows < 0) {
            status = -1;
            break;
        }
        RunModel *model = args->model;
        double loss = model->backend->evaluate(model->model, tokens, tokens + batch_tokens, NULL);
        if (loss >= 0 && loss < EXACT_LIMIT) { /* false for a NaN */
            sums[SUM_LOSS] += llrint(loss * windows / (double)split->windows * EXACT_SCALE);
        } else {
            sums[SUM_BAD]++;
        }
    }
    memory_free(tokens);
    return status;
}

/* Returns -1 with *error at the ranks that failed, 0 when stopped, 1 with the loss. */
static int evaluate_split(double *loss, const EvaluateArgs *args, const Split *split, Error *error)
{
    int64_t sums[SUMS];
    if (sum_split(sums, args, split, error) != 0) {
        sums[SUM_FAILED] = 1; /* all ranks learn of it here: none waits for this one */
    }
    comm_sum_int64(sums, SUMS);
    if (sums[SUM_FAILED] > 0) {
        return -1;
    }
    *loss = sums[SUM_BAD] > 0 ? NAN : (double)sums[SUM_LOSS] / EXACT_SCALE;
    return sums[SUM_STOPPED] == 0;
}

int evaluate(EvaluateResult *result, const EvaluateArgs *args, Error *error)
{
    memset(result, 0, sizeof(*result));
    error->text[0] = '\0';
    int64_t val_windows = data_set_windows(args->val_set);
    int64_t train_windows = args->train_set ? data_set_windows(args->train_set) : 0;
    int64_t wanted = args->iters > 0 ? args->iters * args->batch_size : val_windows;
    Split val = {args->val_set, wanted < val_windows ? wanted : val_windows, 0};
    Split train = {args->train_set, wanted < train_windows ? wanted : train_windows, 1};
    int status = 1;
    result->train_loss = NAN;
    if (args->train_set) {
        status = evaluate_split(&result->train_loss, args, &train, error);
    }
    if (status == 1) {
        status = evaluate_split(&result->val_loss, args, &val, error);
    }
    result->is_complete = status == 1;
    return status < 0 ? -1 : 0;
}
