/* A folder of snapshots: what is listed, which one a run resumes from, what is deleted. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "dev/test/snapshot_fixture.h"

static void test_list_and_names(void **state)
{
    (void)state;
    Error error;
    int64_t *steps;
    assert_int_equal(snapshot_list(&steps, scratch_path("no such folder"), &error), 0);
    assert_null(steps);
    const char *folder = new_folder();
    assert_int_equal(folder_create(folder, &error), 0);
    const char *names[] = {"step-00000010.snap",       "step-00000002.snap",         "step-123456789.snap",
                           "step-00000003.snap.tmp.7", "step-00000004.snap.damaged", "step-5.snap",
                           "step-0000000x.snap",       "step-00000006.snap2",        "step-000000006.snap",
                           "step-00000000.snap"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_BYTES_MAX];
        path_join(path, folder, names[i], &error);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    assert_int_equal(snapshot_list(&steps, folder, &error), 4);
    const int64_t expected[4] = {123456789, 10, 2, 0};
    assert_memory_equal(steps, expected, sizeof(expected));
    memory_free(steps);
    assert_int_equal(snapshot_list(&steps, step_path(folder, 10), &error), -1);
    assert_int_equal(snapshot_remove_leftovers(folder, &error), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[PATH_BYTES_MAX];
        path_join(path, folder, names[i], &error);
        assert_int_equal(path_exists(path), i != 3);
    }
}

/* Damage one byte in the middle of a file. */
static void damage(const char *path)
{
    size_t bytes;
    unsigned char *data = scratch_read(path, &bytes);
    data[bytes / 2] ^= 0x40;
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
    free(data);
}

/* What a call prints on stderr is not for the test's own report. */
static Snapshot *open_newest_quietly(char *said, size_t said_bytes, const char *folder, Error *error)
{
    fflush(stderr);
    int before = dup(2);
    FILE *capture = tmpfile();
    dup2(fileno(capture), 2);
    Snapshot *snapshot = snapshot_open_newest(folder, error);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    rewind(capture);
    size_t count = fread(said, 1, said_bytes - 1, capture);
    said[count] = '\0';
    fclose(capture);
    return snapshot;
}

static void test_newest_whole_file_is_used(void **state)
{
    (void)state;
    Error error;
    char said[4096];
    Arenas arenas;
    arenas_init(&arenas, &small);
    const char *folder = new_folder();
    assert_null(snapshot_open_newest(folder, &error));
    assert_non_null(strstr(error.text, "found none; use init_from=scratch"));
    for (int64_t step = 10; step <= 50; step += 10) {
        write_step(folder, step, &arenas, 0);
    }
    damage(step_path(folder, 50));
    assert_int_equal(rename(step_path(folder, 10), step_path(folder, 40)), 0); /* swapped */
    Snapshot *snapshot = open_newest_quietly(said, sizeof(said), folder, &error);
    if (!snapshot) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(snapshot_info(snapshot)->step, 30);
    assert_string_equal(snapshot_file(snapshot), step_path(folder, 30));
    snapshot_close(snapshot);
    assert_non_null(strstr(said, "step-00000050.snap: damaged"));
    assert_non_null(strstr(said, "step-00000040.snap: expected step 40 as its name says, found step 10"));
    char aside[PATH_BYTES_MAX + 16];
    snprintf(aside, sizeof(aside), "%s.damaged", step_path(folder, 50));
    assert_true(path_exists(aside) && !path_exists(step_path(folder, 50)));
    snprintf(aside, sizeof(aside), "%s.damaged", step_path(folder, 40));
    assert_true(path_exists(aside) && !path_exists(step_path(folder, 40)));

    damage(step_path(folder, 30));
    damage(step_path(folder, 20));
    assert_null(open_newest_quietly(said, sizeof(said), folder, &error));
    assert_non_null(strstr(error.text, "found 2, all damaged"));
    arenas_release(&arenas);
}

static void test_prune(void **state)
{
    (void)state;
    Error error;
    int64_t *steps;
    Arenas arenas;
    arenas_init(&arenas, &small);
    const char *folder = new_folder();
    for (int64_t step = 100; step <= 900; step += 100) {
        write_step(folder, step, &arenas, 0);
    }
    assert_int_equal(snapshot_prune(folder, 0, 0, &error), 0);
    assert_int_equal(snapshot_list(&steps, folder, &error), 9);
    memory_free(steps);
    assert_int_equal(snapshot_prune(folder, 2, 300, &error), 0);
    assert_int_equal(snapshot_list(&steps, folder, &error), 4);
    const int64_t with_milestones[4] = {900, 800, 600, 300};
    assert_memory_equal(steps, with_milestones, sizeof(with_milestones));
    memory_free(steps);
    assert_int_equal(snapshot_prune(folder, 1, 0, &error), 0);
    assert_int_equal(snapshot_list(&steps, folder, &error), 1);
    assert_int_equal(steps[0], 900);
    memory_free(steps);
    arenas_release(&arenas);
}

/* A writer that is killed at any moment leaves whole snapshots and, at most, a file that the next start
 * removes. */
static void test_killed_writer(void **state)
{
    (void)state;
    Error error;
    Arenas arenas;
    const ModelShape shape = {.block_size = 9, .vocab_size = 999, .n_layer = 2, .n_head = 2, .n_embd = 64};
    arenas_init(&arenas, &shape);
    fill_random(&arenas, 3);
    const char *folder = new_folder();
    write_step(folder, 1, &arenas, 0);
    int leftovers = 0;
    for (int i = 0; i < 20 || (leftovers == 0 && i < 500); i++) { /* until one is met at its work */
        pid_t child = fork();
        if (child == 0) {
            for (int64_t step = 2;; step++) {
                write_step(folder, step, &arenas, 0);
            }
        }
        struct timespec pause = {0, 1000000 + 1700000 * i};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        char path[PATH_BYTES_MAX];
        int64_t *steps;
        int count = snapshot_list(&steps, folder, &error);
        assert_in_range(count, 1, 1 << 20);
        for (int64_t step = 1; step <= steps[0] + 1; step++) {
            snprintf(path, sizeof(path), "%s.tmp.%d", step_path(folder, step), (int)child);
            leftovers += path_exists(path);
        }
        assert_int_equal(snapshot_remove_leftovers(folder, &error), 0);
        for (int64_t step = 1; step <= steps[0] + 1; step++) {
            snprintf(path, sizeof(path), "%s.tmp.%d", step_path(folder, step), (int)child);
            assert_false(path_exists(path));
        }
        Snapshot *snapshot = snapshot_open_newest(folder, &error);
        if (!snapshot) {
            fail_msg("%s", error.text);
        }
        assert_int_equal(snapshot_info(snapshot)->step, steps[0]);
        snapshot_close(snapshot);
        memory_free(steps);
    }
    assert_in_range(leftovers, 1, 500);
    arenas_release(&arenas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_and_names),
        cmocka_unit_test(test_newest_whole_file_is_used),
        cmocka_unit_test(test_prune),
        cmocka_unit_test(test_killed_writer),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
