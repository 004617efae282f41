/* A folder of snapshots: what is listed, which one a run resumes from, what is deleted. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "dev/test/snapshot_fixture.h"
#include "llmc/base/folder_lock.h"

/* The linker takes this readdir for the library's. It fails once, after readdir_fails entries; at the end
 * of a folder it deletes a file, as a run that trains there may. */
static int readdir_fails = -1;
static const char *goes_away;

struct dirent *readdir(DIR *folder)
{
    static struct dirent *(*next)(DIR *);
    if (!next) {
        *(void **)&next = dlsym(RTLD_NEXT, "readdir");
    }
    if (readdir_fails >= 0 && readdir_fails-- == 0) {
        errno = EIO;
        return NULL;
    }
    struct dirent *entry = next(folder);
    if (!entry && goes_away) {
        unlink(goes_away);
        goes_away = NULL;
    }
    return entry;
}

/* An error of readdir is not the end of the folder, behind which no snapshots would be. */
static void test_errors_of_readdir(void **state)
{
    (void)state;
    Error error;
    int64_t *steps;
    char name[SNAPSHOT_FILE_BYTES_MAX];
    Arenas arenas;
    arenas_init(&arenas, &small);
    const char *folder = new_folder();
    write_step(folder, 10, &arenas, 0);
    for (int after = 0; after < 3; after++) {
        readdir_fails = after;
        assert_int_equal(snapshot_list(&steps, folder, &error), -1);
        assert_null(steps);
        assert_non_null(strstr(error.text, "cannot list the folder: Input/output error"));
        readdir_fails = after;
        assert_null(snapshot_open_newest(NULL, folder, 1, &error));
        assert_non_null(strstr(error.text, "Input/output error"));
        readdir_fails = after;
        assert_int_equal(snapshot_find_damaged(name, folder, &error), -1);
        readdir_fails = after;
        assert_int_equal(snapshot_prune(folder, 1, 0, &error), -1);
        readdir_fails = after;
        assert_int_equal(snapshot_remove_leftovers(folder, &error), -1);
    }
    readdir_fails = -1;
    assert_int_equal(snapshot_list(&steps, folder, &error), 1);
    memory_free(steps);
    arenas_release(&arenas);
}

/* Something else under a snapshot's name is named at once, and left where it is: who put it there knows. */
static void test_other_kinds_of_files(void **state)
{
    (void)state;
    Error error;
    Arenas arenas;
    arenas_init(&arenas, &small);
    const char *folder = new_folder();
    write_step(folder, 10, &arenas, 0);
    const char *path = step_path(folder, 20);
    static const char *const kinds[] = {"a FIFO", "a folder", "a link to nothing that is there"};
    alarm(60); /* opening a FIFO would wait for ever */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(i == 0   ? mkfifo(path, 0600)
                         : i == 1 ? mkdir(path, 0700)
                                  : symlink("nowhere", path),
                         0);
        for (int is_owner = 0; is_owner < 2; is_owner++) {
            assert_null(snapshot_open_newest(NULL, folder, is_owner, &error));
            if (!strstr(error.text, "step-00000020.snap: expected a regular file") ||
                !strstr(error.text, kinds[i])) {
                fail_msg("expected the error to name %s, found '%s'", kinds[i], error.text);
            }
        }
        assert_int_equal(remove(path), 0);
    }
    alarm(0);
    arenas_release(&arenas);
}

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
static Snapshot *open_newest_quietly(char *said, size_t said_bytes, const char *folder, int is_owner,
                                     Error *error)
{
    fflush(stderr);
    int before = dup(2);
    FILE *capture = tmpfile();
    dup2(fileno(capture), 2);
    Snapshot *snapshot = snapshot_open_newest(NULL, folder, is_owner, error);
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
    assert_null(snapshot_open_newest(NULL, folder, 1, &error));
    assert_non_null(strstr(error.text, "found none; use init_from=scratch"));
    for (int64_t step = 10; step <= 50; step += 10) {
        write_step(folder, step, &arenas, 0);
    }
    damage(step_path(folder, 50));
    assert_int_equal(rename(step_path(folder, 10), step_path(folder, 40)), 0); /* swapped */
    Snapshot *snapshot = open_newest_quietly(said, sizeof(said), folder, 1, &error);
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
    assert_null(open_newest_quietly(said, sizeof(said), folder, 1, &error));
    assert_non_null(strstr(error.text, "found 2, all damaged"));
    arenas_release(&arenas);
}

/* A run that only reads does not rename in a folder that another owns, and finds what is there when the other
 * deletes old snapshots. */
static void test_reading_beside_an_owner(void **state)
{
    (void)state;
    Error error;
    char said[4096];
    Arenas arenas;
    arenas_init(&arenas, &small);
    const char *folder = new_folder();
    for (int64_t step = 10; step <= 40; step += 10) {
        write_step(folder, step, &arenas, 0);
    }
    damage(step_path(folder, 40));
    FolderLock lock; /* of another open file: as another process has it */
    assert_int_equal(folder_lock_take(&lock, folder, 0, &error), 0);
    goes_away = step_path(folder, 30);
    Snapshot *snapshot = open_newest_quietly(said, sizeof(said), folder, 0, &error);
    if (!snapshot) {
        fail_msg("%s", error.text);
    }
    assert_null(goes_away);
    assert_int_equal(snapshot_info(snapshot)->step, 20);
    snapshot_close(snapshot);
    assert_non_null(strstr(said, "step-00000040.snap: damaged"));
    assert_non_null(strstr(said, "passed over"));
    assert_true(path_exists(step_path(folder, 40)));
    folder_lock_release(&lock);
    snapshot = open_newest_quietly(said, sizeof(said), folder, 0, &error); /* now nobody does */
    assert_int_equal(snapshot_info(snapshot)->step, 20);
    snapshot_close(snapshot);
    assert_false(path_exists(step_path(folder, 40)));
    assert_int_equal(snapshot_find_damaged(said, folder, &error), 1);
    assert_string_equal(said, "step-00000040.snap.damaged");
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

/* How many entries of a folder have a text in their names. */
static int count_names(const char *folder, const char *text)
{
    int count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        count += strstr(entry->d_name, text) != NULL;
    }
    closedir(entries);
    return count;
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
        int64_t *steps;
        int count = snapshot_list(&steps, folder, &error);
        assert_in_range(count, 1, 1 << 20);
        leftovers += count_names(folder, ".snap.tmp.");
        assert_int_equal(snapshot_remove_leftovers(folder, &error), 0);
        assert_int_equal(count_names(folder, ".snap.tmp."), 0);
        Snapshot *snapshot = snapshot_open_newest(NULL, folder, 1, &error);
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
        cmocka_unit_test(test_errors_of_readdir),       cmocka_unit_test(test_other_kinds_of_files),
        cmocka_unit_test(test_list_and_names),          cmocka_unit_test(test_newest_whole_file_is_used),
        cmocka_unit_test(test_reading_beside_an_owner), cmocka_unit_test(test_prune),
        cmocka_unit_test(test_killed_writer),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
