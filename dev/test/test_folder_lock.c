/* One process at a time owns a folder; its lock ends with it, and names it to others. How much memory this
 * process may use. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "dev/test/scratch.h"
#include "dev/test/time_scale.h"
#include "llmc/base/clock.h"
#include "llmc/base/folder_lock.h"
#include "llmc/base/memory_room.h"

static char *new_folder(const char *name)
{
    Error error;
    char *path = scratch_path(name);
    assert_int_equal(folder_create(path, &error), 0);
    return path;
}

/* A child that takes the lock, says so, and holds it until the pipe that it reads is closed. */
typedef struct Holder {
    pid_t process;
    int release_write;
} Holder;

static Holder hold(const char *folder)
{
    int ready[2], release[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(release), 0);
    Holder holder = {fork(), release[1]};
    if (holder.process == 0) {
        FolderLock lock;
        char byte = 'x';
        close(release[1]);
        int status = folder_lock_take(&lock, folder, 0, NULL);
        if (write(ready[1], &byte, 1) != 1 || read(release[0], &byte, 1) != 0) {
            status = -1;
        }
        folder_lock_release(&lock);
        _exit(status == 0 ? 0 : 1);
    }
    char byte;
    close(release[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return holder;
}

static int end_holder(Holder holder)
{
    int status;
    close(holder.release_write);
    assert_int_equal(waitpid(holder.process, &status, 0), holder.process);
    return status;
}

static void test_the_second_is_told_who_holds_it(void **state)
{
    (void)state;
    char *folder = new_folder("second");
    Error error = {.text = ""};
    FolderLock lock;
    char expected[160], host[64] = "";
    Holder holder = hold(folder);
    assert_int_equal(folder_lock_take(&lock, folder, 0, &error), FOLDER_IN_USE);
    gethostname(host, sizeof(host) - 1);
    snprintf(expected, sizeof(expected), "in use by process %d on %s since 20", (int)holder.process, host);
    if (!strstr(error.text, expected) || !strstr(error.text, folder)) {
        fail_msg("expected '%s: %s', found '%s'", folder, expected, error.text);
    }
    folder_lock_release(&lock); /* which is not held */
    assert_int_equal(folder_lock_take(&lock, folder, 0, &error), FOLDER_IN_USE);
    assert_int_equal(end_holder(holder), 0);
    assert_int_equal(folder_lock_take(&lock, folder, 0, &error), 0);
    assert_true(path_exists(lock.path));
    folder_lock_release(&lock);
    assert_false(path_exists(lock.path));
}

static void test_it_dies_with_the_process(void **state)
{
    (void)state;
    char *folder = new_folder("killed");
    Error error = {.text = ""};
    FolderLock lock;
    Holder holder = hold(folder);
    kill(holder.process, SIGKILL);
    assert_true(WIFSIGNALED(end_holder(holder)));
    if (folder_lock_take(&lock, folder, 0, &error) != 0) {
        fail_msg("%s", error.text);
    }
    folder_lock_release(&lock);
}

static void test_waiting_for_one_that_ends(void **state)
{
    (void)state;
    char *folder = new_folder("waiting");
    Error error = {.text = ""};
    Holder holder = hold(folder);
    pid_t waiter = fork();
    if (waiter == 0) {
        FolderLock lock;
        int status = folder_lock_take(&lock, folder, 60e3 * time_scale(), &error);
        folder_lock_release(&lock);
        _exit(status == 0 ? 0 : 1);
    }
    int status;
    close(holder.release_write); /* this process has a copy of it; the waiter too */
    kill(holder.process, SIGTERM);
    assert_int_equal(waitpid(waiter, &status, 0), waiter);
    assert_int_equal(status, 0);
    waitpid(holder.process, &status, 0);
}

/* Many processes come and go: never are two inside, although each removes the file when it goes. */
static void test_never_two(void **state)
{
    (void)state;
    enum { PROCESSES = 6, TURNS = 60 };
    char *folder = new_folder("crowd");
    char *inside = scratch_path("inside");
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            for (int turn = 0; turn < TURNS; turn++) {
                FolderLock lock;
                if (folder_lock_take(&lock, folder, 0, NULL) != 0) {
                    turn--;
                    continue;
                }
                int descriptor = open(inside, O_CREAT | O_EXCL | O_WRONLY, 0600);
                if (descriptor < 0) {
                    _exit(1);
                }
                close(descriptor);
                unlink(inside);
                folder_lock_release(&lock);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        wait(&status);
        assert_int_equal(status, 0);
    }
}

/* What another program left under the lock's name is not printed as it is, nor waited for. */
static void test_foreign_files(void **state)
{
    (void)state;
    char *folder = new_folder("foreign"), path[PATH_BYTES_MAX];
    Error error = {.text = ""};
    FolderLock lock;
    Holder holder = hold(folder);
    assert_int_equal(path_join(path, folder, ".lock", &error), 0);
    FILE *file = fopen(path, "w");
    fputs("process 1 \033[31m on nowhere\n", file);
    fclose(file);
    assert_int_equal(folder_lock_take(&lock, folder, 0, &error), FOLDER_IN_USE);
    assert_null(strchr(error.text, '\033'));
    assert_non_null(strstr(error.text, "in use by process 1 ;"));
    assert_int_equal(end_holder(holder), 0);

    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(folder_lock_take(&lock, folder, 0, &error), -1);
    assert_non_null(strstr(error.text, "expected a regular file, found a FIFO"));
    unlink(path);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_int_equal(folder_lock_take(&lock, folder, 0, &error), -1);
    assert_int_equal(folder_lock_take(&lock, scratch_path("no such folder"), 0, &error), -1);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static void put(const char *name, const char *text)
{
    Error error;
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/%s", scratch_folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(folder_create(path, &error), 0);
    *slash = '/';
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static MemoryRoom room_of(const char *cgroups)
{
    MemoryRoom room;
    put("cgroup", cgroups);
    memory_room_from(&room, scratch_path("meminfo"), scratch_path("cgroup"), scratch_path("cg"));
    return room;
}

static void test_memory_room(void **state)
{
    (void)state;
    put("meminfo", "MemTotal:        8000 kB\nMemFree: 100 kB\nMemAvailable:    6000 kB\n");
    MemoryRoom room = room_of("0::/nowhere\n");
    assert_string_equal(room.owner, "this machine");
    assert_int_equal(room.limit_bytes, 8000 << 10);
    assert_int_equal(room.free_bytes, 6000 << 10);

    put("cg/a/b/memory.max", "max\n");
    put("cg/a/memory.max", "4096000\n"); /* of a cgroup above */
    put("cg/a/memory.current", "1000000\n");
    put("cg/a/memory.stat", "anon 5\nfile 700000\ninactive_file 300000\nactive_file 200000\n");
    room = room_of("0::/a/b\n");
    assert_string_equal(room.owner, "this container (cgroup)");
    assert_int_equal(room.limit_bytes, 4096000);
    assert_int_equal(room.free_bytes, 4096000 - 500000);

    put("cg/memory/memory.limit_in_bytes",
        "2048000\n"); /* version 1, in a container: the path is the host's */
    put("cg/memory/memory.usage_in_bytes", "2000000\n");
    put("cg/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\ntotal_active_file 2000\n");
    room = room_of("7:cpuset:/x\n5:memory:/docker/0123\n");
    assert_int_equal(room.limit_bytes, 2048000);
    assert_int_equal(room.free_bytes, 48000 + 3000);
    put("cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    room = room_of("5:memory:/docker/0123\n");
    assert_string_equal(room.owner, "this machine");

    memory_room(&room); /* of this machine itself */
    assert_true(room.limit_bytes > 1 << 20 && room.free_bytes > 0 && room.free_bytes <= room.limit_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_second_is_told_who_holds_it),
        cmocka_unit_test(test_it_dies_with_the_process),
        cmocka_unit_test(test_waiting_for_one_that_ends),
        cmocka_unit_test(test_never_two),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_memory_room),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
