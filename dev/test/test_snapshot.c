/* Snapshots: the same bits come back, other shapes are told, and a disk that fills up leaves the old file. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "dev/test/snapshot_fixture.h"
#include "llmc/base/memory.h"
#include "llmc/text/characters.h"

static void assert_arenas_equal(const Arenas *a, const Arenas *b, int first_state, int last_state)
{
    for (int s = first_state; s <= last_state; s++) {
        assert_memory_equal(a->values[s], b->values[s], (size_t)a->table.arena_count * sizeof(float));
    }
}

static void check_round_trip(const ModelShape *shape, int threads)
{
    Error error;
    Arenas saved;
    Arenas loaded;
    arenas_init(&saved, shape);
    arenas_init(&loaded, shape);
    fill_random(&saved, 5);
    const char *folder = new_folder();
    write_step(folder, 1000, &saved, threads);
    Snapshot *snapshot = snapshot_open(step_path(folder, 1000), &error);
    if (!snapshot) {
        fail_msg("%s", error.text);
    }
    SnapshotInfo expected = info_of(1000, shape);
    const SnapshotInfo *info = snapshot_info(snapshot);
    assert_memory_equal(&info->shape, shape, sizeof(*shape));
    assert_int_equal(info->step, 1000);
    assert_true(info->sample == expected.sample);
    assert_true(info->best_loss == expected.best_loss);
    assert_int_equal(info->bad_steps, 2);
    assert_true(info->data_fingerprint == expected.data_fingerprint);
    assert_string_equal(info->version, "1.2.3");
    assert_string_equal(info->options, expected.options);
    assert_string_equal(info->plans, expected.plans);
    StateSink sink = {write_state, &loaded};
    assert_int_equal(snapshot_load(snapshot, &loaded.table, SAVED_WEIGHTS, SAVED_MOMENT2, &sink, &error), 0);
    assert_arenas_equal(&saved, &loaded, SAVED_WEIGHTS, SAVED_MOMENT2);
    /* A second time, and one state alone. */
    memset(loaded.values[SAVED_MOMENT1], 0, (size_t)loaded.table.arena_count * sizeof(float));
    assert_int_equal(snapshot_load(snapshot, &loaded.table, SAVED_MOMENT1, SAVED_MOMENT1, &sink, &error), 0);
    assert_arenas_equal(&saved, &loaded, SAVED_WEIGHTS, SAVED_MOMENT2);
    snapshot_close(snapshot);
    arenas_release(&saved);
    arenas_release(&loaded);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_round_trip(&small, 0);
    check_round_trip(&small, 2);
    const ModelShape least = {.block_size = 1, .vocab_size = 1, .n_layer = 1, .n_head = 1, .n_embd = 1};
    check_round_trip(&least, 0);
    /* Tensors of several chunks, data of several frames. */
    const ModelShape large = {
        .block_size = 300, .vocab_size = 3001, .n_layer = 1, .n_head = 1, .n_embd = 1201};
    check_round_trip(&large, 2);
}

static void test_info_without_a_loss_and_plans(void **state)
{
    (void)state;
    Error error;
    Arenas arenas;
    arenas_init(&arenas, &small);
    StateSource source = {read_state, &arenas};
    SnapshotInfo info = info_of(0, &small);
    info.best_loss = INFINITY;
    info.plans = NULL;
    const char *folder = new_folder();
    uint64_t bytes;
    assert_int_equal(snapshot_write(&bytes, folder, &info, &arenas.table, &source, 0, &error), 0);
    size_t found_bytes;
    free(scratch_read(step_path(folder, 0), &found_bytes));
    assert_int_equal(bytes, found_bytes);
    SnapshotInfo found;
    assert_int_equal(snapshot_read_info(&found, step_path(folder, 0), &error), 0);
    assert_true(isinf(found.best_loss) && found.best_loss > 0);
    assert_int_equal(found.step, 0);
    assert_string_equal(found.options, info.options);
    assert_null(found.plans);
    snapshot_info_release(&found);
    info.options = "[1]";
    assert_int_equal(snapshot_write(NULL, folder, &info, &arenas.table, &source, 0, &error), -1);
    assert_non_null(strstr(error.text, "options: expected a JSON object"));
    info.options = "{}";
    info.plans = "device";
    assert_int_equal(snapshot_write(NULL, folder, &info, &arenas.table, &source, 0, &error), -1);
    assert_non_null(strstr(error.text, "plans: line 1: expected a line"));
    arenas_release(&arenas);
}

/* A lower block_size takes the first positions; every other difference is refused before a value is handed
 * over. */
static void test_other_shapes(void **state)
{
    (void)state;
    Error error;
    Arenas saved;
    arenas_init(&saved, &small);
    fill_random(&saved, 6);
    const char *folder = new_folder();
    write_step(folder, 1, &saved, 0);
    Snapshot *snapshot = snapshot_open(step_path(folder, 1), &error);
    assert_non_null(snapshot);

    Arenas lower;
    ModelShape shape = small;
    shape.block_size = 3;
    arenas_init(&lower, &shape);
    StateSink sink = {write_state, &lower};
    assert_int_equal(snapshot_load(snapshot, &lower.table, SAVED_WEIGHTS, SAVED_MOMENT2, &sink, &error), 0);
    for (int s = 0; s < SAVED_STATES; s++) {
        for (int i = 0; i < lower.table.count; i++) {
            const ParamSpec *spec = &lower.table.specs[i];
            assert_memory_equal(lower.values[s] + spec->offset, saved.values[s] + saved.table.specs[i].offset,
                                (size_t)param_file_count(spec) * sizeof(float));
        }
    }
    arenas_release(&lower);

    const ModelShape others[] = {
        {8, 131, 2, 3, 15}, {7, 130, 2, 3, 15}, {7, 131, 1, 3, 15}, {7, 131, 2, 5, 15}, {7, 131, 2, 3, 18}};
    const char *names[] = {"block_size=8", "vocab_size=130", "n_layer=1", "n_head=5", "n_embd=18"};
    for (int i = 0; i < 5; i++) {
        Arenas other;
        arenas_init(&other, &others[i]);
        StateSink other_sink = {write_state, &other};
        assert_int_equal(
            snapshot_load(snapshot, &other.table, SAVED_WEIGHTS, SAVED_MOMENT2, &other_sink, &error), -1);
        if (!strstr(error.text, names[i]) || !strstr(error.text, "step-00000001.snap")) {
            fail_msg("expected %s, found '%s'", names[i], error.text);
        }
        assert_int_equal(other.write_count, 0);
        arenas_release(&other);
    }
    snapshot_close(snapshot);
    arenas_release(&saved);
}

/* How many entries a folder has. */
static int count_files(const char *folder)
{
    char command[512];
    snprintf(command, sizeof(command), "ls -A '%s' | wc -l", folder);
    FILE *pipe = popen(command, "r");
    int count = -1;
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

/* A disk that fills up at any byte: an error that says so, the old file whole, nothing new left. A child
 * process runs into a limit on file sizes, whose error takes the same path as a full disk. */
static void test_disk_full(void **state)
{
    (void)state;
    Error error;
    Arenas arenas;
    arenas_init(&arenas, &small);
    fill_random(&arenas, 1);
    const char *folder = new_folder();
    write_step(folder, 7, &arenas, 0);
    size_t whole_bytes;
    unsigned char *before = scratch_read(step_path(folder, 7), &whole_bytes);
    const size_t limits[] = {0, 1, whole_bytes / 2, whole_bytes - 17, whole_bytes - 16, whole_bytes - 1};
    for (int i = 0; i < 6; i++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGXFSZ, SIG_IGN);
            struct rlimit limit = {limits[i], limits[i]};
            setrlimit(RLIMIT_FSIZE, &limit);
            StateSource source = {read_state, &arenas};
            SnapshotInfo info = info_of(7, &small);
            int status = snapshot_write(NULL, folder, &info, &arenas.table, &source, 0, &error);
            _exit(status == -1 && strstr(error.text, "cannot write: File too large") ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fail_msg("limit of %zu bytes: expected an error that names it, found status %d", limits[i],
                     status);
        }
        assert_int_equal(count_files(folder), 1);
        size_t bytes;
        unsigned char *after = scratch_read(step_path(folder, 7), &bytes);
        assert_int_equal(bytes, whole_bytes);
        assert_memory_equal(before, after, bytes);
        free(after);
    }
    free(before);
    arenas_release(&arenas);
}

static void test_unwritable_folder(void **state)
{
    (void)state;
    Error error;
    Arenas arenas;
    arenas_init(&arenas, &small);
    StateSource source = {read_state, &arenas};
    SnapshotInfo info = info_of(1, &small);
    char *file = scratch_write("a file", "x", 1);
    assert_int_equal(snapshot_write(NULL, file, &info, &arenas.table, &source, 0, &error), -1);
    assert_non_null(strstr(error.text, "a file"));
    assert_int_equal(snapshot_write(NULL, "/proc/no/such", &info, &arenas.table, &source, 0, &error), -1);
    assert_non_null(strstr(error.text, "/proc/no"));
    arenas_release(&arenas);
}

/* A vocabulary comes back as it went, and is one of the model's size. */
static void test_vocabulary(void **state)
{
    (void)state;
    Error error;
    Arenas arenas;
    arenas_init(&arenas, &small);
    StateSource source = {read_state, &arenas};
    SnapshotInfo info = info_of(3, &small), found;
    uint32_t code_points[1 << 10];
    for (int i = 0; i < small.vocab_size; i++) {
        code_points[i] = (uint32_t)(i * 397); /* quotes, line breaks, NUL, and two to four bytes of UTF-8 */
    }
    code_points[1] = '"', code_points[2] = '\\', code_points[3] = '\n', code_points[4] = 0x1f600;
    Characters *characters = characters_create(code_points, small.vocab_size, &error);
    Characters *fewer = characters_create(code_points, small.vocab_size - 1, &error);
    assert_non_null(characters);
    info.characters = characters_to_json(characters);
    const char *folder = new_folder();
    assert_int_equal(snapshot_write(NULL, folder, &info, &arenas.table, &source, 0, &error), 0);
    assert_int_equal(snapshot_read_info(&found, step_path(folder, 3), &error), 0);
    assert_string_equal(found.characters, info.characters);
    snapshot_info_release(&found);
    memory_free(info.characters);
    info.characters = characters_to_json(fewer);
    assert_int_equal(snapshot_write(NULL, folder, &info, &arenas.table, &source, 0, &error), -1);
    assert_non_null(strstr(error.text, "characters: expected vocab_size=131 of them, found 130"));
    memory_free(info.characters);
    info.characters = "{}";
    assert_int_equal(snapshot_write(NULL, folder, &info, &arenas.table, &source, 0, &error), -1);
    assert_non_null(strstr(error.text, "characters: expected an object"));
    characters_free(characters);
    characters_free(fewer);
    arenas_release(&arenas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_info_without_a_loss_and_plans),
        cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_unwritable_folder),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
