/* A Hugging Face config.json against what this program computes. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/file.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/import_source.h"
#include "llmc/snapshot/json_memory.h"

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* Keys that change what a model computes, and the values that mean this GPT-2. A key that is not there means
 * the first of them. */
static const struct {
    const char *key;
    const char *accepted; /* JSON array */
} rules[] = {
    {"model_type", "[\"gpt2\"]"},
    {"activation_function", "[\"gelu_new\", \"gelu_pytorch_tanh\"]"},
    {"layer_norm_epsilon", "[1e-5]"},
    {"scale_attn_weights", "[true]"},
    {"scale_attn_by_inverse_layer_idx", "[false]"},
    {"reorder_and_upcast_attn", "[false]"},
    {"tie_word_embeddings", "[true]"},
    {"add_cross_attention", "[false]"},
    {"is_encoder_decoder", "[false]"},
    {"quantization_config", "[null]"},
};

/* A value as it stands in the file, shortened. */
static void describe(char text[80], const json_t *value)
{
    char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    snprintf(text, 80, "%.70s", dumped ? dumped : "something else");
    free(dumped);
}

static int check_rule(const json_t *config, const char *key, const char *accepted_text, const char *path,
                      Error *error)
{
    const json_t *value = json_object_get(config, key);
    if (!value) {
        return 0;
    }
    json_t *accepted = json_loads(accepted_text, 0, NULL);
    CHECK(accepted, "%s is no JSON", accepted_text);
    int is_accepted = 0;
    for (size_t i = 0; i < json_array_size(accepted); i++) {
        is_accepted |= json_equal(json_array_get(accepted, i), value);
    }
    json_decref(accepted);
    if (!is_accepted) {
        char found[80];
        describe(found, value);
        return error_set(error, "%s: %s: expected %s, found %s; this program computes GPT-2 only", path, key,
                         accepted_text, found);
    }
    return 0;
}

/* `architectures` lists classes of transformers; at least one has to be GPT-2's. */
static int check_architectures(const json_t *config, const char *path, Error *error)
{
    const json_t *list = json_object_get(config, "architectures");
    if (!list || json_is_null(list)) {
        return 0;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strncmp(name, "GPT2", 4) == 0) {
            return 0;
        }
    }
    char found[80];
    describe(found, list);
    return error_set(
        error, "%s: architectures: expected GPT2LMHeadModel, found %s; this program computes GPT-2 only",
        path, found);
}

/* A size that the file may leave out, but may not contradict. */
static int check_size(const json_t *config, const char *key, int64_t expected, const char *what,
                      const char *path, Error *error)
{
    const json_t *value = json_object_get(config, key);
    if (!value || (json_is_integer(value) && json_integer_value(value) == expected)) {
        return 0;
    }
    char found[80];
    describe(found, value);
    return error_set(error, "%s: %s: expected %" PRId64 ", which is %s, found %s", path, key, expected, what,
                     found);
}

static int check_sizes(ModelShape *shape, const json_t *config, const char *path, Error *error)
{
    const char *positions = json_object_get(config, "n_positions") ? "n_positions" : "n_ctx";
    const json_t *inner = json_object_get(config, "n_inner");
    if (check_size(config, "vocab_size", shape->vocab_size, "the rows of wte.weight", path, error) != 0 ||
        check_size(config, positions, shape->block_size, "the rows of wpe.weight", path, error) != 0 ||
        check_size(config, "n_embd", shape->n_embd, "the columns of wte.weight", path, error) != 0 ||
        check_size(config, "n_layer", shape->n_layer, "the number of blocks in the weights", path, error) !=
            0) {
        return -1;
    }
    if (inner && !json_is_null(inner) &&
        check_size(config, "n_inner", 4 * (int64_t)shape->n_embd, "4 * n_embd", path, error) != 0) {
        return -1;
    }
    const json_t *heads = json_object_get(config, "n_head");
    json_int_t n_head = json_integer_value(heads);
    if (n_head < 1 || n_head > shape->n_embd || shape->n_embd % n_head != 0) {
        char found[80] = "none";
        if (heads) {
            describe(found, heads);
        }
        return error_set(error, "%s: n_head: expected a divisor of n_embd=%d, found %s", path, shape->n_embd,
                         found);
    }
    shape->n_head = (int)n_head;
    return 0;
}

int hugging_face_check_config(ModelShape *shape, const char *path, Error *error)
{
    size_t bytes;
    char *text = file_read(path, CONFIG_BYTES_MAX, &bytes, error);
    if (!text) {
        return -1;
    }
    json_error_t reason;
    json_memory_watch();
    json_t *config = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &reason);
    memory_free(text);
    int status = 0;
    if (!config && json_memory_failed()) {
        status = error_set(error, "%s: cannot read: out of memory; let the program have more", path);
    } else if (!json_is_object(config)) {
        status = error_set(error, "%s: expected a JSON object: %s, at line %d", path,
                           config ? "found another value" : reason.text, config ? 1 : reason.line);
    }
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && status == 0; i++) {
        status = check_rule(config, rules[i].key, rules[i].accepted, path, error);
    }
    if (status == 0) {
        status = check_architectures(config, path, error);
    }
    if (status == 0) {
        status = check_sizes(shape, config, path, error);
    }
    json_decref(config);
    return status;
}
