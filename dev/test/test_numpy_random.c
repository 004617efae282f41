/* Numbers and permutations are numpy's: against values that numpy gave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/test/numpy_permutations.h"
#include "llmc/base/memory.h"
#include "llmc/base/numpy_random.h"

enum {
    RAW_ROWS = sizeof(raw_rows) / sizeof(raw_rows[0]),
    PERMUTATION_ROWS = sizeof(permutation_rows) / sizeof(permutation_rows[0])
};

static void test_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < RAW_ROWS; i++) {
        NumpyRandom random;
        numpy_random_init(&random, raw_rows[i].seed);
        for (int k = 0; k < 4; k++) {
            assert_true(numpy_random_next(&random) == raw_rows[i].numbers[k]);
        }
    }
}

static void test_permutations(void **state)
{
    (void)state;
    for (int i = 0; i < PERMUTATION_ROWS; i++) {
        const PermutationRow *row = &permutation_rows[i];
        uint32_t *order = memory_alloc(row->count, sizeof(*order), "permutation");
        numpy_permutation(order, row->count, row->seed);
        uint64_t hash = 0xcbf29ce484222325u;
        for (uint32_t k = 0; k < row->count; k++) {
            hash = (hash ^ order[k]) * 0x100000001b3u;
        }
        for (uint32_t k = 0; k < 3 && k < row->count; k++) {
            assert_int_equal(order[k], row->first[k]);
        }
        memory_free(order);
        if (hash != row->hash) {
            fail_msg("seed %llu, %u numbers: expected hash %016llx, found %016llx",
                     (unsigned long long)row->seed, row->count, (unsigned long long)row->hash,
                     (unsigned long long)hash);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_permutations),
    };
    return cmocka_run_group_tests_name("numpy_random", tests, NULL, NULL);
}
