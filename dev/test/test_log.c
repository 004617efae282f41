/* The log: lines that programs read back, lines for people, and what a killed run left behind. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/test/log_fixture.h"

static void test_step(void **state)
{
    (void)state;
    Captured captured;
    remove_log();
    open_captured(&captured);
    float loss = 4.08630419f;
    LogStep step = {.iter = 10,
                    .loss = loss,
                    .learning_rate = 6e-4,
                    .norm = 1.234f,
                    .ms = 561.94,
                    .tokens_per_second = 874512.4,
                    .mfu = 0.3,
                    .left_ms = -1};
    log_step(&captured.log, &step);
    step.mfu = 0;
    step.left_ms = 3723000;
    step.iter = 11;
    log_step(&captured.log, &step);
    close_captured(&captured);
    assert_string_equal(
        captured.console,
        "iter 10: loss 4.0863, lr 6.00e-04, norm 1.23, time 561.94ms, 874,512 tok/s, mfu 30.00%\n"
        "iter 11: loss 4.0863, lr 6.00e-04, norm 1.23, time 561.94ms, 874,512 tok/s, 1h 02m left\n");
    free(captured.console);
    json_t *json = read_line(0);
    assert_string_equal(json_string_value(json_object_get(json, "event")), "step");
    assert_int_equal((int)number_of(json, "iter"), 10);
    assert_true((float)number_of(json, "loss") == loss);
    assert_true((float)number_of(json, "norm") == 1.234f);
    assert_true(number_of(json, "lr") == 6e-4);
    assert_true(number_of(json, "ms") == 561.94);
    assert_true(number_of(json, "mfu") == 0.3);
    assert_true(number_of(json, "tok_per_s") > 874512);
    json_decref(json);
    json = read_line(1);
    assert_null(json_object_get(json, "mfu"));
    assert_null(json_object_get(json, "slowest_rank"));
    json_decref(json);
}

static void check_start(void)
{
    json_t *json = read_line(0);
    assert_string_equal(json_string_value(json_object_get(json, "version")), "1.2.3");
    assert_string_equal(json_string_value(json_object_get(json, "backend")), "cpu x86-64-v4-amx");
    assert_string_equal(json_string_value(json_object_get(json, "kernel")), "amx");
    assert_string_equal(json_string_value(json_object_get(json, "data")), "0000000000000123");
    assert_int_equal((int)number_of(json, "ranks"), 4);
    assert_int_equal((int)number_of(json, "parameters"), 124439808);
    assert_true(number_of(json_object_get(json, "options"), "batch_size") == 12);
    json_decref(json);
}

static void check_plans(void)
{
    json_t *json = read_line(1);
    assert_string_equal(json_string_value(json_object_get(json, "event")), "plans");
    assert_int_equal((int)number_of(json, "iter"), 7);
    assert_true(json_is_false(json_object_get(json, "repeated")));
    assert_string_equal(json_string_value(json_object_get(json, "device")), "a \"device\"");
    assert_int_equal(json_array_size(json_object_get(json, "plans")), 2);
    assert_string_equal(json_string_value(json_array_get(json_object_get(json, "plans"), 1)), "second");
    json_decref(json);
    json = read_line(2);
    assert_true(json_is_true(json_object_get(json, "repeated")));
    assert_int_equal(json_array_size(json_object_get(json, "plans")), 0);
    json_decref(json);
}

static void test_other_events(void **state)
{
    (void)state;
    Captured captured;
    remove_log();
    open_captured(&captured);
    Options options;
    options_set_defaults(&options);
    LogStart start = {.version = "1.2.3",
                      .backend = "cpu x86-64-v4-amx",
                      .kernel = "amx",
                      .ranks = 4,
                      .parameters = 124439808,
                      .data_fingerprint = 0x123,
                      .options = &options};
    log_start(&captured.log, &start);
    log_plans(&captured.log, 7, "a \"device\"\nfirst\nsecond\n", 0);
    log_plans(&captured.log, 7, "a device\n", 1);
    log_eval(&captured.log, 2000, 3.5, NAN, 59499);
    log_snapshot(&captured.log, 1000, "step-00001000.snap", 1234567, 1.5, 20.5);
    log_skip(&captured.log, 77, "gradient not finite");
    log_reducer(&captured.log, 5, "NCCL 2.27.3");
    log_snapshot_failed(&captured.log, 2000, "step-00002000.snap", "no \"room\"");
    log_end(&captured.log, 3000, 0x0123456789abcdef, "done");
    close_captured(&captured);
    assert_string_equal(captured.console, "plans: 2 products timed on a \"device\"\n"
                                          "plans: 0 products as in the snapshot, nothing timed, on a device\n"
                                          "step 2000: train loss 3.5000, val loss nan, 59s left\n"
                                          "snapshot step-00001000.snap: 1,234,567 bytes, 20ms\n"
                                          "iter 77: update skipped: gradient not finite\n"
                                          "gradients: summed over ranks by NCCL 2.27.3\n"
                                          "weights 0123456789abcdef\n");
    free(captured.console);
    check_start();
    check_plans();
    json_t *json = read_line(3);
    assert_true(number_of(json, "train_loss") == 3.5);
    assert_true(json_is_null(json_object_get(json, "val_loss")));
    json_decref(json);
    json = read_line(4);
    assert_string_equal(json_string_value(json_object_get(json, "file")), "step-00001000.snap");
    assert_true(number_of(json, "bytes") == 1234567 && number_of(json, "stall_ms") == 1.5);
    json_decref(json);
    json = read_line(5);
    assert_string_equal(json_string_value(json_object_get(json, "reason")), "gradient not finite");
    json_decref(json);
    json = read_line(6);
    assert_string_equal(json_string_value(json_object_get(json, "event")), "reducer");
    assert_string_equal(json_string_value(json_object_get(json, "name")), "NCCL 2.27.3");
    json_decref(json);
    json = read_line(7);
    assert_string_equal(json_string_value(json_object_get(json, "event")), "snapshot_failed");
    assert_int_equal((int)number_of(json, "iter"), 2000);
    assert_string_equal(json_string_value(json_object_get(json, "file")), "step-00002000.snap");
    assert_string_equal(json_string_value(json_object_get(json, "reason")), "no \"room\"");
    json_decref(json);
    json = read_line(8);
    assert_string_equal(json_string_value(json_object_get(json, "weights")), "0123456789abcdef");
    assert_string_equal(json_string_value(json_object_get(json, "reason")), "done");
    json_decref(json);
}

/* Evaluation alone tells the perplexity, with or without a training loss. */
static void test_evaluation_events(void **state)
{
    (void)state;
    Captured captured;
    remove_log();
    open_captured(&captured);
    log_eval_only(&captured.log, 7, 1, 3.25, 3.5);
    log_eval_only(&captured.log, 7, 0, NAN, 3.123456789);
    log_eval_only(&captured.log, 7, 0, NAN, NAN);
    log_hellaswag(&captured.log, 2000, 2957, 10042, 3.25);
    close_captured(&captured);
    assert_string_equal(captured.console, "step 7: train loss 3.2500, val loss 3.5000\n"
                                          "val loss 3.5000, perplexity 33.12\n"
                                          "val loss 3.1235, perplexity 22.72\n"
                                          "val loss nan, perplexity nan\n"
                                          "step 2000: hellaswag 0.2945 (2957/10042)\n");
    free(captured.console);
    json_t *json = read_line(0);
    assert_true(number_of(json, "train_loss") == 3.25 && number_of(json, "val_loss") == 3.5);
    assert_true(fabs(number_of(json, "perplexity") - exp(3.5)) < 1e-7);
    json_decref(json);
    json = read_line(1);
    assert_null(json_object_get(json, "train_loss"));
    assert_true((float)number_of(json, "val_loss") == 3.123456789f);
    assert_true(fabs(number_of(json, "perplexity") - exp(3.123456789)) < 1e-7);
    json_decref(json);
    json = read_line(2);
    assert_true(json_is_null(json_object_get(json, "perplexity")));
    json_decref(json);
    json = read_line(3);
    assert_string_equal(json_string_value(json_object_get(json, "event")), "hellaswag");
    assert_int_equal((int)number_of(json, "correct"), 2957);
    assert_int_equal((int)number_of(json, "items"), 10042);
    assert_true(fabs(number_of(json, "accuracy") - 2957 / 10042.0) < 1e-9);
    assert_true(number_of(json, "loss") == 3.25);
    json_decref(json);
    assert_true(log_has_event(folder, "hellaswag", 2000) && !log_has_event(folder, "eval", 2000));
}

/* Half a line of a killed run stays alone: the next run's lines are whole. */
static void test_append_after_half_a_line(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/log.jsonl", folder);
    FILE *file = fopen(path, "w");
    fputs("{\"event\":\"eval\",\"iter\":20,\"train_loss\":1,\"val_loss\":1}\n{\"event\":\"st", file);
    fclose(file);
    assert_true(log_has_event(folder, "eval", 20));
    assert_false(log_has_event(folder, "eval", 2));
    assert_false(log_has_event(folder, "eval", 200));
    assert_false(log_has_event(folder, "hellaswag", 20));
    Captured captured;
    open_captured(&captured);
    log_skip(&captured.log, 21, "x");
    close_captured(&captured);
    free(captured.console);
    json_t *json = read_line(2);
    assert_int_equal((int)number_of(json, "iter"), 21);
    json_decref(json);
    open_captured(&captured); /* a whole last line gets no empty line after it */
    log_skip(&captured.log, 22, "x");
    close_captured(&captured);
    free(captured.console);
    json = read_line(3);
    assert_int_equal((int)number_of(json, "iter"), 22);
    json_decref(json);
    remove_log();
    assert_false(log_has_event(folder, "eval", 20));
}

static void end_line_of(Captured *captured, int64_t iter)
{
    log_skip(&captured->log, iter, "x");
}

static int64_t iter_of_line(int number)
{
    json_t *json = read_line(number);
    int64_t iter = (int64_t)number_of(json, "iter");
    json_decref(json);
    return iter;
}

/* In a process of its own, whose files may not grow beyond a limit for a while: events before, meanwhile and
 * after, of which the first that fails is cut anywhere. All of them arrive, whole and in order. */
static void test_full_disk_glues_no_events(void **state)
{
    (void)state;
    for (rlim_t limit = 100; limit < 160; limit += 7) {
        remove_log();
        pid_t child = fork();
        if (child == 0) {
            Captured captured;
            struct rlimit bounds = {limit, RLIM_INFINITY};
            signal(SIGXFSZ, SIG_IGN);
            int is_quiet = freopen("/dev/null", "w", stderr) != NULL;
            open_captured(&captured);
            setrlimit(RLIMIT_FSIZE, &bounds);
            for (int64_t iter = 0; iter < 10; iter++) {
                if (iter == 8) {
                    bounds.rlim_cur = RLIM_INFINITY;
                    setrlimit(RLIMIT_FSIZE, &bounds);
                }
                end_line_of(&captured, iter);
            }
            _exit(is_quiet ? 0 : 1); /* killed: nothing is written at the end */
        }
        int status = -1;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
        for (int iter = 0; iter < 10; iter++) {
            assert_int_equal(iter_of_line(iter), iter);
        }
    }
    remove_log();
}

/* What does not fit into memory either is left out as whole events. */
static void test_disk_that_stays_full(void **state)
{
    (void)state;
    remove_log();
    pid_t child = fork();
    if (child == 0) {
        Captured captured;
        struct rlimit bounds = {50, RLIM_INFINITY};
        signal(SIGXFSZ, SIG_IGN);
        int is_quiet = freopen("/dev/null", "w", stderr) != NULL;
        open_captured(&captured);
        setrlimit(RLIMIT_FSIZE, &bounds);
        int64_t iter = 0;
        while (captured.log.left_out < 3) {
            end_line_of(&captured, iter++);
        }
        bounds.rlim_cur = RLIM_INFINITY;
        setrlimit(RLIMIT_FSIZE, &bounds);
        end_line_of(&captured, iter++); /* no room yet */
        end_line_of(&captured, 77777777);
        _exit(is_quiet && captured.log.left_out == 0 && captured.log.waiting_bytes == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    char path[PATH_BYTES_MAX], line[256];
    snprintf(path, sizeof(path), "%s/log.jsonl", folder);
    FILE *file = fopen(path, "r");
    int64_t last = -1, count = 0;
    while (fgets(line, sizeof(line), file)) {
        json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(json);
        int64_t iter = (int64_t)number_of(json, "iter");
        assert_true(iter > last);
        last = iter;
        count++;
        json_decref(json);
    }
    fclose(file);
    assert_int_equal(last, 77777777);
    assert_true(count > 10000);
    remove_log();
}

static void test_removed_file_is_made_anew(void **state)
{
    (void)state;
    Captured captured;
    remove_log();
    open_captured(&captured);
    end_line_of(&captured, 1);
    remove_log();
    end_line_of(&captured, 2);
    end_line_of(&captured, 3);
    assert_int_equal(iter_of_line(0), 2);
    assert_int_equal(iter_of_line(1), 3);
    char path[PATH_BYTES_MAX], moved[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/log.jsonl", folder);
    snprintf(moved, sizeof(moved), "%s/moved", folder);
    assert_int_equal(rename(path, moved), 0);
    FILE *other = fopen(path, "w"); /* somebody has turned it over */
    fputs("{\"iter\":4}\n", other);
    fclose(other);
    end_line_of(&captured, 5);
    assert_int_equal(iter_of_line(0), 4);
    assert_int_equal(iter_of_line(1), 5);
    unlink(moved);
    close_captured(&captured);
    free(captured.console);
}

static void test_log_that_is_a_pipe(void **state)
{
    (void)state;
    char path[PATH_BYTES_MAX];
    Log log;
    Error error;
    remove_log();
    snprintf(path, sizeof(path), "%s/log.jsonl", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(log_init(&log, folder, &error), -1);
    assert_non_null(strstr(error.text, "log.jsonl: expected a regular file"));
    remove_log();
}

static void test_out_dir_that_cannot_be(void **state)
{
    (void)state;
    Log log;
    Error error;
    assert_int_equal(log_init(&log, "/dev/null/out", &error), -1);
    assert_non_null(strstr(error.text, "out_dir"));
    assert_non_null(strstr(error.text, "/dev/null/out"));
}

/* Ranks without a log may report as they like. */
static void test_silent(void **state)
{
    (void)state;
    Log log;
    memset(&log, 0, sizeof(log));
    LogStep step = {.iter = 1};
    log_step(&log, &step);
    log_skip(&log, 1, "x");
    log_eval(&log, 1, 1, 1, 1);
    log_snapshot(&log, 1, "x", 1, 1, 1);
    log_end(&log, 1, 1, "done");
    log_release(&log);
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        double ms;
        const char *text;
    } cases[] = {{0, "0s"},           {59400, "59s"},         {59600, "1m 00s"},     {3599000, "59m 59s"},
                 {3600000, "1h 00m"}, {172740000, "47h 59m"}, {172800000, "2d 00h"}, {1e300, "1157407d 09h"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char buffer[32];
        assert_string_equal(format_duration(buffer, cases[i].ms), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_other_events),
        cmocka_unit_test(test_evaluation_events),
        cmocka_unit_test(test_append_after_half_a_line),
        cmocka_unit_test(test_full_disk_glues_no_events),
        cmocka_unit_test(test_disk_that_stays_full),
        cmocka_unit_test(test_removed_file_is_made_anew),
        cmocka_unit_test(test_log_that_is_a_pipe),
        cmocka_unit_test(test_out_dir_that_cannot_be),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_durations),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
