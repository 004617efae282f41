/* What is exported has the names, shapes and places that other programs expect, checked value by value
 * here; and llm.c's file comes back as it went. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "dev/test/import_fixture.h"
#include "llmc/snapshot/export.h"
#include "llmc/snapshot/transpose.h"

static Arenas model;

static int set_up(void **state)
{
    arenas_init(&model, &small);
    fill_exact(&model);
    return scratch_create(state);
}

static int tear_down(void **state)
{
    arenas_release(&model);
    return scratch_remove(state);
}

static void test_hugging_face_folder(void **state)
{
    (void)state;
    Error error;
    StateSource source = {read_state, &model};
    const char *folder = new_folder();
    if (export_hugging_face(folder, &model.table, &source, NULL, NULL, &error) != 0) {
        fail_msg("%s", error.text);
    }
    SafeFile file;
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(safe_file_init(&file, path, &error), 0);
    assert_string_equal(safe_header_metadata(&file.header, "format"), "pt");
    assert_int_equal(file.header.count, model.table.count);
    assert_int_equal(file.header.data_begin % 8, 0);
    for (int i = 0; i < model.table.count; i++) {
        const ParamSpec *spec = &model.table.specs[i];
        char name[80];
        snprintf(name, sizeof(name), "transformer.%s", spec->name);
        const SafeTensor *tensor = safe_header_find(&file.header, name);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, SAFE_F32);
        assert_int_equal(tensor->dimensions, spec->dimensions);
        int is_conv1d = strstr(name, ".c_") && strstr(name, ".weight"); /* c_attn, c_proj, c_fc */
        int64_t first = spec->dimensions == 1 ? spec->columns : is_conv1d ? spec->columns : spec->rows;
        assert_int_equal(tensor->shape[0], first);
        for (int64_t j = 0; j < tensor->count; j++) {
            float found;
            int64_t columns = tensor->shape[tensor->dimensions - 1];
            int64_t place = is_conv1d ? j % columns * spec->columns + j / columns : j;
            safe_file_floats(&found, &file, tensor, j, 1);
            float expected = model.values[SAVED_WEIGHTS][spec->offset + place];
            if (found != expected) {
                fail_msg("%s value %" PRId64 ": expected %g, found %g", name, j, (double)expected,
                         (double)found);
            }
        }
    }
    safe_file_release(&file);
    check_weights(folder, &model);
    snprintf(path, sizeof(path), "%s/vocab.json", folder);
    assert_false(path_exists(path)); /* not GPT-2's vocabulary */
}

/* Another model's files are replaced, never mixed. */
static void test_hugging_face_replaces(void **state)
{
    (void)state;
    Error error;
    Arenas other;
    const ModelShape shape = {.block_size = 2, .vocab_size = 50257, .n_layer = 1, .n_head = 1, .n_embd = 3};
    arenas_init(&other, &shape);
    fill_exact(&other);
    const char *folder = new_folder();
    StateSource source = {read_state, &model};
    StateSource other_source = {read_state, &other};
    assert_int_equal(export_hugging_face(folder, &model.table, &source, NULL, NULL, &error), 0);
    assert_int_equal(export_hugging_face(folder, &other.table, &other_source, NULL, NULL, &error), 0);
    check_weights(folder, &other);

    char path[PATH_BYTES_MAX];
    size_t bytes;
    snprintf(path, sizeof(path), "%s/vocab.json", folder);
    char *text = (char *)scratch_read(path, &bytes);
    json_t *vocabulary = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_object_size(vocabulary), 50257);
    /* Ids that the published vocabulary is known for. */
    static const struct {
        const char *token;
        int id;
    } known[] = {{"!", 0},
                 {"a", 64},
                 {"~", 93},
                 {"\xc2\xa1", 94},
                 {"\xc4\x80", 188},
                 {"\xc4\xa0", 220},
                 {"\xc4\xa0t", 256},
                 {"\xc4\xa0the", 262},
                 {"Hello", 15496},
                 {"\xc4\xa0world", 995},
                 {"<|endoftext|>", 50256}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        json_int_t id = json_integer_value(json_object_get(vocabulary, known[i].token));
        if (id != known[i].id) {
            fail_msg("%s: expected %d, found %d", known[i].token, known[i].id, (int)id);
        }
    }
    json_decref(vocabulary);
    free(text);
    arenas_release(&other);
}

/* llm.c's order of tensors, with their elements for one layer, written down here once more. */
static void test_llmc_file(void **state)
{
    (void)state;
    Error error;
    StateSource source = {read_state, &model};
    char *path = scratch_path("model.bin");
    if (export_llmc(path, &model.table, &source, &error) != 0) {
        fail_msg("%s", error.text);
    }
    size_t bytes;
    unsigned char *data = scratch_read(path, &bytes);
    const int32_t expected[8] = {20240326, 3, 7, 131, 2, 3, 15, 256};
    assert_memory_equal(data, expected, sizeof(expected));
    for (int i = 32; i < 1020; i++) {
        assert_int_equal(data[i], 0);
    }
    assert_memory_equal(data + 1020, "gpt2", 4); /* the mark by which an export knows its own */
    static const char *const names[] = {"ln_1.weight",      "ln_1.bias",          "attn.c_attn.weight",
                                        "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                                        "ln_2.weight",      "ln_2.bias",          "mlp.c_fc.weight",
                                        "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};
    const float *values = (const float *)(const void *)(data + 1024);
    const float *arena = model.values[SAVED_WEIGHTS];
    assert_memory_equal(values, arena, 131 * 15 * 4);
    for (int i = 131 * 15; i < 256 * 15; i++) {
        assert_true(values[i] == 0);
    }
    values += 256 * 15;
    assert_memory_equal(values, arena + model.table.specs[params_find(&model.table, "wpe.weight")].offset,
                        7 * 15 * 4);
    values += 7 * 15;
    for (int t = 0; t < 12; t++) {
        for (int l = 0; l < 2; l++) {
            char name[64];
            snprintf(name, sizeof(name), "h.%d.%s", l, names[t]);
            const ParamSpec *spec = &model.table.specs[params_find(&model.table, name)];
            assert_memory_equal(values, arena + spec->offset, (size_t)param_file_count(spec) * 4);
            values += param_file_count(spec);
        }
    }
    values += 2 * 15;
    assert_ptr_equal(values, data + bytes);
    free(data);
    check_weights(path, &model);
}

/* The file's first int32s changed, or its length. */
static void check_llmc_refused(const unsigned char *data, size_t bytes, int field, int32_t value,
                               const char *expected)
{
    unsigned char *copy = calloc(1, bytes + 8);
    memcpy(copy, data, bytes);
    memcpy(copy + 4 * field, &value, sizeof(value));
    check_not_loaded(scratch_write("bad.bin", copy, bytes), expected);
    free(copy);
}

static void test_llmc_versions_and_damage(void **state)
{
    (void)state;
    Error error;
    StateSource source = {read_state, &model};
    char *path = scratch_path("model.bin");
    assert_int_equal(export_llmc(path, &model.table, &source, &error), 0);
    size_t bytes;
    unsigned char *data = scratch_read(path, &bytes);

    /* Version 5: the same in bf16, which holds these values exactly. */
    unsigned char *half = malloc(bytes);
    int32_t version = 5;
    memcpy(half, data, 1024);
    memcpy(half + 4, &version, 4);
    for (size_t i = 1024; i < bytes; i += 4) {
        memcpy(half + 1024 + (i - 1024) / 2, data + i + 2, 2);
    }
    check_weights(scratch_write("half.bin", half, 1024 + (bytes - 1024) / 2), &model);
    free(half);

    check_llmc_refused(data, bytes - 1, 0, 20240326, "truncated: its header promises");
    check_llmc_refused(data, bytes + 1, 0, 20240326, "too long: its header promises");
    check_llmc_refused(data, 1000, 0, 20240326, "truncated: expected a header of 1024 bytes, found 1000");
    check_llmc_refused(data, bytes, 1, 1, "found version 1");
    check_llmc_refused(data, bytes, 1, 5, "too long");
    check_llmc_refused(data, bytes, 2, -1, "block_size: expected 1 to");
    check_llmc_refused(data, bytes, 3, INT32_MAX, "vocab_size: expected 1 to");
    check_llmc_refused(data, bytes, 4, 0, "n_layer: expected 1 to");
    check_llmc_refused(data, bytes, 5, 4, "multiple of n_head=4");
    check_llmc_refused(data, bytes, 6, 65535, "truncated");
    check_llmc_refused(data, bytes, 7, 130, "padded vocabulary of at least vocab_size=131, found 130");
    check_llmc_refused(data, bytes, 7, INT32_MAX, "padded vocabulary");
    free(data);
}

static json_t *load_json(const char *folder, const char *name)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    json_error_t reason;
    json_t *object = json_load_file(path, JSON_REJECT_DUPLICATES, &reason);
    if (!object) {
        fail_msg("%s: %s", path, reason.text);
    }
    return object;
}

/* What transformers, tokenizers and llama.cpp read beside the weights (dev/reference/check_export.py asks
 * them); and all of it goes when a model of other tokens takes the folder. */
static void test_small_files(void **state)
{
    (void)state;
    Error error;
    Arenas other;
    const ModelShape shape = {.block_size = 2, .vocab_size = 50257, .n_layer = 1, .n_head = 1, .n_embd = 3};
    arenas_init(&other, &shape);
    fill_exact(&other);
    const char *folder = new_folder();
    StateSource source = {read_state, &other};
    assert_int_equal(export_hugging_face(folder, &other.table, &source, NULL, NULL, &error), 0);
    json_t *config = load_json(folder, "config.json");
    assert_int_equal(json_integer_value(json_object_get(config, "n_ctx")), 2);
    assert_int_equal(json_integer_value(json_object_get(config, "eos_token_id")), 50256);
    json_t *generation = load_json(folder, "generation_config.json");
    assert_int_equal(json_integer_value(json_object_get(generation, "eos_token_id")), 50256);
    json_t *settings = load_json(folder, "tokenizer_config.json");
    assert_int_equal(json_integer_value(json_object_get(settings, "model_max_length")), 2);
    json_t *tokenizer = load_json(folder, "tokenizer.json");
    json_t *bpe = json_object_get(tokenizer, "model");
    json_t *merges = json_object_get(bpe, "merges");
    json_t *vocabulary = load_json(folder, "vocab.json");
    assert_true(json_equal(json_object_get(bpe, "vocab"), vocabulary));
    assert_int_equal(json_array_size(merges), 50000);
    assert_string_equal(json_string_value(json_array_get(merges, 0)), "\xc4\xa0 t");
    assert_string_equal(json_string_value(json_array_get(merges, 49999)), "\xc4\xa0g azed");
    json_t *const loaded[] = {config, generation, settings, tokenizer, vocabulary};
    for (size_t i = 0; i < sizeof(loaded) / sizeof(loaded[0]); i++) {
        json_decref(loaded[i]);
    }
    arenas_release(&other);

    StateSource small_source = {read_state, &model};
    assert_int_equal(export_hugging_face(folder, &model.table, &small_source, NULL, NULL, &error), 0);
    static const char *const gone[] = {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < 4; i++) {
        char path[PATH_BYTES_MAX];
        snprintf(path, sizeof(path), "%s/%s", folder, gone[i]);
        if (path_exists(path)) {
            fail_msg("%s: expected that it went with its model", path);
        }
    }
}

static void test_transpose(void **state)
{
    (void)state;
    enum { SIZE = 50, STRIDE = SIZE + 3 };
    static const int sizes[] = {1, 3, 4, 15, 16, 17, 32, 47, SIZE};
    static float in[SIZE * STRIDE], out[SIZE * STRIDE];
    for (int i = 0; i < SIZE * STRIDE; i++) {
        in[i] = (float)i;
    }
    for (size_t i = 0; i < 81; i++) {
        int rows = sizes[i / 9], columns = sizes[i % 9];
        memset(out, 0xff, sizeof(out));
        transpose_floats(out, STRIDE, in, STRIDE, rows, columns);
        for (int place = 0; place < SIZE * STRIDE; place++) {
            int c = place / STRIDE, r = place % STRIDE;
            int is_inside = c < columns && r < rows;
            if (is_inside ? out[place] != in[r * STRIDE + c] : !isnan(out[place])) {
                fail_msg("%d x %d: row %d, column %d: found %g", rows, columns, r, c, (double)out[place]);
            }
        }
    }
}

static int card_holds(const char *folder, const char *text)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/README.md", folder);
    char *card = file_read(path, 1 << 20, &(size_t){0}, NULL);
    int holds = card && strstr(card, text);
    memory_free(card);
    return holds;
}

/* Our card is written anew, also where only it is left; somebody's own stays, and stops nothing. */
static void test_model_card(void **state)
{
    (void)state;
    Error error;
    char path[PATH_BYTES_MAX], name[64];
    const char *folder = new_folder();
    StateSource source = {read_state, &model};
    ExportFacts facts = {.updates = 7, .update_tokens = 1000, .val_loss = 3.25, .best_loss = INFINITY};
    assert_int_equal(export_hugging_face(folder, &model.table, &source, NULL, &facts, &error), 0);
    assert_true(card_holds(folder, "| tokens seen | 7,000 |\n| validation loss | 3.2500 |\n\n"));
    assert_true(card_holds(folder, "--init_from=FOLDER"));
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    facts = (ExportFacts){.updates = 8, .update_tokens = 1000, .val_loss = NAN, .best_loss = 3.5};
    assert_int_equal(export_hugging_face(folder, &model.table, &source, NULL, &facts, &error), 0);
    assert_true(
        card_holds(folder, "| tokens seen | 8,000 |\n| lowest validation loss on the way | 3.5000 |"));

    snprintf(name, sizeof(name), "%s/README.md", strrchr(folder, '/') + 1);
    scratch_write(name, "my own card", 11);
    assert_int_equal(export_check_hugging_face(folder, &model.table.shape, NULL, &error), 0);
    assert_int_equal(export_hugging_face(folder, &model.table, &source, NULL, &facts, &error), 0);
    assert_true(card_holds(folder, "my own card"));
}

/* A disk that fills up leaves nothing, and the old files as they were. */
static void test_disk_full(void **state)
{
    (void)state;
    Error error;
    const char *folder = new_folder();
    StateSource source = {read_state, &model};
    assert_int_equal(export_hugging_face(folder, &model.table, &source, NULL, NULL, &error), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {10000, 10000};
        setrlimit(RLIMIT_FSIZE, &limit);
        Error reason = {.text = ""};
        char path[PATH_BYTES_MAX];
        snprintf(path, sizeof(path), "%s/model.bin", folder);
        int is_refused = export_hugging_face(folder, &model.table, &source, NULL, NULL, &reason) == -1 &&
                         strstr(reason.text, "model.safetensors: cannot write: File too large") &&
                         export_llmc(path, &model.table, &source, &reason) == -1 &&
                         strstr(reason.text, "model.bin: cannot write: File too large");
        char command[PATH_BYTES_MAX];
        snprintf(command, sizeof(command),
                 "test \"$(ls -A '%s' | tr '\\n' ' ')\" = 'README.md config.json generation_config.json "
                 "model.safetensors '",
                 folder);
        _exit(is_refused && system(command) == 0 ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    check_weights(folder, &model);
    assert_int_equal(export_llmc("/proc/no such folder/model.bin", &model.table, &source, &error), -1);
    assert_non_null(strstr(error.text, "model.bin: cannot create"));
}

static void check_refused(int status, const Error *error, const char *expected)
{
    assert_int_equal(status, -1);
    if (!strstr(error->text, expected)) {
        fail_msg("expected \"%s\", found \"%s\"", expected, error->text);
    }
}

/* Files that others wrote stay as they are; what an export left that was killed does not stand in the way. */
static void test_files_of_others_are_not_replaced(void **state)
{
    (void)state;
    Error error;
    StateSource source = {read_state, &model};
    static const char *const names[] = {"model.safetensors", "config.json"};
    for (int i = 0; i < 2; i++) {
        const char *folder = new_folder();
        char path[PATH_BYTES_MAX], name[64];
        assert_int_equal(folder_create(folder, &error), 0);
        snprintf(name, sizeof(name), "%s/%s", strrchr(folder, '/') + 1, names[i]);
        snprintf(path, sizeof(path), "%s", scratch_write(name, "foreign", 7));
        check_refused(export_check_hugging_face(folder, &model.table.shape, NULL, &error), &error, names[i]);
        check_refused(export_hugging_face(folder, &model.table, &source, NULL, NULL, &error), &error,
                      "found another");
        size_t bytes;
        char *text = (char *)scratch_read(path, &bytes);
        assert_int_equal(bytes, 7);
        assert_memory_equal(text, "foreign", 7);
        free(text);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(export_hugging_face(folder, &model.table, &source, NULL, NULL, &error), 0);
        assert_int_equal(export_check_hugging_face(folder, &model.table.shape, NULL, &error), 0);
        snprintf(path, sizeof(path), "%s/model.safetensors", folder);
        assert_int_equal(unlink(path), 0); /* config.json is what it would be */
        assert_int_equal(export_check_hugging_face(folder, &model.table.shape, NULL, &error), 0);
    }
    char *path = scratch_write("shard.bin", "foreign", 7);
    check_refused(export_check_llmc(path, &error), &error, "shard.bin: expected no file, or one that");
    check_refused(export_llmc(path, &model.table, &source, &error), &error, "found another");
    path = scratch_path("llmc.bin");
    assert_int_equal(export_check_llmc(path, &error), 0);
    assert_false(path_exists(path));
    assert_int_equal(export_llmc(path, &model.table, &source, &error), 0);
    assert_int_equal(export_llmc(path, &model.table, &source, &error), 0);
    check_refused(export_check_llmc("/dev/null", &error), &error, "/dev/null: expected no file");
    check_refused(export_check_llmc("/proc/x", &error), &error, "/proc/x: cannot create");
    check_refused(export_check_hugging_face("/proc/x", &model.table.shape, NULL, &error), &error, "/proc/x");
}

static void touch(char path[PATH_BYTES_MAX], const char *folder, const char *name)
{
    snprintf(path, PATH_BYTES_MAX, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

/* What killed exports left goes; what an export that goes on writes stays, and so do others' files. */
static void test_leftovers_of_killed_exports(void **state)
{
    (void)state;
    static const char *const names[] = {"model.safetensors.tmp.4711",
                                        "config.json.tmp.00ff00ff00ff00ff",
                                        "llmc.bin.tmp.1",
                                        "model.safetensors.tmp.99",
                                        "llmc.bin.tmp.mine",
                                        "other.bin.tmp.1"};
    enum { GONE = 3, NAMES = 6, HELD = 3 };
    char paths[NAMES][PATH_BYTES_MAX], path[PATH_BYTES_MAX];
    Error error = {.text = ""};
    StateSource source = {read_state, &model};
    const char *folder = new_folder();
    assert_int_equal(folder_create(folder, &error), 0);
    for (int i = 0; i < NAMES; i++) {
        touch(paths[i], folder, names[i]);
    }
    int held = open(paths[HELD], O_RDONLY);
    assert_int_equal(flock(held, LOCK_SH), 0);
    snprintf(path, sizeof(path), "%s/llmc.bin", folder);
    if (export_hugging_face(folder, &model.table, &source, NULL, NULL, &error) != 0 ||
        export_llmc(path, &model.table, &source, &error) != 0) {
        fail_msg("%s", error.text);
    }
    for (int i = 0; i < NAMES; i++) {
        if (path_exists(paths[i]) != (i >= GONE)) {
            fail_msg("%s: expected it to be %s", paths[i], i < GONE ? "removed" : "left alone");
        }
    }
    close(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hugging_face_folder),
        cmocka_unit_test(test_hugging_face_replaces),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_small_files),
        cmocka_unit_test(test_model_card),
        cmocka_unit_test(test_llmc_file),
        cmocka_unit_test(test_llmc_versions_and_damage),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_files_of_others_are_not_replaced),
        cmocka_unit_test(test_leftovers_of_killed_exports),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
