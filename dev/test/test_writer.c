/* Snapshots written behind training's back: what is written is the state at `start`, whatever training does
 * after `copied`; one is in flight; failures are told and cost nothing else. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/test/snapshot_fixture.h"
#include "llmc/snapshot/writer.h"

static SnapshotWriter *make_writer(Arenas *arenas, const char *out_dir, int keep)
{
    Error error;
    SnapshotWriterConfig config = {.out_dir = out_dir,
                                   .table = &arenas->table,
                                   .source = {read_state, arenas},
                                   .keep = keep,
                                   .threads = 1};
    return snapshot_writer_create(&config, &error);
}

static void expect_state(const char *out_dir, int64_t step, const Arenas *expected)
{
    Error error = {""};
    char path[PATH_BYTES_MAX];
    assert_int_equal(snapshot_path(path, out_dir, step, &error), 0);
    Snapshot *snapshot = snapshot_open(path, &error);
    if (!snapshot) {
        fail_msg("%s", error.text);
    }
    Arenas found;
    arenas_init(&found, &small);
    StateSink sink = {write_state, &found};
    assert_int_equal(snapshot_load(snapshot, &found.table, SAVED_WEIGHTS, SAVED_MOMENT2, &sink, &error), 0);
    for (int s = 0; s < SAVED_STATES; s++) {
        assert_memory_equal(found.values[s], expected->values[s],
                            (size_t)found.table.arena_count * sizeof(float));
    }
    assert_int_equal(snapshot_info(snapshot)->step, step);
    snapshot_close(snapshot);
    arenas_release(&found);
}

/* Training changes the state as soon as it may: no byte of that reaches the file. */
static void test_the_state_at_start_is_written(void **state)
{
    (void)state;
    char *folder = scratch_path("start");
    Arenas arenas, before;
    arenas_init(&arenas, &small);
    arenas_init(&before, &small);
    SnapshotWriter *writer = make_writer(&arenas, folder, 2);
    for (int64_t step = 1; step <= 5; step++) {
        fill_finite(&arenas, (uint64_t)step);
        fill_finite(&before, (uint64_t)step);
        SnapshotInfo info = info_of(step, &small);
        snapshot_writer_start(writer, &info);
        snapshot_writer_copied(writer);
        fill_finite(&arenas, 1000);
        snapshot_writer_wait(writer);
        SnapshotResult result;
        assert_int_equal(snapshot_writer_poll(writer, &result), 1);
        assert_int_equal(snapshot_writer_poll(writer, &result), 0);
        assert_int_equal(result.has_failed, 0);
        assert_int_equal(result.step, step);
        assert_true(result.bytes > 0 && result.write_ms > 0 && result.stall_ms >= 0);
        expect_state(folder, step, &before);
    }
    int64_t *steps;
    Error error;
    assert_int_equal(snapshot_list(&steps, folder, &error), 2); /* the older ones are pruned */
    assert_int_equal(steps[0], 5);
    memory_free(steps);
    snapshot_writer_free(writer);
    arenas_release(&arenas);
    arenas_release(&before);
}

static void test_a_failure_is_told_and_the_next_may_succeed(void **state)
{
    (void)state;
    char *folder = scratch_path("blocked");
    FILE *file = fopen(folder, "w"); /* a file where the folder should be */
    assert_non_null(file);
    fclose(file);
    Arenas arenas;
    arenas_init(&arenas, &small);
    fill_finite(&arenas, 7);
    SnapshotWriter *writer = make_writer(&arenas, folder, 2);
    SnapshotInfo info = info_of(3, &small);
    SnapshotResult result;
    snapshot_writer_start(writer, &info);
    snapshot_writer_wait(writer);
    assert_int_equal(snapshot_writer_poll(writer, &result), 1);
    assert_int_equal(result.has_failed, 1);
    assert_non_null(strstr(result.error.text, "blocked"));
    remove(folder);
    info.step = 4;
    snapshot_writer_start(writer, &info);
    snapshot_writer_wait(writer);
    assert_int_equal(snapshot_writer_poll(writer, &result), 1);
    assert_int_equal(result.has_failed, 0);
    expect_state(folder, 4, &arenas);
    snapshot_writer_free(writer);
    arenas_release(&arenas);
}

/* The caller's texts may go as soon as start returns, and freeing waits for what is in flight. */
static void test_what_is_in_flight_is_finished(void **state)
{
    (void)state;
    char *folder = scratch_path("flight");
    Arenas arenas;
    arenas_init(&arenas, &small);
    fill_finite(&arenas, 9);
    SnapshotWriter *writer = make_writer(&arenas, folder, 0);
    SnapshotInfo info = info_of(12, &small);
    char options[] = "{\"a\": 1}";
    char plans[] = "device\n";
    info.options = options;
    info.plans = plans;
    snapshot_writer_start(writer, &info);
    memset(options, 'x', sizeof(options) - 1);
    memset(plans, 'x', sizeof(plans) - 1);
    snapshot_writer_copied(writer);
    snapshot_writer_free(writer);
    expect_state(folder, 12, &arenas);
    arenas_release(&arenas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_state_at_start_is_written),
        cmocka_unit_test(test_a_failure_is_told_and_the_next_may_succeed),
        cmocka_unit_test(test_what_is_in_flight_is_finished),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
