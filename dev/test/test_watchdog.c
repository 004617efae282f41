/* The watchdog of a device that sums buckets by itself: what it tells the monitor, and how it ends a process.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "dev/test/time_scale.h"
#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/comm/monitor.h"
#include "llmc/comm/net.h"
#include "llmc/comm/progress.h"
#include "llmc/comm/watchdog.h"

/* The system's date as a program reads it, an hour before it is set back: all tests here run with it. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    int status = (int)syscall(SYS_clock_gettime, clock, time);
    time->tv_sec += clock == CLOCK_REALTIME ? 3600 : 0;
    return status;
}

typedef struct Device {
    BucketCounters counters;
    const char *volatile error;
    int hangs_in_abort;
    int aborted[2]; /* a pipe, as the process that aborts is about to end */
} Device;

static BucketName name(void *context, int64_t index)
{
    static const char *const names[] = {"bucket 0", "bucket 1", "bucket 2"};
    (void)context;
    return (BucketName){names[index % 3], 10 + index};
}

static const char *error_of(void *context)
{
    return ((Device *)context)->error;
}

static void abort_device(void *context)
{
    Device *device = context;
    if (write(device->aborted[1], "!", 1) < 0) {
        _exit(9);
    }
    while (device->hangs_in_abort) {
        net_sleep_ms(10);
    }
}

static Watchdog *watch(Device *device)
{
    WatchdogConfig config = {.counters = &device->counters,
                             .name = name,
                             .error = error_of,
                             .abort = abort_device,
                             .context = device};
    assert_int_equal(pipe(device->aborted), 0);
    return watchdog_create(&config);
}

/* What the monitor hears of buckets, once `entered_count` are begun or after some seconds. */
static Progress await_progress(uint64_t entered_count, int is_inside)
{
    Progress all[CHANNEL_COUNT];
    double end_ms = clock_ms() + 5000 * time_scale();
    do {
        net_sleep_ms(2);
        progress_read(all);
    } while (
        (all[CHANNEL_BUCKET].entered_count != entered_count || all[CHANNEL_BUCKET].is_inside != is_inside) &&
        clock_ms() < end_ms);
    return all[CHANNEL_BUCKET];
}

static void test_buckets_are_told_in_order(void **state)
{
    (void)state;
    Device device = {.error = NULL};
    Watchdog *watchdog = watch(&device);
    device.counters.begun_count = 1;
    Progress progress = await_progress(1, 1);
    assert_int_equal(progress.entered_count, 1);
    assert_true(progress.is_inside);
    assert_string_equal(progress.what, "bucket 0 of 10 elements");
    device.counters.ended_count = 1;
    progress = await_progress(1, 0);
    assert_false(progress.is_inside);
    device.counters.begun_count = 5; /* many came and went between two looks */
    device.counters.ended_count = 4;
    progress = await_progress(5, 1);
    assert_int_equal(progress.entered_count, 5);
    assert_true(progress.is_inside);
    assert_string_equal(progress.what, "bucket 1 of 14 elements");
    device.counters.ended_count = 5;
    watchdog_free(watchdog); /* has the last word */
    progress = await_progress(5, 0);
    assert_false(progress.is_inside);
}

/* In a process of its own: its exit code, what it wrote to stderr, and whether it aborted the device. */
static int end_of_process(void (*act)(Device *device), int hangs_in_abort, char *text, size_t text_bytes,
                          int *is_aborted)
{
    Device device = {.hangs_in_abort = hangs_in_abort};
    int output[2], status = 0;
    char byte;
    assert_int_equal(pipe(output), 0);
    assert_int_equal(pipe(device.aborted), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        WatchdogConfig config = {.counters = &device.counters,
                                 .name = name,
                                 .error = error_of,
                                 .abort = abort_device,
                                 .context = &device};
        dup2(output[1], STDERR_FILENO);
        watchdog_create(&config);
        act(&device);
        net_sleep_ms(20000 * time_scale());
        _exit(0);
    }
    close(output[1]);
    close(device.aborted[1]);
    ssize_t count = read(output[0], text, text_bytes - 1);
    text[count > 0 ? count : 0] = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    *is_aborted = read(device.aborted[0], &byte, 1) == 1;
    close(output[0]);
    close(device.aborted[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void fail_in_a_bucket(Device *device)
{
    Progress before[CHANNEL_COUNT]; /* the tests before this one have entered buckets too */
    progress_read(before);
    device->counters.begun_count = 2;
    device->counters.ended_count = 1;
    await_progress(before[CHANNEL_BUCKET].entered_count + 2, 1);
    device->error = "NCCL: remote process exited";
}

static void test_an_error_of_the_library_ends_the_process(void **state)
{
    (void)state;
    char text[512];
    int is_aborted;
    int code = end_of_process(fail_in_a_bucket, 0, text, sizeof(text), &is_aborted);
    assert_int_equal(code, EXIT_FAULT);
    assert_non_null(strstr(text, "NCCL: remote process exited; this rank was in bucket 1 of 11 elements"));
}

static void end_by_fault(Device *device)
{
    (void)device;
    monitor_end_process(EXIT_FAULT);
}

static void test_the_device_is_let_go_first(void **state)
{
    (void)state;
    char text[512];
    int is_aborted = 0;
    assert_int_equal(end_of_process(end_by_fault, 0, text, sizeof(text), &is_aborted), EXIT_FAULT);
    assert_true(is_aborted);
    double begin_ms = clock_ms();
    assert_int_equal(end_of_process(end_by_fault, 1, text, sizeof(text), &is_aborted), EXIT_FAULT);
    assert_true(is_aborted);
    assert_true(clock_ms() - begin_ms < 15000 * time_scale()); /* an abort that hangs is not waited for */
}

static void *end_from_a_thread(void *unused)
{
    (void)unused;
    monitor_end_process(EXIT_FAULT);
}

/* As training does: waits for the device, which the abort lets go while the process still lives. */
static void use_sums_after_an_abort(Device *device)
{
    pthread_t thread;
    char byte;
    pthread_create(&thread, NULL, end_from_a_thread, NULL);
    if (read(device->aborted[0], &byte, 1) == 1 && write(device->aborted[1], &byte, 1) == 1) {
        watchdog_hold();
        error_print("used what the device left");
    }
}

static void test_sums_of_an_aborted_device_are_not_used(void **state)
{
    (void)state;
    char text[512];
    int is_aborted = 0;
    watchdog_hold(); /* does nothing in a process that goes on */
    assert_int_equal(end_of_process(use_sums_after_an_abort, 1, text, sizeof(text), &is_aborted), EXIT_FAULT);
    assert_true(is_aborted);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_are_told_in_order),
        cmocka_unit_test(test_an_error_of_the_library_ends_the_process),
        cmocka_unit_test(test_the_device_is_let_go_first),
        cmocka_unit_test(test_sums_of_an_aborted_device_are_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
