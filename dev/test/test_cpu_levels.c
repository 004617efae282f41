/* Which level of the instruction set is taken where some do not work, with levels that only pretend. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dev/test/scratch.h"
#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/compute/cpu_levels.h"

static int is_wrong(void)
{
    return 0;
}

static int is_missing(void)
{
    raise(SIGILL);
    return 1;
}

static int is_right(void)
{
    return 1;
}

static const Backend wrong_backend = {.name = "cpu wrong"}, missing_backend = {.name = "cpu missing"},
                     right_backend = {.name = "cpu right"}, last_backend = {.name = "cpu last"};
static const CpuLevel wrong = {&wrong_backend, is_wrong}, missing = {&missing_backend, is_missing},
                      right = {&right_backend, is_right}, last = {&last_backend, is_right};
static const CpuLevel *const *levels;
static int level_count;

/* In the place of this machine's. */
int cpu_levels(const CpuLevel *found[CPU_LEVELS_MAX])
{
    memcpy(found, levels, (size_t)level_count * sizeof(*found));
    return level_count;
}

/* What is chosen, and what is said on stderr meanwhile; the caller frees it with memory_free. */
static const Backend *choose(const CpuLevel *const *some, int count, const char *wanted, char **said,
                             Error *error)
{
    size_t bytes;
    const char *path = scratch_path("stderr");
    levels = some;
    level_count = count;
    setenv("CPU_LEVEL", wanted, 1);
    fflush(stderr);
    int before = dup(STDERR_FILENO);
    assert_non_null(freopen(path, "w", stderr));
    const Backend *backend = cpu_backend(error);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    *said = file_read(path, 4096, &bytes, NULL);
    return backend;
}

static void test_levels_that_fail_are_left_out(void **state)
{
    (void)state;
    const CpuLevel *const some[] = {&wrong, &missing, &right, &last};
    Error error = {.text = ""};
    char *said;
    assert_ptr_equal(choose(some, 4, "", &said, &error), &right_backend);
    assert_non_null(strstr(said, "CPU level wrong: its matrix products come out wrong on this machine"));
    assert_non_null(strstr(said, "CPU level missing: an instruction of it is missing on this machine"));
    assert_null(strstr(said, "right: "));
    memory_free(said);
}

static void test_a_level_may_be_asked_for(void **state)
{
    (void)state;
    const CpuLevel *const some[] = {&right, &wrong, &last};
    Error error = {.text = ""};
    char *said;
    assert_ptr_equal(choose(some, 3, "last", &said, &error), &last_backend);
    assert_string_equal(said, "");
    memory_free(said);
    assert_null(choose(some, 3, "wrong", &said, &error));
    assert_non_null(strstr(error.text, "CPU_LEVEL=wrong: its matrix products come out wrong"));
    memory_free(said);
    assert_null(choose(some, 3, "other", &said, &error));
    assert_non_null(strstr(error.text, "expected one that this machine runs: right wrong last"));
    memory_free(said);
}

static void test_no_level_left_is_an_error(void **state)
{
    (void)state;
    const CpuLevel *const some[] = {&missing};
    Error error = {.text = ""};
    char *said;
    assert_null(choose(some, 1, "", &said, &error));
    assert_non_null(strstr(error.text, "no CPU level works on this machine"));
    memory_free(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_that_fail_are_left_out),
        cmocka_unit_test(test_a_level_may_be_asked_for),
        cmocka_unit_test(test_no_level_left_is_an_error),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
