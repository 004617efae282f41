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
    Error error = {.text = ""};
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

/* The steps in a folder, newest first, as text. */
static const char *steps_in(const char *folder)
{
    static char text[64];
    Error error;
    int64_t *steps;
    int count = snapshot_list(&steps, folder, &error);
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d ", (int)steps[i]);
    }
    memory_free(steps);
    return text;
}

static SnapshotResult await_result(SnapshotWriter *writer)
{
    SnapshotResult result;
    snapshot_writer_wait(writer);
    assert_int_equal(snapshot_writer_poll(writer, &result), 1);
    return result;
}

/* Nothing is shown before it is judged; a bad one leaves no trace, and takes no good one with it; a doubtful
 * one is kept beside them. So it is for a writer that writes the live state. */
static void test_only_good_snapshots_stay(void **state)
{
    (void)state;
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        char *folder = scratch_path(is_direct ? "judged live" : "judged");
        Error error;
        Arenas arenas;
        arenas_init(&arenas, &small);
        SnapshotWriterConfig config = {.out_dir = folder,
                                       .table = &arenas.table,
                                       .source = {read_state, &arenas},
                                       .keep = 1,
                                       .threads = 2,
                                       .is_direct = is_direct,
                                       .awaits_judge = 1};
        SnapshotWriter *writer = snapshot_writer_create(&config, &error);
        static const struct {
            SnapshotVerdict verdict;
            const char *before, *after;
        } turns[] = {{SNAPSHOT_GOOD, "", "1 "},         {SNAPSHOT_GOOD, "1 ", "2 "},
                     {SNAPSHOT_BAD, "2 ", "2 "},        {SNAPSHOT_BAD, "2 ", "2 "},
                     {SNAPSHOT_DOUBTFUL, "2 ", "5 2 "}, {SNAPSHOT_BAD, "5 2 ", "5 2 "},
                     {SNAPSHOT_GOOD, "5 2 ", "7 "}};
        for (int i = 0; i < 7; i++) {
            fill_finite(&arenas, (uint64_t)i);
            SnapshotInfo info = info_of(i + 1, &small);
            snapshot_writer_start(writer, &info);
            snapshot_writer_copied(writer);
            assert_string_equal(steps_in(folder), turns[i].before);
            snapshot_writer_judge(writer, turns[i].verdict);
            SnapshotResult result = await_result(writer);
            assert_int_equal(result.has_failed, 0);
            assert_int_equal(result.is_dropped, turns[i].verdict == SNAPSHOT_BAD);
            assert_string_equal(steps_in(folder), turns[i].after);
        }
        expect_state(folder, 7, &arenas);
        SnapshotInfo info = info_of(8, &small);
        snapshot_writer_start(writer, &info);
        snapshot_writer_free(writer); /* nobody will judge it */
        assert_string_equal(steps_in(folder), "7 ");
        char command[600];
        snprintf(command, sizeof(command), "ls -A '%s' | grep -q tmp", folder);
        assert_int_not_equal(system(command), 0);
        arenas_release(&arenas);
    }
}

/* Weights or moments that are not finite are no state to go on from. */
static void test_what_is_not_finite_is_not_kept(void **state)
{
    (void)state;
    char *folder = scratch_path("not finite");
    Arenas arenas;
    arenas_init(&arenas, &small);
    SnapshotWriter *writer = make_writer(&arenas, folder, 1);
    for (int s = 0; s <= SAVED_STATES; s++) {
        fill_finite(&arenas, 7);
        const ParamSpec *spec = &arenas.table.specs[arenas.table.count - 1];
        if (s < SAVED_STATES) {
            arenas.values[s][spec->offset + param_file_count(spec) - 1] = s == 1 ? INFINITY : NAN;
        }
        SnapshotInfo info = info_of(s + 1, &small);
        snapshot_writer_start(writer, &info);
        SnapshotResult result = await_result(writer);
        assert_int_equal(result.has_failed, 0);
        assert_int_equal(result.is_dropped, s < SAVED_STATES);
        assert_true(s == SAVED_STATES || strstr(result.error.text, spec->name));
        assert_string_equal(steps_in(folder), s < SAVED_STATES ? "" : "4 ");
    }
    snapshot_writer_free(writer);
    arenas_release(&arenas);
}

/* A direct writer has no copy: `copied` comes when the state is on disk, so training may change it then. */
static void test_the_live_state_is_written(void **state)
{
    (void)state;
    char *folder = scratch_path("live");
    Error error;
    Arenas arenas, before;
    arenas_init(&arenas, &small);
    arenas_init(&before, &small);
    SnapshotWriterConfig config = {.out_dir = folder,
                                   .table = &arenas.table,
                                   .source = {read_state, &arenas},
                                   .keep = 2,
                                   .is_direct = 1};
    SnapshotWriter *writer = snapshot_writer_create(&config, &error);
    assert_true(snapshot_writer_is_direct(writer));
    for (int64_t step = 1; step <= 4; step++) {
        fill_finite(&arenas, (uint64_t)step);
        fill_finite(&before, (uint64_t)step);
        SnapshotInfo info = info_of(step, &small);
        snapshot_writer_start(writer, &info);
        snapshot_writer_copied(writer);
        fill_finite(&arenas, 1000);
        SnapshotResult result = await_result(writer);
        assert_int_equal(result.has_failed + result.is_dropped, 0);
        expect_state(folder, step, &before);
    }
    snapshot_writer_free(writer);
    arenas_release(&arenas);
    arenas_release(&before);
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
        cmocka_unit_test(test_only_good_snapshots_stay),
        cmocka_unit_test(test_what_is_not_finite_is_not_kept),
        cmocka_unit_test(test_the_live_state_is_written),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
