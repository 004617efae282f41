/* How finished ranges of the arena are cut into buckets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "llmc/comm/buckets.h"

enum { LAUNCHES_MAX = 64 };

typedef struct Launches {
    Bucket buckets[LAUNCHES_MAX];
    int count;
} Launches;

static void note(void *context, Bucket bucket)
{
    Launches *launches = context;
    assert_true(launches->count < LAUNCHES_MAX);
    launches->buckets[launches->count++] = bucket;
}

static Buckets cutter(Launches *launches, int64_t element_bytes, int64_t bucket_bytes)
{
    *launches = (Launches){.count = 0};
    Buckets buckets = {
        .element_bytes = element_bytes, .bucket_bytes = bucket_bytes, .launch = note, .context = launches};
    buckets_begin(&buckets);
    return buckets;
}

static void assert_bucket(Bucket bucket, int64_t offset, int64_t count)
{
    assert_int_equal(bucket.offset, offset);
    assert_int_equal(bucket.count, count);
}

static void test_ranges_that_join_are_cut_from_the_top(void **state)
{
    (void)state;
    Launches launches;
    Buckets buckets = cutter(&launches, 8, 80);
    buckets_add(&buckets, 94, 6);
    assert_int_equal(launches.count, 0);
    buckets_add(&buckets, 69, 25);
    assert_int_equal(launches.count, 3);
    assert_bucket(launches.buckets[0], 90, 10);
    assert_bucket(launches.buckets[1], 80, 10);
    assert_bucket(launches.buckets[2], 70, 10);
    assert_int_equal(buckets.covered_count, 31);
    buckets_finish(&buckets);
    assert_bucket(launches.buckets[3], 69, 1);
    buckets_finish(&buckets);
    assert_int_equal(launches.count, 4);
}

static void test_a_gap_ends_a_bucket(void **state)
{
    (void)state;
    Launches launches;
    Buckets buckets = cutter(&launches, 4, 40);
    buckets_add(&buckets, 50, 3);
    buckets_add(&buckets, 0, 4); /* the last range first: another tensor */
    buckets_finish(&buckets);
    assert_int_equal(launches.count, 2);
    assert_bucket(launches.buckets[0], 50, 3);
    assert_bucket(launches.buckets[1], 0, 4);
}

static void test_the_first_bucket_is_small(void **state)
{
    (void)state;
    Launches launches;
    int64_t million = 1 << 20;
    Buckets buckets = cutter(&launches, 8, 25 * million);
    buckets_add(&buckets, 0, 10 * million);
    buckets_finish(&buckets);
    assert_bucket(launches.buckets[0], 10 * million - million / 8, million / 8);
    for (int i = 1; i < launches.count - 1; i++) {
        assert_int_equal(launches.buckets[i].count, 25 * million / 8);
    }
    assert_true(launches.count <= buckets_most(10 * million, 8, 25 * million, 0));
    buckets_begin(&buckets); /* the next step is cut alike */
    int before = launches.count;
    buckets_add(&buckets, 0, 10 * million);
    assert_bucket(launches.buckets[before], 10 * million - million / 8, million / 8);
}

static void test_the_last_range_is_not_cut(void **state)
{
    (void)state;
    Launches launches;
    Buckets buckets = cutter(&launches, 8, 80);
    buckets_add(&buckets, 100, 17);
    buckets_add_last(&buckets, 0, 100);
    assert_int_equal(launches.count, 2);
    assert_bucket(launches.buckets[0], 107, 10);
    assert_bucket(launches.buckets[1], 0, 107);
    assert_int_equal(buckets.covered_count, 117);
    buckets_begin(&buckets);
    buckets_add(&buckets, 200, 5);
    buckets_add_last(&buckets, 0, 50); /* beyond a gap */
    assert_int_equal(launches.count, 4);
    assert_bucket(launches.buckets[2], 200, 5);
    assert_bucket(launches.buckets[3], 0, 50);
}

static void test_elements_larger_than_a_bucket(void **state)
{
    (void)state;
    Launches launches;
    Buckets buckets = cutter(&launches, 8, 3);
    buckets_add(&buckets, 7, 2);
    assert_int_equal(launches.count, 2);
    assert_bucket(launches.buckets[0], 8, 1);
    assert_bucket(launches.buckets[1], 7, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_that_join_are_cut_from_the_top),
        cmocka_unit_test(test_a_gap_ends_a_bucket),
        cmocka_unit_test(test_the_first_bucket_is_small),
        cmocka_unit_test(test_the_last_range_is_not_cut),
        cmocka_unit_test(test_elements_larger_than_a_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
