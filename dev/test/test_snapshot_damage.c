/* Every damage of a snapshot is refused before a value leaves the file, at little cost. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <zstd.h>

#include "dev/test/snapshot_fixture.h"

/* -1 and a message that names the file, or the test fails. */
static void check_refused(const unsigned char *bytes, size_t count, const char *what, const char *expected)
{
    Error error = {.text = ""};
    char *path = scratch_write("damaged.snap", bytes, count);
    Snapshot *snapshot = snapshot_open(path, &error);
    if (snapshot || !strstr(error.text, "damaged.snap: ") || !strstr(error.text, expected)) {
        fail_msg("%s: expected an error with '%s', found '%s'", what, expected,
                 snapshot ? "none" : error.text);
    }
}

static unsigned char *small_snapshot(size_t *bytes)
{
    Arenas arenas;
    arenas_init(&arenas, &small);
    for (int s = 0; s < SAVED_STATES; s++) {
        for (int i = 0; i < arenas.table.count; i++) {
            const ParamSpec *spec = &arenas.table.specs[i];
            params_draw_initial(arenas.values[s] + spec->offset, &arenas.table, i, 0, param_file_count(spec),
                                3);
        }
    }
    const char *folder = new_folder();
    write_step(folder, 1, &arenas, 0);
    arenas_release(&arenas);
    return scratch_read(step_path(folder, 1), bytes);
}

static void test_flipped_bits(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = small_snapshot(&bytes);
    RandomKey key = {.seed = 11, .purpose = RANDOM_TEST};
    for (uint64_t i = 0; i < 1000 + 16 * 8; i++) {
        uint32_t numbers[4];
        random_block(numbers, &key, i);
        /* At random, and each bit of the seal. */
        uint64_t bit = i < 1000 ? numbers[0] % (8 * bytes) : 8 * bytes - 1 - (i - 1000);
        char what[64];
        snprintf(what, sizeof(what), "bit %" PRIu64 " of byte %" PRIu64, bit % 8, bit / 8);
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        check_refused(data, bytes, what, "");
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(data);
}

/* The file cut to a length. */
static void check_cut(const unsigned char *data, size_t bytes, size_t length)
{
    char what[64];
    snprintf(what, sizeof(what), "%zu of %zu bytes", length, bytes);
    check_refused(data, length, what, "");
}

static void test_cuts_and_additions(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = small_snapshot(&bytes);
    for (size_t i = 0; i < 50; i++) {
        check_cut(data, bytes, i);
        check_cut(data, bytes, bytes - 1 - i);
        check_cut(data, bytes, i * (bytes / 50));
    }
    unsigned char *longer = malloc(2 * bytes);
    memcpy(longer, data, bytes);
    memcpy(longer + bytes, data, bytes);
    check_refused(longer, bytes + 1, "a byte more", "");
    check_refused(longer, 2 * bytes, "twice the file", "");
    memset(longer + bytes, 0, 64);
    check_refused(longer, bytes + 64, "zeros after it", "");
    free(longer);
    free(data);
}

/* A safetensors file is compressed with the library alone, as `zstd` would do it. */
static void check_content(const char *text, uint64_t text_bytes, uint64_t data_bytes, const char *what,
                          const char *expected)
{
    size_t count = 8 + text_bytes + data_bytes;
    unsigned char *content = calloc(1, count);
    memcpy(content, &text_bytes, 8);
    memcpy(content + 8, text, text_bytes);
    size_t bound = ZSTD_compressBound(count);
    unsigned char *compressed = malloc(bound);
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    size_t bytes = ZSTD_compress2(context, compressed, bound, content, count);
    assert_false(ZSTD_isError(bytes));
    if (expected) {
        check_refused(compressed, bytes, what, expected);
    } else {
        Error error;
        Snapshot *snapshot = snapshot_open(scratch_write("content.snap", compressed, bytes), &error);
        if (!snapshot) {
            fail_msg("%s: %s", what, error.text);
        }
        snapshot_close(snapshot);
    }
    ZSTD_freeCCtx(context);
    free(compressed);
    free(content);
}

/* The header of a whole snapshot with one text replaced by another. */
static char *edited_header(const char *header, const char *old_text, const char *new_text)
{
    const char *place = strstr(header, old_text);
    assert_non_null(place);
    char *edited = malloc(strlen(header) + strlen(new_text) + 1);
    sprintf(edited, "%.*s%s%s", (int)(place - header), header, new_text, place + strlen(old_text));
    return edited;
}

/* The header of a whole snapshot, and how many bytes of data follow it. */
static char *small_header(uint64_t *data_bytes)
{
    size_t bytes;
    unsigned char *data = small_snapshot(&bytes);
    char *content = malloc(1 << 22);
    ZSTD_DCtx *context = ZSTD_createDCtx();
    ZSTD_inBuffer in = {data, bytes, 0};
    ZSTD_outBuffer out = {content, 1 << 22, 0};
    while (in.pos < in.size) {
        assert_false(ZSTD_isError(ZSTD_decompressStream(context, &out, &in)));
    }
    ZSTD_freeDCtx(context);
    uint64_t text_bytes;
    memcpy(&text_bytes, content, 8);
    *data_bytes = out.pos - 8 - text_bytes;
    char *header = strndup(content + 8, text_bytes);
    free(content);
    free(data);
    return header;
}

static void test_foreign_content(void **state)
{
    (void)state;
    uint64_t data_bytes;
    char *header = small_header(&data_bytes);
    uint64_t text_bytes = strlen(header);
    check_content(header, text_bytes, data_bytes, "the file as it is", NULL);
    check_content(header, text_bytes, data_bytes - 1, "a byte of data less", "truncated");
    check_content(header, text_bytes, data_bytes + 1, "a byte of data more", "");
    static const struct {
        const char *old_text, *new_text, *expected;
    } edits[] = {
        {"\"format\":\"llmc-snapshot\"", "\"format\":\"pt\"", "expected a snapshot"},
        {"\"format_version\":\"1\"", "\"format_version\":\"2\"", "expected snapshot format 1, found 2"},
        {"\"step\":\"1\"", "\"step\":\"-1\"", "step: expected a whole number"},
        {"\"step\":\"1\"", "\"step\":\"1e3\"", "step: expected a whole number"},
        {"\"step\":\"1\"", "\"step\":\"99999999999999999999\"", "step: expected a whole number"},
        {"\"step\":\"1\"", "\"stop\":\"1\"", "step: expected a whole number of 0 or more, found none"},
        {"\"best_loss\":\"3.0", "\"best_loss\":\"nan3.0", "best_loss"},
        {"\"data_fingerprint\":\"0123", "\"data_fingerprint\":\"123",
         "best_loss, sample and data_fingerprint"},
        {"\"options\":\"{", "\"options\":\"{{", "options: expected a JSON object"},
        {"\"plans\":\"device", "\"other\":\"device", NULL},
        {"\"plans\":\"device", "\"plans\":\"\\u0007device", "plans: line 1: expected the name of a device"},
        {"8x8x8 nn", "8x8x0 nn", "plans: line 2: expected a product and its algorithm, found \"8x8x0 nn"},
        {"0 0 0\\n", "0 0 0", "plans: line 2: expected a line of at most"},
        {"0 0 0\\n", "0 0 4294967296\\n", "plans: line 2: expected a product"},
        {"\"n_layer\":\"2\"", "\"n_layer\":\"3\"", "h.2.ln_1.weight/b0, found none"},
        {"\"n_layer\":\"2\"", "\"n_layer\":\"1\"", "expected it at byte"},
        {"\"n_layer\":\"2\"", "\"n_layer\":\"1000000\"", "n_layer: expected 1 to"},
        {"\"n_head\":\"3\"", "\"n_head\":\"4\"", "multiple of n_head"},
        {"\"vocab_size\":\"131\"", "\"vocab_size\":\"130\"", "param.wte.weight/b0: expected U8 of 130 x 15"},
        {"\"param.wte.weight/b1\"", "\"param.wte.weight/b4\"", "param.wte.weight/b1, found none"},
        {"\"moment2.ln_f.bias/b3\"", "\"moment2.ln_f.bias/b2\"", "duplicate"},
        {"{\"dtype\":\"U8\",\"shape\":[131,15]", "{\"dtype\":\"U8\",\"shape\":[15,131]", "of another shape"},
        {"{\"dtype\":\"U8\",\"shape\":[131,15]", "{\"dtype\":\"I8\",\"shape\":[131,15]", "found I8"},
        {"{\"dtype\":\"U8\",\"shape\":[131,15]", "{\"dtype\":\"U8\",\"shape\":[131,16]",
         "its shape needs 2096 bytes"},
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        char *edited = edited_header(header, edits[i].old_text, edits[i].new_text);
        check_content(edited, strlen(edited), data_bytes, edits[i].new_text, edits[i].expected);
        free(edited);
    }
    /* One tensor more, after all others. */
    char *end = strrchr(header, '}');
    char extra[256];
    snprintf(extra, sizeof(extra),
             ",\"more\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}}",
             data_bytes, data_bytes + 1);
    char *edited = malloc(strlen(header) + sizeof(extra));
    sprintf(edited, "%.*s%s", (int)(end - header), header, extra);
    check_content(edited, strlen(edited), data_bytes + 1, "a tensor more", "tensors, found");
    free(edited);
    free(header);
}

/* Products that no model has, for a megabyte. */
static void test_plans_without_end(void **state)
{
    (void)state;
    uint64_t data_bytes;
    char *header = small_header(&data_bytes);
    enum { LONG_BYTES = 1 << 20 };
    char *plans = malloc(LONG_BYTES), *at = plans;
    for (int i = 1; at < plans + LONG_BYTES - 256; i++) {
        at += sprintf(at, "%s%dx8x8 nn fp32 bf16 plain set 1 2 4: 1 0 1 0 0 0 0 0 0\\n",
                      i == 1 ? "\"plans\":\"x\\n" : "", i + 8);
    }
    char *many = edited_header(header, "\"plans\":\"device / library 1\\n", plans);
    check_content(many, strlen(many), data_bytes, "many plans", "plans: expected at most 32767 bytes");
    free(many);
    free(plans);
    free(header);
}

/* A few kilobytes that promise gigabytes, in the header's length or behind a whole header, cost neither
 * memory nor time. */
static void test_bombs(void **state)
{
    (void)state;
    size_t peak = memory_peak_bytes();
    const uint64_t lengths[] = {(uint64_t)1 << 60, 90000000, 33 << 20, 3 << 20};
    for (int i = 0; i < 4; i++) {
        unsigned char content[64] = {0};
        unsigned char compressed[256];
        memcpy(content, &lengths[i], 8);
        size_t bytes = ZSTD_compress(compressed, sizeof(compressed), content, sizeof(content), 1);
        check_refused(compressed, bytes, "a header's length", "header of");
    }
    /* 1 GiB of zeros after a header that promises nothing. */
    enum { ZEROS_MIB = 1024 };
    ZSTD_CCtx *context = ZSTD_createCCtx();
    char *path = scratch_path("damaged.snap");
    unsigned char *zeros = calloc(1, 1 << 20);
    unsigned char *compressed = malloc(1 << 20);
    memcpy(zeros, "\x02\0\0\0\0\0\0\0{}", 10);
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < ZEROS_MIB; i++) {
        ZSTD_inBuffer in = {zeros, 1 << 20, 0};
        ZSTD_outBuffer out = {compressed, 1 << 20, 0};
        ZSTD_compressStream2(context, &out, &in, i + 1 == ZEROS_MIB ? ZSTD_e_end : ZSTD_e_continue);
        fwrite(compressed, 1, out.pos, file);
        memset(zeros, 0, 10);
    }
    fclose(file);
    Error error;
    assert_null(snapshot_open(path, &error));
    ZSTD_freeCCtx(context);
    free(zeros);
    free(compressed);
    assert_in_range(memory_peak_bytes() - peak, 0, 64 << 20);
}

static void test_unreadable_files(void **state)
{
    (void)state;
    Error error;
    assert_null(snapshot_open(scratch_path("no such file"), &error));
    assert_non_null(strstr(error.text, "No such file"));
    assert_null(snapshot_open(scratch_folder, &error));
    assert_non_null(strstr(error.text, "expected a regular file"));
    check_refused((const unsigned char *)"", 0, "an empty file", "truncated");
    check_refused((const unsigned char *)"this is no snapshot at all, but text", 36, "text",
                  "damaged or no snapshot");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flipped_bits),    cmocka_unit_test(test_cuts_and_additions),
        cmocka_unit_test(test_foreign_content), cmocka_unit_test(test_plans_without_end),
        cmocka_unit_test(test_bombs),           cmocka_unit_test(test_unreadable_files),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_remove);
}
