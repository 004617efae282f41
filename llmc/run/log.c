#define _GNU_SOURCE
#include "llmc/run/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llmc/base/format.h"
#include "llmc/base/math.h"
#include "llmc/base/memory.h"
#include "llmc/run/json_text.h"
#include "llmc/run/log_lines.h"
#include "llmc/run/status_line.h"

static int open_file(const char *path, Error *error)
{
    return file_open(path, O_RDWR | O_APPEND | O_CREAT, error);
}

int log_init(Log *log, const char *out_dir, Error *error)
{
    memset(log, 0, sizeof(*log));
    log->console = stdout;
    if (!out_dir) {
        return 0;
    }
    if (folder_create(out_dir, error) != 0) {
        return error_prefix(error, "out_dir");
    }
    if (path_join(log->path, out_dir, "log.jsonl", error) != 0) {
        return -1;
    }
    Error reason;
    log->descriptor = open_file(log->path, &reason);
    if (log->descriptor < 0) {
        return error_set(error, "%s; choose another out_dir", reason.text);
    }
    struct stat status;
    if (fstat(log->descriptor, &status) != 0) {
        int cause = errno;
        close(log->descriptor);
        return error_set_system(error, cause, "%s: cannot tell its size", log->path);
    }
    log->waiting = memory_alloc(LOG_WAITING_BYTES, 1, "events");
    log->file = open_memstream(&log->event, &log->event_bytes);
    CHECK(log->file, "out of memory");
    /* A run that was killed may have left half a line: it must not swallow the next one. */
    char last;
    if (status.st_size > 0 && pread(log->descriptor, &last, 1, status.st_size - 1) == 1 && last != '\n') {
        log->waiting[log->waiting_bytes++] = '\n';
    }
    return 0;
}

/* Somebody may have removed or replaced the file: what is still written to it would be lost. 0, or -1 with
 * errno while there can be none. */
static int follow_file(Log *log)
{
    struct stat named, open_one;
    int is_gone = stat(log->path, &named) != 0
                      ? errno == ENOENT || errno == ENOTDIR
                      : fstat(log->descriptor, &open_one) == 0 &&
                            (named.st_ino != open_one.st_ino || named.st_dev != open_one.st_dev);
    if (!is_gone) {
        return 0;
    }
    Error error;
    int descriptor = open_file(log->path, &error);
    if (descriptor < 0) {
        return -1;
    }
    close(log->descriptor);
    log->descriptor = descriptor;
    error_print("%s: was removed or replaced while in use; the log goes on in a new file", log->path);
    char *end = log->is_half ? memchr(log->waiting, '\n', log->waiting_bytes) : NULL;
    if (end) { /* its begin is gone */
        log->waiting_bytes -= (size_t)(end + 1 - log->waiting);
        memmove(log->waiting, end + 1, log->waiting_bytes);
        log->is_half = 0;
        log->left_out++;
    }
    return 0;
}

/* As much as there is room for. 0, or -1 with errno. */
static int write_waiting(Log *log)
{
    if (follow_file(log) != 0) {
        return -1;
    }
    while (log->waiting_bytes > 0) {
        ssize_t written = write(log->descriptor, log->waiting, log->waiting_bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return -1;
        }
        log->is_half = log->waiting[written - 1] != '\n';
        log->waiting_bytes -= (size_t)written;
        memmove(log->waiting, log->waiting + written, log->waiting_bytes);
    }
    return 0;
}

/* Ends an event, and writes it. A full disk does not stop training. */
void log_end_line(Log *log)
{
    fputs("}\n", log->file);
    fflush(log->file);
    if (log->event_bytes <= LOG_WAITING_BYTES - log->waiting_bytes) {
        memcpy(log->waiting + log->waiting_bytes, log->event, log->event_bytes);
        log->waiting_bytes += log->event_bytes;
    } else {
        log->left_out++;
    }
    rewind(log->file);
    int has_failed = write_waiting(log) != 0;
    if (has_failed && !log->is_failed) {
        error_print("%s: cannot write: %s; the run goes on, and keeps events until there is room", log->path,
                    strerror(errno));
    } else if (!has_failed && log->left_out > 0) {
        error_print("%s: written again; %" PRId64 " events are left out", log->path, log->left_out);
        log->left_out = 0;
    }
    log->is_failed = has_failed;
}

void log_release(Log *log)
{
    tensorboard_release(&log->board);
    if (log->file) {
        if (log->waiting_bytes > 0 && write_waiting(log) != 0) {
            error_print("%s: cannot write: %s; the last events are lost", log->path, strerror(errno));
        }
        fclose(log->file);
        free(log->event);
        memory_free(log->waiting);
        close(log->descriptor);
    }
    memset(log, 0, sizeof(*log));
}

/* Before a line that stays. */
int log_has_console(const Log *log)
{
    status_line_clear();
    return log->console != NULL;
}

void log_add_number(Log *log, const char *name, double value)
{
    fprintf(log->file, ",\"%s\":", name);
    json_print_number(log->file, value);
}

char *format_duration(char *buffer, double ms)
{
    long seconds = ms < 0 ? 0 : ms > 1e14 ? 100000000000 : (long)(ms / 1e3 + 0.5);
    if (seconds < 60) {
        snprintf(buffer, NUMBER_BYTES, "%lds", seconds);
    } else if (seconds < 3600) {
        snprintf(buffer, NUMBER_BYTES, "%ldm %02lds", seconds / 60, seconds % 60);
    } else if (seconds < 48 * 3600) {
        snprintf(buffer, NUMBER_BYTES, "%ldh %02ldm", seconds / 3600, seconds / 60 % 60);
    } else {
        snprintf(buffer, NUMBER_BYTES, "%ldd %02ldh", seconds / 86400, seconds / 3600 % 24);
    }
    return buffer;
}

void log_end_console_line(Log *log, double left_ms)
{
    char left[NUMBER_BYTES];
    if (left_ms >= 0) {
        fprintf(log->console, ", %s left", format_duration(left, left_ms));
    }
    putc('\n', log->console);
    fflush(log->console);
}

void log_start(Log *log, const LogStart *start)
{
    if (!log->file) {
        return;
    }
    fputs("{\"event\":\"start\",\"version\":", log->file);
    json_print_string(log->file, start->version);
    fputs(",\"backend\":", log->file);
    json_print_string(log->file, start->backend);
    if (start->kernel) {
        fputs(",\"kernel\":", log->file);
        json_print_string(log->file, start->kernel);
    }
    fprintf(log->file,
            ",\"ranks\":%d,\"parameters\":%" PRId64 ",\"data\":\"%016" PRIx64 "\",\"options\":", start->ranks,
            start->parameters, start->data_fingerprint);
    options_print_json(start->options, log->file);
    log_end_line(log);
}

void log_reducer(Log *log, int64_t iter, const char *name)
{
    if (!log_has_console(log)) {
        return;
    }
    fprintf(log->console, "gradients: summed over ranks by %s\n", name);
    fflush(log->console);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"reducer\",\"iter\":%" PRId64 ",\"name\":", iter);
        json_print_string(log->file, name);
        log_end_line(log);
    }
}

void log_notice(Log *log, int64_t iter, int rank, const char *text)
{
    if (!log->console) {
        printf("notice: rank %d: %s\n", rank, text);
        fflush(stdout);
        return;
    }
    fprintf(log->console, "notice: %s\n", text);
    fflush(log->console);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"notice\",\"iter\":%" PRId64 ",\"text\":", iter);
        json_print_string(log->file, text);
        log_end_line(log);
    }
}

/* One line of a text, as JSON. Returns the line after it. */
static const char *print_line(FILE *out, const char *text)
{
    char line[256];
    size_t bytes = strcspn(text, "\n");
    snprintf(line, sizeof(line), "%.*s", (int)bytes, text);
    json_print_string(out, line);
    return text + bytes + (text[bytes] == '\n');
}

void log_plans(Log *log, int64_t iter, const char *text, int is_repeated)
{
    if (!log_has_console(log)) {
        return;
    }
    int products = -1;
    for (const char *c = text; *c; c++) {
        products += *c == '\n';
    }
    fprintf(log->console, "plans: %d products %s %.*s\n", products,
            is_repeated ? "as in the snapshot, nothing timed, on" : "timed on", (int)strcspn(text, "\n"),
            text);
    fflush(log->console);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"plans\",\"iter\":%" PRId64 ",\"repeated\":%s,\"device\":", iter,
                is_repeated ? "true" : "false");
        text = print_line(log->file, text);
        fputs(",\"plans\":[", log->file);
        for (const char *comma = ""; *text; comma = ",") {
            fputs(comma, log->file);
            text = print_line(log->file, text);
        }
        putc(']', log->file);
        log_end_line(log);
    }
}

static void add_eval_points(Log *log, int64_t iter, double train_loss, double val_loss)
{
    tensorboard_add(&log->board, iter,
                    (TensorBoardValue[]){{"eval/train_loss", train_loss}, {"eval/val_loss", val_loss}}, 2);
}

static void add_hellaswag_point(Log *log, int64_t iter, double accuracy)
{
    tensorboard_add(&log->board, iter, &(TensorBoardValue){"eval/hellaswag", accuracy}, 1);
}

void log_skip(Log *log, int64_t iter, const char *reason)
{
    if (!log_has_console(log)) {
        return;
    }
    fprintf(log->console, "iter %" PRId64 ": update skipped: %s\n", iter, reason);
    fflush(log->console);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"skip\",\"iter\":%" PRId64 ",\"reason\":", iter);
        json_print_string(log->file, reason);
        log_end_line(log);
    }
}

void log_eval(Log *log, int64_t iter, double train_loss, double val_loss, double left_ms)
{
    if (!log_has_console(log)) {
        return;
    }
    fprintf(log->console, "step %" PRId64 ": train loss %.4f, val loss %.4f", iter, train_loss, val_loss);
    log_end_console_line(log, left_ms);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"eval\",\"iter\":%" PRId64, iter);
        log_add_number(log, "train_loss", (float)train_loss);
        log_add_number(log, "val_loss", (float)val_loss);
        log_end_line(log);
    }
    add_eval_points(log, iter, train_loss, val_loss);
}

void log_eval_only(Log *log, int64_t iter, int has_train, double train_loss, double val_loss)
{
    if (!log_has_console(log)) {
        return;
    }
    double perplexity = math_exp(val_loss);
    if (has_train) {
        fprintf(log->console, "step %" PRId64 ": train loss %.4f, val loss %.4f\n", iter, train_loss,
                val_loss);
    }
    fprintf(log->console, "val loss %.4f, perplexity %.2f\n", val_loss, perplexity);
    fflush(log->console);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"eval\",\"iter\":%" PRId64, iter);
        if (has_train) {
            log_add_number(log, "train_loss", (float)train_loss);
        }
        log_add_number(log, "val_loss", (float)val_loss);
        log_add_number(log, "perplexity", perplexity);
        log_end_line(log);
    }
    add_eval_points(log, iter, train_loss, val_loss);
}

void log_hellaswag(Log *log, int64_t iter, int64_t correct, int64_t items, double loss)
{
    if (!log_has_console(log)) {
        return;
    }
    double accuracy = (double)correct / (double)items;
    fprintf(log->console, "step %" PRId64 ": hellaswag %.4f (%" PRId64 "/%" PRId64 ")\n", iter, accuracy,
            correct, items);
    fflush(log->console);
    if (log->file) {
        fprintf(log->file,
                "{\"event\":\"hellaswag\",\"iter\":%" PRId64 ",\"correct\":%" PRId64 ",\"items\":%" PRId64,
                iter, correct, items);
        log_add_number(log, "accuracy", accuracy);
        log_add_number(log, "loss", (float)loss);
        log_end_line(log);
    }
    add_hellaswag_point(log, iter, accuracy);
}

void log_snapshot(Log *log, int64_t iter, const char *file, uint64_t bytes, double stall_ms, double write_ms)
{
    if (!log_has_console(log)) {
        return;
    }
    char size[NUMBER_BYTES];
    fprintf(log->console, "snapshot %s: %s bytes, %.0fms\n", file, format_count(size, (int64_t)bytes),
            write_ms);
    fflush(log->console);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"snapshot\",\"iter\":%" PRId64 ",\"file\":", iter);
        json_print_string(log->file, file);
        fprintf(log->file, ",\"bytes\":%" PRIu64, bytes);
        log_add_number(log, "stall_ms", stall_ms);
        log_add_number(log, "write_ms", write_ms);
        log_end_line(log);
    }
}

void log_snapshot_failed(Log *log, int64_t iter, const char *file, const char *reason)
{
    if (log->console && log->file) {
        fprintf(log->file, "{\"event\":\"snapshot_failed\",\"iter\":%" PRId64 ",\"file\":", iter);
        json_print_string(log->file, file);
        fputs(",\"reason\":", log->file);
        json_print_string(log->file, reason);
        log_end_line(log);
    }
}

void log_dropped(Log *log, int64_t iter, const char *file, const char *reason)
{
    if (!log_has_console(log)) {
        return;
    }
    fprintf(log->console, "snapshot %s: not kept: %s\n", file, reason);
    fflush(log->console);
    if (log->file) {
        fprintf(log->file, "{\"event\":\"dropped\",\"iter\":%" PRId64 ",\"file\":", iter);
        json_print_string(log->file, file);
        fputs(",\"reason\":", log->file);
        json_print_string(log->file, reason);
        log_end_line(log);
    }
}

void log_end(Log *log, int64_t iter, uint64_t weights_hash, const char *reason)
{
    if (!log_has_console(log)) {
        return;
    }
    if (log->file) {
        fprintf(log->file,
                "{\"event\":\"end\",\"iter\":%" PRId64 ",\"weights\":\"%016" PRIx64 "\",\"reason\":", iter,
                weights_hash);
        json_print_string(log->file, reason);
        log_end_line(log);
    }
    fprintf(log->console, "weights %016" PRIx64 "\n", weights_hash);
    fflush(log->console);
}

void log_open_tensorboard(Log *log, const char *out_dir, int64_t first_step)
{
    double train_loss, val_loss, accuracy;
    tensorboard_init(&log->board, out_dir, first_step);
    if (first_step > 0 && log_find_eval(&train_loss, &val_loss, out_dir, first_step)) {
        add_eval_points(log, first_step, train_loss, val_loss);
    }
    if (first_step > 0 && log_find_hellaswag(&accuracy, out_dir, first_step)) {
        add_hellaswag_point(log, first_step, accuracy);
    }
}
