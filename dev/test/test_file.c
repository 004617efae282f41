/* Files: whole or not at all, durable folders, kinds of files, standard descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"

/* Which folders were synced: the linker takes this fsync for the library's. */
static ino_t synced[64];
static int synced_count;

int fsync(int descriptor)
{
    struct stat status;
    if (fstat(descriptor, &status) == 0 && synced_count < 64) {
        synced[synced_count++] = status.st_ino;
    }
    return (int)syscall(SYS_fsync, descriptor);
}

static int is_synced(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    for (int i = 0; i < synced_count; i++) {
        if (synced[i] == status.st_ino) {
            return 1;
        }
    }
    return 0;
}

/* A folder that was made is there after a power cut, and so are its parents. */
static void test_new_folders_are_durable(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_file_XXXXXX", path[PATH_BYTES_MAX];
    Error error;
    assert_non_null(mkdtemp(folder));
    path_join(path, folder, "a/b/c", &error);
    synced_count = 0;
    assert_int_equal(folder_create(path, &error), 0);
    for (int i = 0; i < 3; i++) {
        *strrchr(path, '/') = '\0'; /* the parents: FOLDER/a/b, FOLDER/a, FOLDER */
        assert_true(is_synced(path));
    }
    synced_count = 0;
    path_join(path, folder, "a/b/c", &error);
    assert_int_equal(folder_create(path, &error), 0); /* which is there: nothing to do */
    assert_int_equal(synced_count, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rmdir(path), 0);
        *strrchr(path, '/') = '\0';
    }
}

/* Two writers of one file, even with one process id in two containers, have files of their own; a link that
 * somebody put there is not followed. */
static void test_temporary_names(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_file_XXXXXX", path[PATH_BYTES_MAX], own[64];
    Error error;
    AtomicFile first, second;
    assert_non_null(mkdtemp(folder));
    path_join(path, folder, "file", &error);
    assert_int_equal(atomic_file_init(&first, path, &error), 0);
    assert_int_equal(atomic_file_init(&second, path, &error), 0);
    assert_string_not_equal(first.temporary_path, second.temporary_path);
    assert_memory_equal(first.temporary_path + strlen(path), ".tmp.", 5);
    snprintf(own, sizeof(own), ".tmp.%d", (int)getpid());
    assert_null(strstr(first.temporary_path, own));
    assert_int_equal(strlen(first.temporary_path + strlen(path) + 5), 16); /* hex digits */
    assert_int_equal(atomic_file_write(&first, "1", 1, &error), 0);
    assert_int_equal(atomic_file_write(&second, "22", 2, &error), 0);
    assert_int_equal(atomic_file_commit(&first, &error), 0);
    assert_int_equal(atomic_file_commit(&second, &error), 0);
    size_t bytes;
    char *text = file_read(path, 10, &bytes, &error);
    assert_string_equal(text, "22");
    memory_free(text);
    assert_int_equal(symlink(path, first.temporary_path), 0); /* the name that this process would take */
    assert_int_equal(atomic_file_init(&second, path, &error), 0);
    atomic_file_discard(&second);
    assert_int_equal(unlink(first.temporary_path), 0);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

/* What is no regular file is an error at once, whatever opens it. */
static void test_kinds_of_files(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_file_XXXXXX", path[PATH_BYTES_MAX];
    Error error;
    MappedFile mapped;
    OpenFile opened;
    size_t bytes;
    assert_non_null(mkdtemp(folder));
    path_join(path, folder, "it", &error);
    static const char *const kinds[] = {"a FIFO", "a folder", "a link to nothing that is there", "a device"};
    alarm(60); /* opening a FIFO would wait for ever */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(i == 0   ? mkfifo(path, 0600)
                         : i == 1 ? mkdir(path, 0700)
                         : i == 2 ? symlink("nowhere", path)
                                  : symlink("/dev/null", path),
                         0);
        assert_int_equal(mapped_file_init(&mapped, path, &error), -1);
        assert_non_null(strstr(error.text, kinds[i]));
        assert_int_equal(open_file_init(&opened, path, &error), -1);
        assert_non_null(strstr(error.text, kinds[i]));
        assert_null(file_read(path, 10, &bytes, &error));
        assert_non_null(strstr(error.text, kinds[i]));
        assert_int_equal(remove(path), 0);
    }
    alarm(0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_atomic_file_appears_whole_or_not_at_all(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_file_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[PATH_BYTES_MAX];
    Error error;
    AtomicFile file;
    assert_int_equal(path_join(path, folder, "file", &error), 0);
    assert_int_equal(atomic_file_init(&file, path, &error), 0);
    assert_int_equal(atomic_file_write(&file, "xbc", 3, &error), 0);
    assert_int_equal(atomic_file_write_at(&file, 0, "a", 1, &error), 0);
    assert_false(path_exists(path));
    assert_int_equal(atomic_file_commit(&file, &error), 0);
    atomic_file_discard(&file);
    size_t bytes;
    char *data = file_read(path, 10, &bytes, &error);
    assert_non_null(data);
    assert_string_equal(data, "abc");
    memory_free(data);
    assert_null(file_read(path, 2, &bytes, &error));
    assert_non_null(strstr(error.text, "at most 2 bytes"));
    assert_int_equal(atomic_file_init(&file, path, &error), 0);
    assert_int_equal(atomic_file_write(&file, "other", 5, &error), 0);
    atomic_file_discard(&file);
    data = file_read(path, 10, &bytes, &error);
    assert_string_equal(data, "abc");
    memory_free(data);
    assert_false(path_exists(file.temporary_path));
    unlink(path);
    assert_int_equal(path_join(path, folder, "no/such/folder", &error), 0);
    assert_int_equal(atomic_file_init(&file, path, &error), -1);
    assert_int_equal(folder_create(path, &error), 0);
    assert_true(path_is_folder(path));
    for (int i = 0; i < 3; i++) {
        rmdir(path);
        *strrchr(path, '/') = '\0';
    }
    rmdir(folder);
}

/* After each of the eight ways to close standard descriptors the next file gets none of their numbers, and
 * what was closed still cannot be used. */
static void test_standard_descriptors_are_reserved(void **state)
{
    (void)state;
    for (int closed = 0; closed < 8; closed++) {
        pid_t child = fork();
        if (child == 0) {
            char byte;
            int is_right = 1;
            for (int d = 0; d < 3; d++) {
                if (closed >> d & 1) {
                    close(d);
                }
            }
            file_reserve_standard();
            is_right &= open("/dev/null", O_RDONLY) > 2;
            is_right &= !(closed & 1) || (read(0, &byte, 1) < 0 && errno == EBADF);
            for (int d = 1; d < 3; d++) {
                is_right &= !(closed >> d & 1) || (write(d, "", 1) < 0 && errno == EBADF);
            }
            _exit(is_right ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_atomic_file_appears_whole_or_not_at_all),
        cmocka_unit_test(test_new_folders_are_durable),
        cmocka_unit_test(test_temporary_names),
        cmocka_unit_test(test_kinds_of_files),
        cmocka_unit_test(test_standard_descriptors_are_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
