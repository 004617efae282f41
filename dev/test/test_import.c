/* Hugging Face models: every form that people have them in is read to the same weights, and what is not
 * this GPT-2 is refused by name. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/test/import_fixture.h"

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

static void check_accepted(const HuggingFaceFile *file, const char *more)
{
    const char *folder = write_folder(&model, file, more);
    check_weights(folder, &model);
}

static void test_forms_of_one_model(void **state)
{
    (void)state;
    check_accepted(&(HuggingFaceFile){0}, "");
    check_accepted(&(HuggingFaceFile){.has_no_prefix = 1}, "");
    check_accepted(&(HuggingFaceFile){.has_no_prefix = 1, .has_masks = 1, .head = "equal"}, "");
    check_accepted(&(HuggingFaceFile){.head = "equal"}, ", \"tie_word_embeddings\": true");
    check_accepted(&(HuggingFaceFile){.head = "only"}, ", \"n_inner\": null");
    check_accepted(&(HuggingFaceFile){.dtype = SAFE_F16}, ", \"n_inner\": 60");
    check_accepted(&(HuggingFaceFile){.dtype = SAFE_BF16},
                   ", \"activation_function\": \"gelu_pytorch_tanh\"");
    check_accepted(&(HuggingFaceFile){0},
                   ", \"architectures\": [\"GPT2LMHeadModel\"], \"layer_norm_epsilon\": 0.00001");
}

static void test_lower_block_size(void **state)
{
    (void)state;
    Error error;
    const char *folder = write_folder(&model, &(HuggingFaceFile){0}, "");
    Arenas lower;
    load_weights(&lower, folder, 3);
    for (int i = 0; i < lower.table.count; i++) {
        const ParamSpec *spec = &lower.table.specs[i];
        assert_memory_equal(lower.values[SAVED_WEIGHTS] + spec->offset,
                            model.values[SAVED_WEIGHTS] + model.table.specs[i].offset,
                            (size_t)param_file_count(spec) * sizeof(float));
    }
    arenas_release(&lower);
    Arenas higher;
    ModelShape shape = small;
    shape.block_size = 8;
    arenas_init(&higher, &shape);
    WeightsFile *weights = weights_open(folder, &error);
    StateSink sink = {write_state, &higher};
    assert_int_equal(weights_load(weights, &higher.table, &sink, &error), -1);
    assert_non_null(strstr(error.text, "block_size=8 or more, found 7"));
    assert_int_equal(higher.write_count, 0);
    weights_close(weights);
    arenas_release(&higher);
}

static void check_file_refused(const HuggingFaceFile *file, const char *expected)
{
    const char *folder = write_folder(&model, file, "");
    check_not_loaded(folder, expected);
}

static void test_other_tensors(void **state)
{
    (void)state;
    check_file_refused(&(HuggingFaceFile){.head = "other"},
                       "lm_head.weight: expected it to equal wte.weight");
    check_file_refused(&(HuggingFaceFile){.left_out = "h.1.mlp.c_fc.bias"},
                       "expected tensor h.1.mlp.c_fc.bias, found none");
    check_file_refused(&(HuggingFaceFile){.left_out = "wpe.weight"}, "wpe.weight");
    check_file_refused(&(HuggingFaceFile){.left_out = "wte.weight"}, "wte.weight");
    check_file_refused(&(HuggingFaceFile){.left_out = "h.0.ln_1.weight"}, "n_layer: expected 1 to");
    check_file_refused(&(HuggingFaceFile){.left_out = "h.1.ln_1.weight"}, "n_layer: expected 1");
    check_file_refused(&(HuggingFaceFile){.twice = "ln_f.bias"}, "ln_f.bias: given twice");
    check_file_refused(&(HuggingFaceFile){.extra = "score.weight"},
                       "score.weight: not part of a GPT-2 of 2 blocks");
    check_file_refused(&(HuggingFaceFile){.extra = "transformer.h.2.ln_1.bias"}, "h.2.ln_1.bias: not part");
    check_file_refused(&(HuggingFaceFile){.extra = "h.x.attn.bias"}, "h.x.attn.bias: not part");
    check_file_refused(&(HuggingFaceFile){.reshaped = "h.0.attn.c_attn.weight"}, "expected shape [15, 45]");
    check_file_refused(&(HuggingFaceFile){.reshaped = "wpe.weight"}, "n_positions: expected 15");
    check_file_refused(&(HuggingFaceFile){.retyped = "h.1.ln_2.bias"},
                       "h.1.ln_2.bias: expected F32, F16 or BF16, found I32");
    check_file_refused(&(HuggingFaceFile){.not_finite = "h.1.mlp.c_proj.weight"},
                       "h.1.mlp.c_proj.weight: expected finite");
    check_file_refused(&(HuggingFaceFile){.not_finite = "ln_f.weight"}, "ln_f.weight: expected finite");
}

/* A key that asks for another model is named, with what was found. */
static void test_other_configs(void **state)
{
    (void)state;
    static const struct {
        const char *more, *expected;
    } rows[] = {
        {", \"activation_function\": \"relu\"",
         "activation_function: expected [\"gelu_new\", \"gelu_pytorch_tanh\"], found \"relu\""},
        {", \"layer_norm_epsilon\": 1e-6", "layer_norm_epsilon: expected [1e-5], found"},
        {", \"scale_attn_weights\": false", "scale_attn_weights: expected [true], found false"},
        {", \"scale_attn_by_inverse_layer_idx\": true", "scale_attn_by_inverse_layer_idx"},
        {", \"reorder_and_upcast_attn\": true", "reorder_and_upcast_attn"},
        {", \"n_inner\": 61", "n_inner: expected 60"},
        {", \"tie_word_embeddings\": false", "tie_word_embeddings"},
        {", \"add_cross_attention\": true", "add_cross_attention"},
        {", \"quantization_config\": {\"bits\": 4}",
         "quantization_config: expected [null], found {\"bits\":4}"},
        {", \"architectures\": [\"LlamaForCausalLM\"]", "architectures: expected GPT2LMHeadModel"},
        {", \"n_head\": 3", "duplicate object key"},
        {", ", "expected a JSON object"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *folder = write_folder(&model, &(HuggingFaceFile){0}, rows[i].more);
        check_not_loaded(folder, rows[i].expected);
        check_not_loaded(folder, "config.json: ");
    }
    static const struct {
        const char *config, *expected;
    } whole[] = {
        {"{\"n_head\": 3, \"model_type\": \"gpt_neo\"}",
         "model_type: expected [\"gpt2\"], found \"gpt_neo\""},
        {"{\"n_head\": 3, \"vocab_size\": 130}",
         "vocab_size: expected 131, which is the rows of wte.weight, found 130"},
        {"{\"n_head\": 3, \"n_positions\": 8}", "n_positions: expected 7"},
        {"{\"n_head\": 3, \"n_ctx\": 8}", "n_ctx: expected 7"},
        {"{\"n_head\": 3, \"n_embd\": 16}", "n_embd: expected 15"},
        {"{\"n_head\": 3, \"n_layer\": 3}", "n_layer: expected 2"},
        {"{\"n_head\": 3, \"n_layer\": \"2\"}",
         "n_layer: expected 2, which is the number of blocks in the weights, found \"2\""},
        {"{\"n_head\": 4}", "n_head: expected a divisor of n_embd=15, found 4"},
        {"{\"n_head\": 0}", "n_head: expected a divisor of n_embd=15, found 0"},
        {"{\"n_head\": -3}", "n_head: expected a divisor of n_embd=15, found -3"},
        {"{}", "n_head: expected a divisor of n_embd=15, found none"},
        {"[]", "expected a JSON object"},
        {"", "expected a JSON object"},
    };
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        const char *folder = write_folder(&model, &(HuggingFaceFile){0}, "");
        write_text(folder, "config.json", whole[i].config);
        check_not_loaded(folder, whole[i].expected);
    }
}

/* What a config leaves out follows from the tensors. */
static void test_least_config(void **state)
{
    (void)state;
    const char *folder = write_folder(&model, &(HuggingFaceFile){0}, "");
    write_text(folder, "config.json", "{\"n_head\": 3}");
    check_weights(folder, &model);
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    check_weights(path, &model); /* a file alone finds the config beside it */
    snprintf(path, sizeof(path), "%s/config.json", folder);
    unlink(path);
    check_not_loaded(folder, "config.json");
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    check_not_loaded(path, "n_head cannot be told from n_embd=15");
}

/* Without a config, heads are 64 wide. */
static void test_bare_file(void **state)
{
    (void)state;
    const ModelShape shape = {.block_size = 5, .vocab_size = 11, .n_layer = 1, .n_head = 2, .n_embd = 128};
    Arenas wide;
    arenas_init(&wide, &shape);
    fill_exact(&wide);
    char *path = scratch_path("bare.safetensors");
    write_hugging_face(path, &wide, &(HuggingFaceFile){0});
    check_weights(path, &wide);
    arenas_release(&wide);
}

static void test_model_in_pieces(void **state)
{
    (void)state;
    Error error;
    const char *folder = new_folder();
    char path[PATH_BYTES_MAX];
    folder_create(folder, &error);
    write_config(folder, &small, "");
    snprintf(path, sizeof(path), "%s/model-00001-of-00002.safetensors", folder);
    write_hugging_face(path, &model, &(HuggingFaceFile){.last = 9});
    snprintf(path, sizeof(path), "%s/model-00002-of-00002.safetensors", folder);
    write_hugging_face(path, &model, &(HuggingFaceFile){.first = 10});
    static const char index[] =
        "{\"metadata\": {}, \"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", "
        "\"b\": \"model-00002-of-00002.safetensors\", \"c\": \"model-00001-of-00002.safetensors\"}}";
    write_text(folder, "model.safetensors.index.json", index);
    check_weights(folder, &model);
    write_hugging_face(path, &model, &(HuggingFaceFile){.first = 9});
    check_not_loaded(folder, "given twice");
    write_hugging_face(path, &model, &(HuggingFaceFile){.first = 11});
    check_not_loaded(folder, "expected tensor ");
    write_text(folder, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x\"}}");
    check_not_loaded(folder, "expected names of files in this folder, found ../x");
    write_text(folder, "model.safetensors.index.json", "{\"weight_map\": {\"a\": 1}}");
    check_not_loaded(folder, "weight_map: a: expected the name of a file");
    write_text(folder, "model.safetensors.index.json", "{\"weight_map\": {}}");
    check_not_loaded(folder, "expected JSON with weight_map");
    write_text(folder, "model.safetensors.index.json", "{\"weight_map\": {\"a\": \"gone.safetensors\"}}");
    check_not_loaded(folder, "gone.safetensors: cannot open");
}

static void test_paths_that_hold_no_model(void **state)
{
    (void)state;
    Error error;
    check_not_loaded(scratch_path("nothing here"), "nothing here: cannot open: No such file");
    check_not_loaded(scratch_write("empty", "", 0), "expected a model (snapshot, Hugging Face folder");
    check_not_loaded(scratch_write("text", "just some text\n", 15), "found something else");
    int32_t tokens[256] = {20240520, 1, 0};
    check_not_loaded(scratch_write("tokens", tokens, sizeof(tokens)), "found a token file");
    static const char convert[] =
        "found a checkpoint of PyTorch; convert it first: scripts/convert_checkpoint.py";
    check_not_loaded(scratch_write("ckpt.pt", "PK\3\4 and a zip", 14), convert);
    check_not_loaded(scratch_write("old.bin", "\x80\2\x8a\nl\xfc", 6), convert);
    const char *folder = new_folder();
    folder_create(folder, &error);
    check_not_loaded(folder, "found no model.safetensors");
    write_text(folder, "pytorch_model.bin", "PK");
    check_not_loaded(folder,
                     "found pytorch_model.bin of PyTorch; convert it first: scripts/convert_checkpoint");
    char long_path[PATH_BYTES_MAX + 10];
    memset(long_path, 'x', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    check_not_loaded(long_path, "the path is longer than");
}

static void test_snapshot_brings_its_weights(void **state)
{
    (void)state;
    Error error;
    const char *folder = new_folder();
    write_step(folder, 12, &model, 0);
    check_weights(step_path(folder, 12), &model);
    WeightsFile *weights = weights_open(step_path(folder, 12), &error);
    assert_non_null(weights);
    assert_int_equal(weights_kind(weights), WEIGHTS_SNAPSHOT);
    assert_string_equal(weights_kind_name(weights), "snapshot");
    assert_int_equal(weights_snapshot_info(weights)->step, 12);
    weights_close(weights);
}

/* As a Hugging Face file's, a snapshot's weights must be finite; so must its moments, for a run that goes on
 * from it. */
static void test_snapshots_that_are_not_finite(void **state)
{
    (void)state;
    Error error;
    Arenas spoilt, found;
    const ParamSpec *spec = &model.table.specs[model.table.count - 1];
    for (int s = 0; s < SAVED_STATES; s++) {
        const char *folder = new_folder();
        arenas_init(&spoilt, &model.table.shape);
        arenas_init(&found, &model.table.shape);
        spoilt.values[s][spec->offset] = s == 0 ? NAN : -INFINITY;
        write_step(folder, 12, &spoilt, 0);
        WeightsFile *weights = weights_open(step_path(folder, 12), &error);
        assert_non_null(weights);
        StateSink sink = {write_state, &found};
        error.text[0] = '\0';
        assert_int_equal(weights_load(weights, &model.table, &sink, &error), s == 0 ? -1 : 0);
        assert_true(s > 0 || strstr(error.text, "expected finite weights"));
        weights_close(weights);
        Snapshot *snapshot = snapshot_open(step_path(folder, 12), &error);
        assert_int_equal(
            snapshot_load_finite(snapshot, &model.table, SAVED_WEIGHTS, SAVED_MOMENT2, &sink, &error), -1);
        assert_non_null(strstr(error.text, spec->name));
        snapshot_close(snapshot);
        arenas_release(&spoilt);
        arenas_release(&found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_of_one_model),
        cmocka_unit_test(test_lower_block_size),
        cmocka_unit_test(test_other_tensors),
        cmocka_unit_test(test_other_configs),
        cmocka_unit_test(test_least_config),
        cmocka_unit_test(test_bare_file),
        cmocka_unit_test(test_model_in_pieces),
        cmocka_unit_test(test_paths_that_hold_no_model),
        cmocka_unit_test(test_snapshot_brings_its_weights),
        cmocka_unit_test(test_snapshots_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
