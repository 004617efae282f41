/* Safetensors headers: what is written reads back, and every kind of damage is refused with its reason. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>

#include <math.h>

#include "dev/test/scratch.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/safetensors.h"

/* A file of this header and `data_bytes` bytes after it. */
static char *write_file(const char *name, const char *json, const void *data, size_t data_bytes)
{
    static unsigned char bytes[1 << 16];
    uint64_t length = strlen(json);
    memcpy(bytes, &length, sizeof(length));
    memcpy(bytes + 8, json, length);
    if (data) {
        memcpy(bytes + 8 + length, data, data_bytes);
    } else {
        memset(bytes + 8 + length, 0, data_bytes);
    }
    return scratch_write(name, bytes, 8 + length + data_bytes);
}

static void test_written_header_reads_back(void **state)
{
    (void)state;
    Error error;
    SafeHeaderWriter writer = {0};
    int64_t matrix[2] = {3, 5};
    int64_t vector[1] = {7};
    assert_int_equal(safe_header_writer_metadata(&writer, "format", "pt", &error), 0);
    assert_int_equal(safe_header_writer_metadata(&writer, "odd \"key\"\n", "\xc3\xa9 \\ \t", &error), 0);
    assert_int_equal(safe_header_writer_tensor(&writer, "b", SAFE_F32, matrix, 2, &error), 0);
    assert_int_equal(safe_header_writer_tensor(&writer, "a", SAFE_I64, vector, 1, &error), 0);
    assert_int_equal(safe_header_writer_tensor(&writer, "scalar", SAFE_BF16, NULL, 0, &error), 0);
    assert_int_equal(safe_header_writer_tensor(&writer, "a", SAFE_F32, vector, 1, &error), -1);
    assert_int_equal(safe_header_writer_metadata(&writer, "latin", "\xe9", &error), -1);
    assert_int_equal(writer.data_bytes, 60 + 56 + 2); /* the refused one takes no place */
    safe_header_writer_release(&writer);

    assert_int_equal(safe_header_writer_metadata(&writer, "odd \"key\"\n", "\xc3\xa9 \\ \t", &error), 0);
    safe_header_writer_tensor(&writer, "b", SAFE_F32, matrix, 2, &error);
    safe_header_writer_tensor(&writer, "a", SAFE_I64, vector, 1, &error);
    uint64_t bytes;
    char *text = safe_header_writer_finish(&writer, &bytes);
    assert_int_equal(bytes % 8, 0);
    SafeHeader header;
    assert_int_equal(safe_header_length((unsigned char *)text, "x", &error), bytes - 8);
    if (safe_header_init(&header, text + 8, bytes - 8, 116, "x", &error) != 0) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(header.count, 2);
    assert_int_equal(header.data_bytes, 116);
    assert_string_equal(safe_header_metadata(&header, "odd \"key\"\n"), "\xc3\xa9 \\ \t");
    assert_null(safe_header_metadata(&header, "other"));
    const SafeTensor *b = safe_header_find(&header, "b");
    const SafeTensor *a = safe_header_find(&header, "a");
    assert_null(safe_header_find(&header, "__metadata__"));
    assert_int_equal(b->offset, 0);
    assert_int_equal(b->shape[0], 3);
    assert_int_equal(b->shape[1], 5);
    assert_int_equal(b->count, 15);
    assert_int_equal(a->dtype, SAFE_I64);
    assert_int_equal(a->offset, 60);
    assert_int_equal(a->bytes, 56);
    safe_header_release(&header);
    memory_free(text);
}

static int64_t allocations_left; /* the one after that fails, and only that */

static void *limited_malloc(size_t bytes)
{
    return allocations_left-- == 0 ? NULL : malloc(bytes);
}

/* Whichever allocation fails: the tensor is refused, or its entry is what it would have been. */
static void test_no_memory_for_a_tensor(void **state)
{
    (void)state;
    static const int64_t shape[3] = {48, 16, 2};
    char *expected = NULL;
    uint64_t expected_bytes = 0;
    int refused = 0, is_over = 0;
    for (int64_t n = -1; !is_over; n++) {
        SafeHeaderWriter writer = {0};
        Error error = {.text = ""};
        assert_int_equal(safe_header_writer_metadata(&writer, "format", "pt", &error), 0);
        json_set_alloc_funcs(limited_malloc, free);
        allocations_left = n;
        int status = safe_header_writer_tensor(&writer, "weight", SAFE_U8, shape, 3, &error);
        is_over = n >= 0 && allocations_left >= 0;
        allocations_left = -1;
        if (status != 0) {
            assert_true(n >= 0 && error.text[0]);
            refused++;
            safe_header_writer_release(&writer);
            continue;
        }
        uint64_t bytes;
        char *text = safe_header_writer_finish(&writer, &bytes);
        if (!expected) {
            expected = text;
            expected_bytes = bytes;
            continue;
        }
        assert_int_equal(bytes, expected_bytes);
        assert_memory_equal(text, expected, bytes);
        memory_free(text);
    }
    assert_true(refused > 5);
    memory_free(expected);
    json_set_alloc_funcs(malloc, free);
}

static void test_floats_of_three_types(void **state)
{
    (void)state;
    Error error;
    struct __attribute__((packed)) {
        float f32[3];
        uint16_t f16[8];
        uint16_t bf16[2];
    } data = {{1.5f, -0.0f, 3e38f},
              {0x3c00, 0xc000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0x7c00, 0x7e00},
              {0x3fc0, 0xff80}};
    char *path = write_file("floats.safetensors",
                            "{\"h\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[12,28]},"
                            "\"f\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                            "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[28,32]}}",
                            &data, sizeof(data));
    SafeFile file;
    if (safe_file_init(&file, path, &error) != 0) {
        fail_msg("%s", error.text);
    }
    float out[8];
    assert_int_equal(safe_file_floats(out, &file, safe_header_find(&file.header, "f"), 1, 2), 0);
    assert_memory_equal(out, &data.f32[1], 8);
    assert_int_equal(safe_file_floats(out, &file, safe_header_find(&file.header, "h"), 0, 8), 0);
    const float halves[7] = {1.0f,     -2.0f,    0x1p-24f, -0x1.ff8p-15f, /* the largest subnormal */
                             0x1p-14f, 65504.0f, INFINITY};
    assert_memory_equal(out, halves, sizeof(halves));
    assert_true(isnan(out[7]));
    assert_int_equal(safe_file_floats(out, &file, safe_header_find(&file.header, "b"), 0, 2), 0);
    assert_true(out[0] == 1.5f && out[1] == -INFINITY);
    safe_file_release(&file);
}

static void check_file(const char *path, const char *expected)
{
    SafeFile file;
    Error error = {.text = ""};
    int status = safe_file_init(&file, path, &error);
    if (status == 0) {
        safe_file_release(&file);
    }
    if (expected ? status != -1 || !strstr(error.text, expected) || !strstr(error.text, path) : status != 0) {
        fail_msg("expected %s, found '%s'", expected ? expected : "no error",
                 status ? error.text : "no error");
    }
}

static void test_good_headers(void **state)
{
    (void)state;
    check_file(write_file("g", "{}", NULL, 0), NULL);
    check_file(write_file("g", "{}      ", NULL, 0), NULL);
    check_file(write_file("g", "{\"__metadata__\":{}}", NULL, 0), NULL);
    check_file(write_file("g", "{\"a\":{\"shape\":[],\"dtype\":\"F64\",\"data_offsets\":[0,8]}}", NULL, 8),
               NULL);
    check_file(write_file("g",
                          "{\"a\":{\"dtype\":\"U8\",\"shape\":[0,9],\"data_offsets\":[2,2]},"
                          "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                          NULL, 2),
               NULL);
}

/* One header a row: what is wrong with it is in the message. */
static void test_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        size_t data_bytes;
        const char *expected;
    } rows[] = {
        {"", 0, "found a length of 0"},
        {"[]", 0, "does not begin with {"},
        {" {}", 0, "does not begin with {"},
        {"{ ", 0, "not valid JSON"},
        {"{}x", 0, "not valid JSON"},
        {"{\"a\":1}", 0, "expected dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "expected dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4,
         "expected dtype, shape"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "found F31"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "found none"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "expected a shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         "at most 8 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
         "dimension 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,4]}}", 4,
         "dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[92233720368547758080],\"data_offsets\":[0,4]}}", 4,
         "not valid JSON"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "expected data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "expected data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "expected data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "expected data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4,
         "ends at byte 8 of the data, which has 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
         "needs 4 bytes, its data_offsets span 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "leaves a hole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5,
         "expected 4 bytes of tensors, found 5"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         6, "b overlaps"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, "overlaps"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "duplicate"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ a: expected a string"},
        {"{\"__metadata__\":[]}", 0, "object of strings"},
        {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid JSON"},
        {"{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_file(write_file("bad", rows[i].json, NULL, rows[i].data_bytes), rows[i].expected);
    }
}

static void test_bad_lengths(void **state)
{
    (void)state;
    size_t peak = memory_peak_bytes();
    const uint64_t lengths[] = {(uint64_t)1 << 60, UINT64_MAX, (uint64_t)1 << 63, 100000001};
    for (int i = 0; i < 4; i++) {
        unsigned char bytes[64] = "        {}";
        memcpy(bytes, &lengths[i], 8);
        check_file(scratch_write("length", bytes, sizeof(bytes)),
                   "expected a safetensors header of 2 to 100000000 bytes");
    }
    unsigned char bytes[64] = "        {}";
    uint64_t length = 99999999;
    memcpy(bytes, &length, 8);
    check_file(scratch_write("length", bytes, sizeof(bytes)),
               "truncated: expected a header of 99999999 bytes, found 56");
    check_file(scratch_write("length", bytes, 7), "found 7 bytes");
    check_file(scratch_write("length", bytes, 0), "found 0 bytes");
    check_file(scratch_path("no such file"), "No such file");
    assert_in_range(memory_peak_bytes() - peak, 0, 16 << 20);
}

/* Nesting is cut off before the stack is. */
static void test_deep_nesting(void **state)
{
    (void)state;
    static char json[60001];
    memset(json, '[', 60000);
    memcpy(json, "{\"a\":", 5);
    check_file(write_file("deep", json, NULL, 0), "not valid JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_header_reads_back),
        cmocka_unit_test(test_no_memory_for_a_tensor),
        cmocka_unit_test(test_floats_of_three_types),
        cmocka_unit_test(test_good_headers),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_deep_nesting),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
