/* Where the time of an update goes, on this rank and on the slowest: a straggler is seen, and what it does.
 *
 * Before each update ranks ask each other anyway whether to stop. Each puts the times of its last update into
 * the same reduction, so this costs 40 bytes a rank and no collective of its own.
 */
#ifndef LLMC_RUN_STEP_TIMES_H
#define LLMC_RUN_STEP_TIMES_H

#include "llmc/run/run_model.h"

/* Indices of the device's marks of a step: its begin, two around its update, two around each slot, then those
 * of the trace. */
enum { MARK_BEGIN = 0, MARK_UPDATE = 1, MARK_SLOTS = 3 };

/* Milliseconds of one update on one rank. */
typedef struct StepTimes {
    double data_ms;    /* waited for batches */
    double forward_ms; /* up to the last layer norm; 0 where the device does not tell */
    double compute_ms; /* forward and backward of its slots */
    double comm_ms;    /* all-reduces, summed over buckets */
    double exposed_ms; /* waited for them after backward */
    double update_ms;
} StepTimes;

/* What a rank did itself, the others not waited for. */
double step_times_busy_ms(const StepTimes *times);

/* Once update `step` is over. */
void step_times_read(StepTimes *times, const RunModel *model, int64_t step, int slot_count, double data_ms,
                     double forward_ms, const ReducerTimes *reducer);

/* The slowest rank of update `iter`. */
typedef struct Slowest {
    int rank; /* -1: not known */
    int64_t iter;
    StepTimes times; /* without comm_ms and exposed_ms */
} Slowest;

/* Owned by the caller: stragglers_init, stragglers_release. */
typedef struct Stragglers {
    int rank, rank_count;
    int64_t *told;     /* (1 + STRAGGLER_FIELDS * rank_count) */
    int64_t last_iter; /* of this rank's last update, -1 for none */
    StepTimes last;
    Slowest slowest;
} Stragglers;

enum { STRAGGLER_FIELDS = 5 };

void stragglers_init(Stragglers *stragglers, int rank, int rank_count);
void stragglers_release(Stragglers *stragglers); /* accepts a zeroed one */
void stragglers_note(Stragglers *stragglers, int64_t iter, const StepTimes *times);

/* Collective: the largest reason of all ranks. With tells_times, the same on all ranks, `slowest` is then
 * that of the last update. */
int64_t stragglers_agree(Stragglers *stragglers, int64_t reason, int tells_times);

#endif
