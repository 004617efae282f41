#include "llmc/run/nanogpt.h"

#include <stdio.h>
#include <string.h>

#include "llmc/base/file.h"

static int is_word(const char *text, size_t bytes, const char *word)
{
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

/* ---- names that the table lacks ------------------------------------------------------------------------ */

typedef struct NanogptName {
    const char *name;
    NanogptKind kind;
    int (*set)(Options *options, const char *value, Error *error); /* NULL: means nothing here */
} NanogptName;

static int parse_bool(int *out, const char *name, const char *value, Error *error)
{
    if (!option_is_bool_word(out, value)) {
        return error_set(error, "%s=%.100s: expected True or False", name, value);
    }
    return 0;
}

static int set_decay_lr(Options *options, const char *value, Error *error)
{
    int is_decaying;
    if (parse_bool(&is_decaying, "decay_lr", value, error) != 0) {
        return -1;
    }
    options->decay_lr = is_decaying ? DECAY_LR_TRUE : DECAY_LR_FALSE;
    return 0;
}

static int set_bias(Options *options, const char *value, Error *error)
{
    int has_bias;
    (void)options;
    if (parse_bool(&has_bias, "bias", value, error) != 0) {
        return -1;
    }
    return has_bias ? 0
                    : error_set(error,
                                "bias=%.20s: expected True: this program's GPT-2 has OpenAI's shape, whose "
                                "linear layers and layer norms have biases; leave the line out",
                                value);
}

static const NanogptName names[] = {
    {"decay_lr", NANOGPT_BOOL, set_decay_lr},
    {"bias", NANOGPT_BOOL, set_bias},
    {"always_save_checkpoint", NANOGPT_BOOL, NULL},
    {"backend", NANOGPT_OTHER, NULL},
    {"compile", NANOGPT_BOOL, NULL},
    {"device", NANOGPT_OTHER, NULL},
    {"wandb_log", NANOGPT_BOOL, NULL},
    {"wandb_project", NANOGPT_OTHER, NULL},
    {"wandb_run_name", NANOGPT_OTHER, NULL},
};

static const NanogptName *find(const char *name, size_t name_bytes)
{
    static const NanogptName other_wandb = {"wandb_*", NANOGPT_OTHER, NULL};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (is_word(name, name_bytes, names[i].name)) {
            return &names[i];
        }
    }
    return name_bytes > 6 && memcmp(name, "wandb_", 6) == 0 ? &other_wandb : NULL;
}

NanogptKind nanogpt_kind(const char *name, size_t name_bytes)
{
    const NanogptName *row = find(name, name_bytes);
    return row ? row->kind : NANOGPT_UNKNOWN;
}

int nanogpt_is_idle(const char *name, size_t name_bytes)
{
    const NanogptName *row = find(name, name_bytes);
    return row && !row->set;
}

/* Add a name to the list of those without meaning, once. A list that is full stays as it is. */
static void note(Options *options, const char *name, size_t name_bytes)
{
    char *list = options->without_meaning;
    for (const char *at = list; *at;) {
        size_t bytes = strcspn(at, ",");
        if (bytes == name_bytes && memcmp(at, name, bytes) == 0) {
            return;
        }
        at += bytes + strspn(at + bytes, ", ");
    }
    size_t used = strlen(list);
    if (used + 2 + name_bytes < sizeof(options->without_meaning)) {
        snprintf(list + used, sizeof(options->without_meaning) - used, "%s%.*s", used > 0 ? ", " : "",
                 (int)name_bytes, name);
    }
}

int nanogpt_set(Options *options, const char *name, size_t name_bytes, const char *value, Error *error)
{
    const NanogptName *row = find(name, name_bytes);
    CHECK(row, "%.*s is no name of nanoGPT's", (int)name_bytes, name);
    if (row->set) {
        return row->set(options, value, error);
    }
    note(options, name, name_bytes);
    return 0;
}

/* nanoGPT's rate without decay_lr is learning_rate from the first update on; warmup_iters then does
 * nothing. */
void nanogpt_settle(Options *options)
{
    if (options->decay_lr == DECAY_LR_FALSE) {
        options->lr_schedule = LR_CONSTANT;
        options->unused_warmup_iters = options_is_given(options, "warmup_iters") ? options->warmup_iters : 0;
        options->warmup_iters = 0;
    } else if (options->decay_lr == DECAY_LR_TRUE && options->lr_schedule == LR_CONSTANT) {
        options->lr_schedule = LR_COSINE;
    }
}

/* ---- values -------------------------------------------------------------------------------------------- */

const char *nanogpt_choice(const OptionSpec *spec, const char *value, Error *error)
{
    if (strcmp(spec->name, "dtype") != 0) {
        return value;
    }
    if (strcmp(value, "float16") == 0 || strcmp(value, "fp16") == 0) {
        error_set(
            error,
            "dtype=%s: expected fp32|bf16 (float32, bfloat16): half precision needs a loss scale, which "
            "this program has not; bf16 is as small and does without",
            value);
        return NULL;
    }
    return strcmp(value, "bfloat16") == 0 ? "bf16" : strcmp(value, "float32") == 0 ? "fp32" : value;
}

/* ---- weights ------------------------------------------------------------------------------------------- */

int nanogpt_find_weights(char *path, size_t room, Error *error)
{
    static const char *const models[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
    char folder[64];
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        snprintf(folder, sizeof(folder), "models/%s", models[i]);
        if (path_exists(path) || (strcmp(path, models[i]) != 0 && strcmp(path, folder) != 0)) {
            continue;
        }
        if (!path_exists(folder)) {
            return error_set(error,
                             "init_from=%s: expected OpenAI's weights in %s, found no such folder; this gets "
                             "them: curl -fL --create-dirs --output-dir %s --remote-name-all "
                             "\"https://huggingface.co/openai-community/%s/resolve/main/"
                             "{config.json,model.safetensors}\"",
                             path, folder, folder, models[i]);
        }
        if (strlen(folder) < room) {
            memcpy(path, folder, strlen(folder) + 1);
        }
        break;
    }
    return 0;
}
