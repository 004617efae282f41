/* base: random numbers against published vectors and moments, hashes, error lines, bf16
 * rounding. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "dev/test/time_scale.h"
#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/format.h"
#include "llmc/base/hash.h"
#include "llmc/base/memory.h"
#include "llmc/base/random.h"
#include "llmc/compute/arena_chunks.h"
#include "llmc/model/dtype.h"
#include "llmc/model/params.h"

/* Known answers of the Random123 distribution (kat_vectors, philox4x32 10): counter and key all zero, all
 * ones, digits of pi. The key's layout here is counter (block low, block high, step, purpose and slot), key
 * (seed low, high). */
static void test_philox_known_answers(void **state)
{
    (void)state;
    uint32_t numbers[4];
    RandomKey zero = {0};
    random_block(numbers, &zero, 0);
    const uint32_t expected_zero[4] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
    assert_memory_equal(numbers, expected_zero, sizeof(numbers));
    RandomKey ones = {
        .seed = UINT64_MAX, .purpose = (RandomPurpose)0xff, .step = UINT32_MAX, .slot = 0xffffff};
    random_block(numbers, &ones, UINT64_MAX);
    const uint32_t expected_ones[4] = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
    assert_memory_equal(numbers, expected_ones, sizeof(numbers));
    RandomKey pi = {
        .seed = 0x299f31d0a4093822u, .purpose = (RandomPurpose)0x03, .step = 0x13198a2eu, .slot = 0x707344};
    random_block(numbers, &pi, 0x85a308d3243f6a88u);
    const uint32_t expected_pi[4] = {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u};
    assert_memory_equal(numbers, expected_pi, sizeof(numbers));
}

static void test_normal_moments_and_splits(void **state)
{
    (void)state;
    enum { COUNT = 1 << 20 };
    float *whole = memory_alloc(COUNT, sizeof(float), "normals");
    float *parts = memory_alloc(COUNT, sizeof(float), "normals");
    RandomKey key = {.seed = 1337, .purpose = RANDOM_INIT, .slot = 4};
    random_normal(whole, COUNT, 2.0f, &key, 0);
    for (int64_t first = 0; first < COUNT; first += 1000) {
        random_normal(parts + first, COUNT - first < 1000 ? COUNT - first : 1000, 2.0f, &key,
                      (uint64_t)first);
    }
    assert_memory_equal(whole, parts, COUNT * sizeof(float));
    double sums[4] = {0}, beyond = 0;
    for (int i = 0; i < COUNT; i++) {
        double z = whole[i] / 2.0;
        for (int p = 0; p < 4; p++) {
            sums[p] += pow(z, p + 1);
        }
        beyond += fabs(z) > 1.959964;
    }
    /* six standard errors of each moment of a normal: variances 1, 2, 15, 96 over COUNT */
    const double expected[4] = {0, 1, 0, 3}, variance[4] = {1, 2, 15, 96};
    for (int p = 0; p < 4; p++) {
        double error = fabs(sums[p] / COUNT - expected[p]);
        if (error > 6 * sqrt(variance[p] / COUNT)) {
            fail_msg("moment %d: expected %g, found %g", p + 1, expected[p], sums[p] / COUNT);
        }
    }
    assert_true(fabs(beyond / COUNT - 0.05) < 6 * sqrt(0.05 * 0.95 / COUNT));
    memory_free(whole);
    memory_free(parts);
}

static void test_hash_sees_every_bit(void **state)
{
    (void)state;
    unsigned char data[100];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (unsigned char)(i * 37);
    }
    for (size_t bytes = 0; bytes <= sizeof(data); bytes++) {
        uint64_t hash = hash_bytes(data, bytes, 0);
        assert_true(hash != hash_bytes(data, bytes, 1));
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << (bit % 8));
            assert_true(hash != hash_bytes(data, bytes, 0));
            data[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        }
        assert_true(bytes == 0 || hash != hash_bytes(data, bytes - 1, 0));
    }
}

static void test_error_line_and_exit_code(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        error_set_program("program");
        error_exit(EXIT_FAULT, "file: two\nlines");
    }
    close(ends[1]);
    char text[200] = "";
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), EXIT_FAULT);
    assert_string_equal(text, "program: file: two lines\n");
    close(ends[0]);
}

static pthread_barrier_t both;

static void end_otherwise(void)
{
    _exit(99);
}

/* Long enough for the other thread to fail meanwhile. */
static void dawdle(int exit_code)
{
    (void)exit_code;
    usleep(50000);
}

static void *fail_by_check(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&both);
    CHECK(0, "check");
    return NULL;
}

static void __attribute__((noreturn)) fail_twice_at_once(int error_pipe, int output_pipe)
{
    pthread_t thread;
    dup2(error_pipe, 2);
    dup2(output_pipe, 1);
    setvbuf(stdout, NULL, _IOFBF, 4096);
    error_set_program("program");
    error_set_abort_hook(dawdle);
    atexit(end_otherwise);
    pthread_barrier_init(&both, NULL, 2);
    printf("unfinished line");
    if (pthread_create(&thread, NULL, fail_by_check, NULL) != 0) {
        _exit(98);
    }
    pthread_barrier_wait(&both);
    error_exit(EXIT_FAULT, "error");
}

/* Whichever comes first: one line, its exit code, what stdout held once, and no handler of atexit. */
static void test_two_threads_fail_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        int errors[2], output[2], status;
        char line[200] = "", text[200] = "";
        assert_int_equal(pipe(errors) | pipe(output), 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            fail_twice_at_once(errors[1], output[1]);
        }
        close(errors[1]);
        close(output[1]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(read(errors[0], line, sizeof(line) - 1) > 0 &&
                    read(output[0], text, sizeof(text) - 1) > 0);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == EXIT_FAULT) {
            assert_string_equal(line, "program: error\n");
        } else {
            assert_int_equal(WEXITSTATUS(status), EXIT_FAILED);
            assert_non_null(strstr(line, ": check\n"));
            assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
        }
        assert_string_equal(text, "unfinished line");
        close(errors[0]);
        close(output[0]);
    }
}

static void fail_again(int exit_code)
{
    CHECK(exit_code == 0, "the hook fails too");
}

static void test_a_failing_hook_keeps_the_exit_code(void **state)
{
    (void)state;
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(2);
        error_set_abort_hook(fail_again);
        error_exit(EXIT_FAULT, "first");
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_FAULT);
}

static void test_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    const float values[][2] = {
        {1.0f, 1.0f},          {0x1.01p0f, 0x1.0p0f}, {0x1.03p0f, 0x1.04p0f}, {0x1.010002p0f, 0x1.02p0f},
        {-0x1.ffp0f, -0x2p0f}, {0.0f, 0.0f},          {INFINITY, INFINITY},   {0x1.ffp127f, INFINITY}};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        float found = bf16_to_float(bf16_from_float(values[i][0]));
        if (found != values[i][1]) {
            fail_msg("bf16 of %a: expected %a, found %a", values[i][0], values[i][1], found);
        }
    }
    uint32_t nan_bits = 0x7f800001u;
    float nan_value;
    memcpy(&nan_value, &nan_bits, sizeof(nan_value));
    assert_true(isnan(bf16_to_float(bf16_from_float(nan_value))));
}

static void test_parameter_table_of_gpt2(void **state)
{
    (void)state;
    ModelShape shape = {.block_size = 1024, .vocab_size = 50257, .n_layer = 12, .n_head = 12, .n_embd = 768};
    ParamTable table;
    params_init(&table, &shape);
    assert_int_equal(model_shape_parameters(&shape), 124439808);
    int64_t sum = 0, end = 0;
    for (int i = 0; i < table.count; i++) {
        sum += param_file_count(&table.specs[i]);
        assert_true(table.specs[i].offset >= end && table.specs[i].offset % 16 == 0);
        end = table.specs[i].offset + table.specs[i].arena_count;
        assert_int_equal(params_find(&table, table.specs[i].name), i);
    }
    assert_int_equal(sum, 124439808);
    assert_true(end <= table.arena_count);
    int index = params_find(&table, "h.11.mlp.c_proj.weight");
    assert_int_equal(index, params_block_index(11, FCPROJ_WEIGHT));
    assert_true(fabsf(table.specs[index].standard_deviation - 0.02f / sqrtf(24)) < 1e-9f);
    assert_int_equal(params_find(&table, "h.12.mlp.c_proj.weight"), -1);
    params_release(&table);
}

static void test_chunks_cover_each_tensor(void **state)
{
    (void)state;
    ModelShape shape = {.block_size = 64, .vocab_size = 5000, .n_layer = 2, .n_head = 2, .n_embd = 66};
    ParamTable table;
    params_init(&table, &shape);
    int64_t count = arena_chunks_cut(NULL, &table), next = 0;
    ArenaChunk *chunks = memory_alloc((size_t)count, sizeof(*chunks), "chunks");
    assert_int_equal(arena_chunks_cut(chunks, &table), count);
    for (int i = 0; i < table.count; i++) {
        const ParamSpec *spec = &table.specs[i];
        for (int64_t done = 0; done < spec->arena_count; done += chunks[next++].count) {
            assert_true(next < count);
            assert_int_equal(chunks[next].offset, spec->offset + done);
            assert_int_equal(chunks[next].decays, param_decays(spec));
            assert_in_range(chunks[next].count, 1, ARENA_CHUNK);
            assert_true(done + chunks[next].count <= spec->arena_count);
        }
    }
    assert_int_equal(next, count);
    memory_free(chunks);
    params_release(&table);
}

/* The largest model that the options describe has more chunks than an int counts. */
static void test_chunks_of_the_largest_model(void **state)
{
    (void)state;
    ModelShape shape = {
        .block_size = 1024, .vocab_size = 50257, .n_layer = 1000, .n_head = 512, .n_embd = 65536};
    ParamTable table;
    params_init(&table, &shape);
    int64_t expected = 0;
    for (int i = 0; i < table.count; i++) {
        expected += (table.specs[i].arena_count + ARENA_CHUNK - 1) / ARENA_CHUNK;
    }
    assert_true(expected > INT32_MAX);
    assert_true(arena_chunks_cut(NULL, &table) == expected);
    params_release(&table);
}

static void test_shapes_are_checked(void **state)
{
    (void)state;
    Error error;
    ModelShape shape = {.block_size = 8, .vocab_size = 100, .n_layer = 1, .n_head = 3, .n_embd = 10};
    assert_int_equal(model_shape_check(&shape, &error), -1);
    assert_string_equal(error.text, "n_embd=10: expected a multiple of n_head=3");
    shape.n_head = 5;
    assert_int_equal(model_shape_check(&shape, &error), 0);
    shape.vocab_size = 65537; /* tokens are 16 bits */
    assert_int_equal(model_shape_check(&shape, &error), -1);
    shape.vocab_size = 100;
    shape.n_layer = 0;
    assert_int_equal(model_shape_check(&shape, &error), -1);
}

/* The system's date, set on by an hour after a program has read it; what waits must not notice. */
static int is_date_stepped;

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int status = (int)syscall(SYS_clock_gettime, clock, time);
    time->tv_sec += clock == CLOCK_REALTIME && is_date_stepped ? 3600 : 0;
    return status;
}

static void test_waits_do_not_depend_on_the_date(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    clock_condition_init(&condition);
    for (is_date_stepped = 0; is_date_stepped < 2; is_date_stepped++) {
        double begin_ms = clock_ms();
        alarm(60 * (unsigned)time_scale()); /* instead of an hour */
        pthread_mutex_lock(&mutex);
        while (clock_wait(&condition, &mutex, begin_ms + 20.5) == 0) {
        }
        pthread_mutex_unlock(&mutex);
        alarm(0);
        assert_true(clock_ms() >= begin_ms + 20.5);
    }
    is_date_stepped = 0;
    pthread_cond_destroy(&condition);
}

/* What is printed may come from other machines and from names of files: it does not steer a terminal. */
static void test_printable_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *printable;
    } cases[] = {{"plain", "plain"},
                 {"two\nlines\tand\ra tab", "two lines and a tab"},
                 {"\x1b[31mred\x07\x7f", "?[31mred??"},
                 {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
                  "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
                 {"\xc2\x9b"
                  "31m\xc2\xa0",
                  "??31m\xc2\xa0"},
                 {"\x9b"
                  "31m \xff \xc3",
                  "?31m ? ?"},
                 {"", ""}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "%s", cases[i].text);
        format_printable(text);
        assert_string_equal(text, cases[i].printable);
    }
}

static void test_reasons_that_may_pass(void **state)
{
    (void)state;
    Error error;
    assert_int_equal(error_set_system(&error, EIO, "%s: cannot read", "a.bin"), -1);
    assert_string_equal(error.text, "a.bin: cannot read: Input/output error");
    assert_int_equal(error_exit_code(&error), EXIT_FAULT);
    error_set_system(&error, ENOENT, "%s: cannot open", "a.bin");
    assert_int_equal(error_exit_code(&error), EXIT_FAILED);
    error_set_system(&error, ESTALE, "x");
    error_prefix(&error, "y");
    assert_int_equal(error_exit_code(&error), EXIT_FAULT);
    error_set(&error, "bad");
    assert_int_equal(error_exit_code(&error), EXIT_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_normal_moments_and_splits),
        cmocka_unit_test(test_hash_sees_every_bit),
        cmocka_unit_test(test_error_line_and_exit_code),
        cmocka_unit_test(test_two_threads_fail_at_once),
        cmocka_unit_test(test_a_failing_hook_keeps_the_exit_code),
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_parameter_table_of_gpt2),
        cmocka_unit_test(test_chunks_cover_each_tensor),
        cmocka_unit_test(test_chunks_of_the_largest_model),
        cmocka_unit_test(test_shapes_are_checked),
        cmocka_unit_test(test_waits_do_not_depend_on_the_date),
        cmocka_unit_test(test_printable_text),
        cmocka_unit_test(test_reasons_that_may_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
