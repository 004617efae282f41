/* The line of an update, on the console and in log.jsonl. */
#include <inttypes.h>

#include "llmc/base/format.h"
#include "llmc/run/json_text.h"
#include "llmc/run/log_lines.h"

/* TensorBoard's curves; what is not measured has none. */
static void add_step_points(Log *log, const LogStep *step)
{
    TensorBoardValue values[] = {{"train/loss", step->loss},
                                 {"train/lr", step->learning_rate},
                                 {"train/norm", step->norm},
                                 {"speed/ms", step->ms},
                                 {"speed/tok_per_s", step->tokens_per_second},
                                 {"speed/mfu", step->mfu},
                                 {"comm/comm_ms", step->times.comm_ms},
                                 {"comm/exposed_ms", step->times.exposed_ms}};
    enum { ALWAYS = 5, ALL = sizeof(values) / sizeof(values[0]) };
    int count = ALWAYS;
    for (int i = ALWAYS; i < ALL; i++) {
        int is_measured = i == ALWAYS ? step->mfu > 0 : step->times.comm_ms > 0;
        if (is_measured) {
            values[count++] = values[i];
        }
    }
    tensorboard_add(&log->board, step->iter, values, count);
}

static int has_slowest(const LogStep *step)
{
    return step->slowest_host && step->slowest_host[0];
}

/* Of several ranks also where the time went, and who was the slowest in the update before. */
static void print_epoch_and_times(FILE *console, const LogStep *step)
{
    const StepTimes *times = &step->times;
    if (step->epoch > 0) {
        fprintf(console, ", epoch %.2f", step->epoch);
    }
    if (!has_slowest(step)) {
        return;
    }
    if (times->forward_ms > 0) {
        fprintf(console, ", forward %.0f, backward %.0f", times->forward_ms,
                times->compute_ms - times->forward_ms);
    } else {
        fprintf(console, ", compute %.0f", times->compute_ms);
    }
    fprintf(console, ", exposed %.0f, update %.0f, data %.0fms, slowest rank %d (%s) %.0fms",
            times->exposed_ms, times->update_ms, times->data_ms, step->slowest.rank, step->slowest_host,
            step_times_busy_ms(&step->slowest.times));
}

void log_step(Log *log, const LogStep *step)
{
    if (!log_has_console(log)) {
        return;
    }
    const StepTimes *times = &step->times;
    const Slowest *slowest = &step->slowest;
    char rate[NUMBER_BYTES];
    fprintf(log->console, "iter %" PRId64 ": loss %.4f, lr %.2e, norm %.2f, time %.2fms, %s tok/s",
            step->iter, step->loss, step->learning_rate, step->norm, step->ms,
            format_count(rate, (int64_t)(step->tokens_per_second + 0.5)));
    if (step->mfu > 0) {
        fprintf(log->console, ", mfu %.2f%%", 100 * step->mfu);
    }
    print_epoch_and_times(log->console, step);
    log_end_console_line(log, step->left_ms);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"step\",\"iter\":%" PRId64, step->iter);
        log_add_number(log, "loss", (float)step->loss);
        log_add_number(log, "lr", step->learning_rate);
        log_add_number(log, "norm", (float)step->norm);
        log_add_number(log, "ms", step->ms);
        log_add_number(log, "tok_per_s", step->tokens_per_second);
        log_add_number(log, "epoch", step->epoch);
        log_add_number(log, "data_ms", times->data_ms);
        if (times->forward_ms > 0) {
            log_add_number(log, "forward_ms", times->forward_ms);
            log_add_number(log, "backward_ms", times->compute_ms - times->forward_ms);
        }
        log_add_number(log, "compute_ms", times->compute_ms);
        log_add_number(log, "comm_ms", times->comm_ms);
        log_add_number(log, "exposed_ms", times->exposed_ms);
        log_add_number(log, "update_ms", times->update_ms);
        if (step->mfu > 0) {
            log_add_number(log, "mfu", step->mfu);
        }
        if (has_slowest(step)) {
            fprintf(log->file, ",\"slowest_rank\":%d,\"slowest_host\":", slowest->rank);
            json_print_string(log->file, step->slowest_host);
            log_add_number(log, "slowest_data_ms", slowest->times.data_ms);
            if (slowest->times.forward_ms > 0) {
                log_add_number(log, "slowest_forward_ms", slowest->times.forward_ms);
                log_add_number(log, "slowest_backward_ms",
                               slowest->times.compute_ms - slowest->times.forward_ms);
            }
            log_add_number(log, "slowest_compute_ms", slowest->times.compute_ms);
            log_add_number(log, "slowest_update_ms", slowest->times.update_ms);
        }
        log_end_line(log);
    }
    add_step_points(log, step);
}
