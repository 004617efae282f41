/* Event files for TensorBoard: the checksum by known answers, records against TensorBoard's own, and files
 * that stay whole when the disk is full or somebody removes them. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dev/test/scratch.h"
#include "llmc/base/crc32c.h"
#include "llmc/run/log.h"
#include "llmc/run/tensorboard.h"

enum { FIELD_VERSION = 3, FIELD_SUMMARY = 5, FIELD_SESSION = 7, EVENTS_MAX = 40000 };

/* ---- what TensorBoard 2.21 makes of the same (dev/reference/tensorboard_records.py) ----------------- */
static const unsigned char peer_version[] = {0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f,
                                             0x4b, 0x22, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0,
                                             0x3f, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e, 0x2e, 0x45,
                                             0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0x86, 0xbf, 0x57, 0x7a};
static const unsigned char peer_start[] = {0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x95, 0xfb, 0xfe,
                                           0x18, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x3f, 0x10,
                                           0xac, 0x02, 0x3a, 0x02, 0x08, 0x01, 0x56, 0x0b, 0x5d, 0xa5};
static const unsigned char peer_summary[] = {
    0x48, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xfe, 0x92, 0x48, 0x9d, 0x09, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0xf0, 0x3f, 0x10, 0xac, 0x02, 0x2a, 0x3a, 0x0a, 0x11, 0x0a, 0x0a,
    0x74, 0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x50, 0x40,
    0x0a, 0x0f, 0x0a, 0x08, 0x74, 0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x72, 0x15, 0x52, 0x49,
    0x1d, 0x3a, 0x0a, 0x14, 0x0a, 0x0d, 0x65, 0x76, 0x61, 0x6c, 0x2f, 0x76, 0x61, 0x6c, 0x5f,
    0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0xc0, 0x7f, 0x48, 0x20, 0xdd, 0x6e};

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct Event {
    int64_t step;
    int field;
    const unsigned char *data; /* of the field, in the file's bytes */
    size_t count;
} Event;

typedef struct EventFile {
    unsigned char *bytes;
    Event *events; /* (EVENTS_MAX) */
    int count;
} EventFile;

static uint64_t little_endian(const unsigned char *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++) {
        value |= (uint64_t)bytes[i] << 8 * i;
    }
    return value;
}

static uint32_t mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static uint64_t varint(const unsigned char **next)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*next)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
}

/* Every record of a file, whose frames must be right and whole. */
static void parse(EventFile *file, unsigned char *bytes, size_t count)
{
    *file = (EventFile){.bytes = bytes, .events = calloc(EVENTS_MAX, sizeof(Event))};
    for (const unsigned char *next = bytes; next < bytes + count;) {
        assert_true(next + 12 <= bytes + count);
        uint64_t length = little_endian(next, 8);
        assert_int_equal(little_endian(next + 8, 4), mask(crc32c(next, 8)));
        const unsigned char *data = next + 12;
        assert_true(length <= (uint64_t)(bytes + count - data) - 4);
        assert_int_equal(little_endian(data + length, 4), mask(crc32c(data, length)));
        next = data + length + 4;
        assert_true(file->count < EVENTS_MAX);
        Event *event = &file->events[file->count++];
        assert_int_equal(data[0], 1 << 3 | 1); /* wall_time */
        data += 9;
        if (*data == 2 << 3) { /* writers of protocol buffers leave out a 0 */
            data++;
            event->step = (int64_t)varint(&data);
        }
        event->field = *data >> 3;
        assert_int_equal(*data++ & 7, 2);
        event->count = varint(&data);
        event->data = data;
        assert_ptr_equal(data + event->count, next - 4);
    }
}

static void release(EventFile *file)
{
    free(file->bytes);
    free(file->events);
}

/* The files of the scratch folder in the order of their names; the last of them is read. Returns how many. */
static int read_newest(EventFile *file)
{
    glob_t found;
    size_t bytes;
    if (glob(scratch_path("events.out.tfevents.*"), 0, NULL, &found) != 0) {
        return 0;
    }
    int count = (int)found.gl_pathc;
    unsigned char *data = scratch_read(found.gl_pathv[count - 1], &bytes);
    globfree(&found);
    parse(file, data, bytes);
    return count;
}

static void remove_all(void)
{
    glob_t found;
    if (glob(scratch_path("events.out.tfevents.*"), 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            unlink(found.gl_pathv[i]);
        }
        globfree(&found);
    }
}

static void check_equal(const Event *event, const unsigned char *record, size_t record_bytes)
{
    unsigned char *copy = malloc(record_bytes);
    EventFile peer;
    memcpy(copy, record, record_bytes);
    parse(&peer, copy, record_bytes);
    assert_int_equal(peer.count, 1);
    assert_int_equal(event->step, peer.events->step);
    assert_int_equal(event->field, peer.events->field);
    assert_int_equal(event->count, peer.events->count);
    assert_memory_equal(event->data, peer.events->data, event->count);
    release(&peer);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static void test_crc32c_known_answers(void **state)
{
    (void)state;
    unsigned char bytes[32];
    assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c("", 0), 0);
    memset(bytes, 0, 32); /* from here on RFC 3720, B.4 */
    assert_int_equal(crc32c(bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (unsigned char)i;
    }
    assert_int_equal(crc32c(bytes, 32), 0x46dd794eu);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (unsigned char)(31 - i);
    }
    assert_int_equal(crc32c(bytes, 32), 0x113fdb5cu);
}

static void test_records_are_tensorboards(void **state)
{
    (void)state;
    TensorBoard board;
    EventFile file;
    remove_all();
    double before = (double)time(NULL) - 2;
    tensorboard_init(&board, scratch_folder, 300);
    TensorBoardValue values[] = {{"train/loss", 3.25}, {"train/lr", 6e-4}, {"eval/val_loss", NAN}};
    tensorboard_add(&board, 300, values, 3);
    tensorboard_release(&board);
    assert_int_equal(read_newest(&file), 1);
    assert_int_equal(file.count, 3);
    check_equal(&file.events[0], peer_version, sizeof(peer_version));
    check_equal(&file.events[1], peer_start, sizeof(peer_start));
    check_equal(&file.events[2], peer_summary, sizeof(peer_summary));
    double wall_time;
    uint64_t bits = little_endian(file.bytes + 13, 8);
    memcpy(&wall_time, &bits, sizeof(wall_time));
    assert_true(wall_time >= before && wall_time < before + 1e5);
    release(&file);
}

/* TensorBoard reads files in the order of their names, also where the date was set back between them. */
static void test_newer_files_come_last(void **state)
{
    (void)state;
    TensorBoard board;
    EventFile file;
    remove_all();
    scratch_write("events.out.tfevents.4000000000.elsewhere", "", 0);
    for (int i = 0; i < 3; i++) {
        tensorboard_init(&board, scratch_folder, 10 * i);
        tensorboard_release(&board);
        assert_int_equal(read_newest(&file), i + 2);
        assert_int_equal(file.events[1].field, FIELD_SESSION);
        assert_int_equal(file.events[1].step, 10 * i);
        release(&file);
    }
}

static void add(TensorBoard *board, int64_t step)
{
    tensorboard_add(board, step, &(TensorBoardValue){"train/loss", 1}, 1);
}

/* In a process of its own, whose files may not grow beyond a limit for a while. All events arrive, once,
 * whole and in order, wherever the limit cuts. */
static void test_full_disk(void **state)
{
    (void)state;
    for (rlim_t limit = 0; limit < 200; limit += 9) {
        remove_all();
        pid_t child = fork();
        if (child == 0) {
            TensorBoard board;
            struct rlimit bounds = {limit, RLIM_INFINITY};
            signal(SIGXFSZ, SIG_IGN);
            int is_quiet = freopen("/dev/null", "w", stderr) != NULL;
            setrlimit(RLIMIT_FSIZE, &bounds);
            tensorboard_init(&board, scratch_folder, 0);
            for (int64_t step = 0; step < 10; step++) {
                if (step == 8) {
                    bounds.rlim_cur = RLIM_INFINITY;
                    setrlimit(RLIMIT_FSIZE, &bounds);
                }
                add(&board, step);
            }
            _exit(is_quiet ? 0 : 1); /* killed */
        }
        int status = -1;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
        EventFile file;
        assert_int_equal(read_newest(&file), 1);
        assert_int_equal(file.count, 12);
        assert_int_equal(file.events[0].field, FIELD_VERSION);
        assert_int_equal(file.events[1].field, FIELD_SESSION);
        for (int i = 0; i < 10; i++) {
            assert_int_equal(file.events[2 + i].field, FIELD_SUMMARY);
            assert_int_equal(file.events[2 + i].step, i);
        }
        release(&file);
    }
}

/* What does not fit into memory either is left out as whole events. */
static void test_disk_that_stays_full(void **state)
{
    (void)state;
    remove_all();
    pid_t child = fork();
    if (child == 0) {
        TensorBoard board;
        struct rlimit bounds = {150, RLIM_INFINITY};
        signal(SIGXFSZ, SIG_IGN);
        int is_quiet = freopen("/dev/null", "w", stderr) != NULL;
        setrlimit(RLIMIT_FSIZE, &bounds);
        tensorboard_init(&board, scratch_folder, 0);
        for (int64_t step = 0; board.left_out < 3; step++) {
            add(&board, step);
        }
        bounds.rlim_cur = RLIM_INFINITY;
        setrlimit(RLIMIT_FSIZE, &bounds);
        add(&board, 77777776); /* no room yet */
        add(&board, 77777777);
        _exit(is_quiet && board.left_out == 0 && board.waiting_bytes == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    EventFile file;
    assert_int_equal(read_newest(&file), 1);
    assert_true(file.count > 10000);
    for (int i = 3; i < file.count; i++) {
        assert_true(file.events[i].step > file.events[i - 1].step);
    }
    assert_int_equal(file.events[file.count - 1].step, 77777777);
    release(&file);
}

static void test_removed_file(void **state)
{
    (void)state;
    TensorBoard board;
    EventFile file;
    remove_all();
    tensorboard_init(&board, scratch_folder, 0);
    add(&board, 0);
    remove_all();
    add(&board, 1);
    add(&board, 2);
    tensorboard_release(&board);
    assert_int_equal(read_newest(&file), 1);
    assert_int_equal(file.count, 3);
    assert_int_equal(file.events[0].field, FIELD_VERSION);
    assert_int_equal(file.events[2].step, 2);
    release(&file);
}

static void test_folder_that_is_gone(void **state)
{
    (void)state;
    TensorBoard board;
    EventFile file;
    remove_all();
    char *path = scratch_path("later");
    tensorboard_init(&board, path, 5);
    add(&board, 5);
    assert_int_equal(mkdir(path, 0700), 0);
    add(&board, 6);
    tensorboard_release(&board);
    glob_t found;
    size_t bytes;
    assert_int_equal(glob(scratch_path("later/events.out.tfevents.*"), 0, NULL, &found), 0);
    unsigned char *data = scratch_read(found.gl_pathv[0], &bytes);
    globfree(&found);
    parse(&file, data, bytes);
    assert_int_equal(file.count, 4);
    release(&file);
}

/* A resumed run tells the evaluation of its first weights again: TensorBoard has just forgotten it. */
static void test_log_tells_again(void **state)
{
    (void)state;
    Log log;
    Error error;
    EventFile file;
    for (int process = 0; process < 2; process++) {
        remove_all();
        assert_int_equal(log_init(&log, scratch_folder, &error), 0);
        log.console = fopen("/dev/null", "w");
        log_open_tensorboard(&log, scratch_folder, 20 * process);
        if (process == 0) {
            log_eval(&log, 20, 2.5, 2.75, -1);
        }
        LogStep step = {
            .iter = 20 * process, .loss = 4, .ms = 1, .times.comm_ms = process, .mfu = 0.5 * process};
        log_step(&log, &step);
        fclose(log.console);
        log_release(&log);
    }
    assert_int_equal(read_newest(&file), 1);
    assert_int_equal(file.count, 4);
    assert_int_equal(file.events[2].step, 20);
    assert_non_null(memmem(file.events[2].data, file.events[2].count, "eval/val_loss\x15\0\0\x30\x40", 18));
    assert_non_null(memmem(file.events[2].data, file.events[2].count, "eval/train_loss\x15\0\0\x20\x40", 20));
    static const char *const tags[] = {"train/loss", "train/lr",        "train/norm",   "speed/ms",
                                       "speed/mfu",  "speed/tok_per_s", "comm/comm_ms", "comm/exposed_ms"};
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        assert_non_null(memmem(file.events[3].data, file.events[3].count, tags[i], strlen(tags[i])));
    }
    release(&file);
}

/* Switched off, as on ranks other than 0. */
static void test_silent(void **state)
{
    (void)state;
    TensorBoard board = {.descriptor = -1};
    EventFile file;
    remove_all();
    add(&board, 1);
    tensorboard_release(&board);
    assert_int_equal(read_newest(&file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c_known_answers),
        cmocka_unit_test(test_records_are_tensorboards),
        cmocka_unit_test(test_newer_files_come_last),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_disk_that_stays_full),
        cmocka_unit_test(test_removed_file),
        cmocka_unit_test(test_folder_that_is_gone),
        cmocka_unit_test(test_log_tells_again),
        cmocka_unit_test(test_silent),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
