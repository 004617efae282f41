/* Token shards of both formats, their errors, windows, and the permutation of samples. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <time.h>

#include "dev/test/scratch.h"
#include "llmc/base/clock.h"
#include "llmc/base/memory.h"
#include "llmc/data/dataset.h"
#include "llmc/data/sample_index.h"
#include "llmc/data/shard.h"

enum { TOKENS_MAX = 4096 };

/* A shard of tokens first, first + 1, ... with llm.c's header or without. */
static char *write_shard(const char *name, int first, int count, int has_header)
{
    static unsigned char bytes[SHARD_HEADER_BYTES + 2 * TOKENS_MAX];
    int32_t header[SHARD_HEADER_BYTES / 4] = {SHARD_MAGIC, SHARD_VERSION, count};
    size_t used = has_header ? SHARD_HEADER_BYTES : 0;
    memcpy(bytes, header, used);
    for (int i = 0; i < count; i++) {
        uint16_t token = (uint16_t)(first + i);
        memcpy(bytes + used + 2 * i, &token, sizeof(token));
    }
    return scratch_write(name, bytes, used + 2 * (size_t)count);
}

static void remove_shards(void)
{
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof(name), "part_%d.bin", i);
        unlink(scratch_path(name));
    }
}

/* Every window of a set in order: window w of a shard starts at its token w*T, none crosses an end. */
static void test_windows_of_many_shards(void **state)
{
    (void)state;
    Error error;
    enum { T = 8 };
    const int counts[4] = {33, 8, 100, 9}; /* 4, 0, 12 and 1 windows */
    remove_shards();
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof(name), "part_%d.bin", i);
        write_shard(name, 1000 * i, counts[i], i % 2);
    }
    DataSet *set = data_set_open(scratch_path("part_*.bin"), T, &error);
    if (!set) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(data_set_windows(set), 17);
    assert_int_equal(data_set_tokens(set), 150);
    assert_int_equal(data_set_shards(set), 4);
    int64_t window = 0;
    for (int shard = 0; shard < 4; shard++) {
        for (int first = 0; first + T < counts[shard]; first += T, window++) {
            int32_t tokens[T];
            int32_t targets[T];
            assert_int_equal(data_set_window(set, window, 50257, tokens, targets, &error), 0);
            for (int t = 0; t < T; t++) {
                assert_int_equal(tokens[t], 1000 * shard + first + t);
                assert_int_equal(targets[t], 1000 * shard + first + t + 1);
            }
        }
    }
    assert_int_equal(window, 17);
    data_set_free(set);
}

static uint64_t fingerprint_of(const char *pattern)
{
    Error error;
    DataSet *set = data_set_open(scratch_path(pattern), 8, &error);
    if (!set) {
        fail_msg("%s", error.text);
    }
    uint64_t fingerprint = data_set_fingerprint(set);
    data_set_free(set);
    return fingerprint;
}

static void test_fingerprint_tells_sets_apart(void **state)
{
    (void)state;
    remove_shards();
    write_shard("part_0.bin", 0, 100, 1);
    uint64_t first = fingerprint_of("part_*.bin");
    assert_true(first == fingerprint_of("part_*.bin"));
    assert_true(first == fingerprint_of("part_0.bin"));
    write_shard("part_1.bin", 0, 100, 1);
    uint64_t two = fingerprint_of("part_*.bin");
    assert_true(first != two);
    write_shard("part_1.bin", 0, 101, 1);
    assert_true(two != fingerprint_of("part_*.bin"));
    write_shard("other.bin", 0, 100, 1);
    assert_true(first != fingerprint_of("other.bin"));
}

/* A name with a glob's characters in it is itself where such a file exists. */
static void test_literal_name(void **state)
{
    (void)state;
    Error error;
    write_shard("odd[1].bin", 5, 20, 0);
    DataSet *set = data_set_open(scratch_path("odd[1].bin"), 8, &error);
    if (!set) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(data_set_tokens(set), 20);
    data_set_free(set);
}

static void check_refused(const char *pattern, int T, const char *expected)
{
    Error error = {.text = ""};
    DataSet *set = data_set_open(scratch_path(pattern), T, &error);
    data_set_free(set);
    if (set || !strstr(error.text, expected) || !strstr(error.text, scratch_folder)) {
        fail_msg("%s: expected an error with '%s', found '%s'", pattern, expected, set ? "none" : error.text);
    }
}

/* llm.c's header over `held` bytes of tokens. */
static void write_header(const char *name, int32_t magic, int32_t version, int32_t count, size_t held)
{
    static unsigned char bytes[SHARD_HEADER_BYTES + 2 * TOKENS_MAX];
    int32_t header[3] = {magic, version, count};
    memset(bytes, 0, sizeof(bytes));
    memcpy(bytes, header, sizeof(header));
    scratch_write(name, bytes, SHARD_HEADER_BYTES + held);
}

static void test_bad_shards(void **state)
{
    (void)state;
    check_refused("nothing*.bin", 8, "data_prep/tokenize -o ");
    check_refused("nothing.bin", 8, "found no such file");
    scratch_write("empty.bin", "", 0);
    check_refused("empty.bin", 8, "found an empty file");
    scratch_write("odd.bin", "abc", 3);
    check_refused("odd.bin", 1, "odd number of bytes (3)");
    scratch_write("one.bin", "a", 1);
    check_refused("one.bin", 1, "odd number of bytes (1)");
    write_header("short.bin", SHARD_MAGIC, 1, 1000, 2 * 998);
    check_refused("short.bin", 8, "truncated: header promises 1,000 tokens, file holds 998");
    write_header("half.bin", SHARD_MAGIC, 1, 1000, 2 * 1000 - 1);
    check_refused("half.bin", 8, "truncated: header promises 1,000 tokens, file holds 999");
    write_header("long.bin", SHARD_MAGIC, 1, 1000, 2 * 1001);
    check_refused("long.bin", 8, "too long: header promises 1,000 tokens, file holds 1,001");
    write_header("over.bin", SHARD_MAGIC, 1, 1000, 2 * 1000 + 1);
    check_refused("over.bin", 8, "header promises 1,000 tokens, file holds 1,000 and an odd byte");
    write_header("version.bin", SHARD_MAGIC, 2, 100, 200);
    check_refused("version.bin", 8, "found version 2");
    write_header("negative.bin", SHARD_MAGIC, 1, -5, 200);
    check_refused("negative.bin", 8, "found -5");
    write_header("smallest.bin", SHARD_MAGIC, 1, INT32_MIN, 200);
    check_refused("smallest.bin", 8, "found -2,147,483,648");
    write_header("largest.bin", SHARD_MAGIC, 1, INT32_MAX, 200);
    check_refused("largest.bin", 8, "promises 2,147,483,647 tokens, file holds 100");
    write_header("llama.bin", 20240801, 7, 100, 400);
    check_refused("llama.bin", 8, "Llama 3");
    int32_t cut[4] = {SHARD_MAGIC, 1, 100, 0};
    scratch_write("cut.bin", cut, sizeof(cut));
    check_refused("cut.bin", 8, "expected a header of 1024 bytes, found 16");
    write_header("none.bin", SHARD_MAGIC, 1, 0, 0);
    check_refused("none.bin", 8, "found 0 tokens");
    write_shard("window.bin", 0, 64, 1);
    check_refused("window.bin", 64, "at least block_size + 1 = 65 tokens, found 64 tokens in 1 shard");
    check_refused(".", 8, "regular file");
}

static void test_token_beyond_vocabulary(void **state)
{
    (void)state;
    Error error;
    int32_t tokens[8];
    int32_t targets[8];
    write_shard("vocab.bin", 90, 17, 1); /* 90 .. 106 */
    DataSet *set = data_set_open(scratch_path("vocab.bin"), 8, &error);
    assert_non_null(set);
    assert_int_equal(data_set_window(set, 1, 107, tokens, targets, &error), 0);
    assert_int_equal(data_set_window(set, 0, 99, tokens, targets, &error), 0); /* its last target is 98 */
    assert_int_equal(data_set_window(set, 0, 98, tokens, targets, &error), -1);
    assert_non_null(strstr(error.text, "vocab.bin: token 98 at position 8:"));
    assert_int_equal(data_set_window(set, 1, 100, tokens, targets, &error), -1);
    assert_non_null(strstr(error.text, "token 100 at position 10:"));
    assert_non_null(strstr(error.text, "vocab_size=100"));
    data_set_free(set);
}

/* Another program cuts a shard that is in use: the windows that are left are read, others are an error. */
static void test_a_shard_is_cut_while_in_use(void **state)
{
    (void)state;
    Error error = {.text = ""};
    int32_t tokens[8], targets[8];
    char *path = write_shard("in_use.bin", 10, 65, 1); /* 1,154 bytes, 8 windows */
    DataSet *set = data_set_open(path, 8, &error);
    assert_non_null(set);
    assert_int_equal(data_set_window(set, 7, 50257, tokens, targets, &error), 0);
    assert_int_equal(targets[7], 10 + 64);
    assert_int_equal(truncate(path, SHARD_HEADER_BYTES + 2 * 64), 0);
    assert_int_equal(data_set_window(set, 6, 50257, tokens, targets, &error), 0);
    assert_int_equal(data_set_window(set, 7, 50257, tokens, targets, &error), -1);
    assert_non_null(strstr(error.text, path));
    assert_non_null(
        strstr(error.text, "in_use.bin: was cut while in use: expected 1,154 bytes, found 1,152"));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(data_set_window(set, 0, 50257, tokens, targets, &error), -1);
    assert_non_null(strstr(error.text, "expected 1,154 bytes, found 0"));
    data_set_free(set);
}

static void test_more_shards_than_descriptors(void **state)
{
    (void)state;
    enum { SHARDS = 60, DESCRIPTORS = 32 };
    Error error = {.text = ""};
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < SHARDS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "many_%02d.bin", i);
        write_shard(name, 100 * i, 9, i % 2);
    }
    struct rlimit low = {.rlim_cur = DESCRIPTORS, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    DataSet *set = data_set_open(scratch_path("many_*.bin"), 8, &error);
    int status = setrlimit(RLIMIT_NOFILE, &before);
    if (!set) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(status, 0);
    for (int i = 0; i < SHARDS; i++) {
        int32_t tokens[8], targets[8];
        assert_int_equal(data_set_window(set, i, 50257, tokens, targets, &error), 0);
        assert_int_equal(tokens[0], 100 * i);
    }
    data_set_free(set);
}

/* A sparse file of 20 GB opens without being read: in no time and almost no memory. */
static void test_huge_set_opens_at_once(void **state)
{
    (void)state;
    Error error;
    const char *path = scratch_path("huge.bin");
    int descriptor = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(descriptor >= 0);
    assert_int_equal(ftruncate(descriptor, 20LL << 30), 0);
    close(descriptor);
    size_t peak_before = memory_peak_bytes();
    clock_t begin = clock(); /* of the processor, whoever else uses it */
    DataSet *set = data_set_open(path, 1024, &error);
    assert_non_null(set);
    int32_t tokens[1024];
    int32_t targets[1024];
    int64_t last = data_set_windows(set) - 1;
    assert_int_equal(data_set_window(set, last, 50257, tokens, targets, &error), 0);
    double elapsed_ms = 1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_int_equal(data_set_windows(set), ((10LL << 30) - 1) / 1024);
    data_set_free(set);
    unlink(path);
    if (elapsed_ms > 500 || memory_peak_bytes() - peak_before > (16u << 20)) {
        fail_msg("opened in %.1f ms with %zu bytes more", elapsed_ms, memory_peak_bytes() - peak_before);
    }
}

/* Every window exactly once an epoch, for every small W and around powers of two. */
static void test_permutation_is_bijective(void **state)
{
    (void)state;
    enum { LARGEST = 70000 };
    static unsigned char seen[LARGEST];
    int sizes[400];
    int size_count = 0;
    for (int W = 1; W <= 300; W++) {
        sizes[size_count++] = W;
    }
    for (int bits = 9; bits <= 16; bits++) {
        for (int delta = -1; delta <= 1; delta++) {
            sizes[size_count++] = (1 << bits) + delta;
        }
    }
    sizes[size_count++] = LARGEST;
    for (int i = 0; i < size_count; i++) {
        int W = sizes[i];
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, (size_t)W);
            for (int position = 0; position < W; position++) {
                int64_t window = sample_index(epoch * (uint64_t)W + (uint64_t)position, W, 1337, 1);
                if (window < 0 || window >= W || seen[window]++) {
                    fail_msg("W=%d epoch %d: position %d gives window %lld a second time or out of range", W,
                             (int)epoch, position, (long long)window);
                }
            }
        }
    }
}

static void test_large_sets_stay_in_range(void **state)
{
    (void)state;
    const int64_t sizes[] = {((int64_t)1 << 33) - 5, ((int64_t)1 << 40) + 1, ((int64_t)1 << 47) + 3};
    for (int i = 0; i < 3; i++) {
        for (uint64_t n = 0; n < 1000; n++) {
            int64_t window = sample_index(n, sizes[i], 7, 1);
            if (window < 0 || window >= sizes[i]) {
                fail_msg("W=%lld: sample %d gives window %lld", (long long)sizes[i], (int)n,
                         (long long)window);
            }
        }
    }
    /* The counter of samples goes far beyond what an int holds. */
    assert_in_range(sample_index(UINT64_MAX, 1000, 7, 1), 0, 999);
}

static void test_identity_without_shuffle(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 100; n++) {
        assert_int_equal(sample_index(n, 7, 3, 0), n % 7);
    }
}

/* Two permutations of W agree at about one place; 12 or more has probability 1e-9. */
static void test_epochs_and_seeds_differ(void **state)
{
    (void)state;
    enum { W = 5000 };
    for (uint64_t other = 1; other < 50; other++) {
        int same_epoch = 0;
        int same_seed = 0;
        int in_place = 0;
        for (uint64_t n = 0; n < W; n++) {
            int64_t base = sample_index(n, W, 1337, 1);
            same_epoch += base == sample_index(other * W + n, W, 1337, 1);
            same_seed += base == sample_index(n, W, 1337 + other, 1);
            in_place += sample_index(n, W, other, 1) == (int64_t)n;
        }
        if (same_epoch >= 12 || same_seed >= 12 || in_place >= 12) {
            fail_msg("epoch or seed %d: %d, %d and %d places agree", (int)other, same_epoch, same_seed,
                     in_place);
        }
    }
}

/* Where position p goes over many epochs has to look uniform: chi-square with W-1 degrees of freedom stays
 * within five standard deviations of its mean. Also for neighbours: the step from p to p+1 modulo W (never
 * 0). */
static void test_positions_are_uniform(void **state)
{
    (void)state;
    enum { EPOCHS = 20000, W_MAX = 100 };
    const int sizes[] = {2, 3, 4, 5, 16, 17, 100};
    for (int i = 0; i < 7; i++) {
        int W = sizes[i];
        for (int position = 0; position + 1 < W; position += W > 8 ? W / 4 : 1) {
            int places[W_MAX] = {0};
            int steps[W_MAX] = {0};
            for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
                uint64_t n = epoch * (uint64_t)W + (uint64_t)position;
                int64_t here = sample_index(n, W, 42, 1);
                int64_t next = sample_index(n + 1, W, 42, 1);
                places[here]++;
                steps[(next - here + W) % W]++;
            }
            double chi_places = 0;
            double chi_steps = 0;
            for (int w = 0; w < W; w++) {
                double expected = (double)EPOCHS / W;
                double expected_step = w ? (double)EPOCHS / (W - 1) : 0;
                chi_places += pow(places[w] - expected, 2) / expected;
                chi_steps += w ? pow(steps[w] - expected_step, 2) / expected_step : 0;
            }
            assert_int_equal(steps[0], 0);
            double places_max = (W - 1) + 5 * sqrt(2.0 * (W - 1)) + 10;
            double steps_max = (W - 2) + 5 * sqrt(2.0 * W) + 10;
            if (chi_places > places_max || chi_steps > steps_max) {
                fail_msg("W=%d position %d: chi-square %.1f of places, %.1f of steps", W, position,
                         chi_places, chi_steps);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_of_many_shards),
        cmocka_unit_test(test_fingerprint_tells_sets_apart),
        cmocka_unit_test(test_literal_name),
        cmocka_unit_test(test_bad_shards),
        cmocka_unit_test(test_token_beyond_vocabulary),
        cmocka_unit_test(test_a_shard_is_cut_while_in_use),
        cmocka_unit_test(test_more_shards_than_descriptors),
        cmocka_unit_test(test_huge_set_opens_at_once),
        cmocka_unit_test(test_permutation_is_bijective),
        cmocka_unit_test(test_large_sets_stay_in_range),
        cmocka_unit_test(test_identity_without_shuffle),
        cmocka_unit_test(test_epochs_and_seeds_differ),
        cmocka_unit_test(test_positions_are_uniform),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
